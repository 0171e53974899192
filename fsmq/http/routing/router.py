"""Routes: which handler answers a method and a path.

Paths are split before they are decoded, so an encoded slash is never a separator but part of a name
(which is then refused).
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

from aiohttp.web import StreamResponse

from fsmq.words import meant

from ..describe import Operation
from ..problems import MethodNotAllowed, NotFound

if TYPE_CHECKING:
    from .call import Call
    from .needs import Need

Handler: TypeAlias = "Callable[[Call], Awaitable[StreamResponse]]"


class Route(NamedTuple):
    """One method on one path, with its description. need: what its sender needs; None: nothing."""

    method: str
    pattern: str
    operation: Operation
    need: Need | None = None


class Endpoint(NamedTuple):
    """What answers a request. need: what its sender needs; None: it is open to everybody."""

    handler: Handler
    operation: Operation
    need: Need | None = None


@dataclass(slots=True)
class _Node:
    """A node in the tree of paths."""

    fixed: dict[str, _Node] = field(default_factory=dict)
    named: tuple[str, _Node] | None = None
    endpoints: dict[str, Endpoint] = field(default_factory=dict)


class Router:
    """A tree of path segments; a fixed segment goes before a ``{named}`` one."""

    def __init__(self) -> None:
        self._root = _Node()
        self._routes: list[Route] = []

    def add(
        self,
        method: str,
        pattern: str,
        handler: Handler,
        operation: Operation,
        need: Need | None = None,
    ) -> None:
        """Add a route such as ``GET /{queue}/messages``, with its description.

        need: what its sender needs; None if, and only if, the operation is open.

        Raises:
            ValueError: there is such a route already, or its need is missing.
        """
        if (need is None) != operation.open:
            raise ValueError(f"{method} {pattern} needs a right, or is open: say one of the two")
        node = self._root
        for segment in _split(pattern):
            if segment.startswith("{"):
                if node.named is None:
                    node.named = (segment[1:-1], _Node())
                node = node.named[1]
            else:
                node = node.fixed.setdefault(segment, _Node())
        if method in node.endpoints:
            raise ValueError(f"{method} {pattern} is served already")
        node.endpoints[method] = Endpoint(handler, operation, need)
        self._routes.append(Route(method, pattern, operation, need))

    def routes(self) -> Sequence[Route]:
        """All routes, in the order in which they were added."""
        return tuple(self._routes)

    def find(self, method: str, path: str) -> tuple[Endpoint, Mapping[str, str]]:
        """The endpoint of a request, and the decoded values of the named segments.

        Raises:
            NotFound, MethodNotAllowed
        """
        node, names = self._root, {}
        for segment in _split(path):
            fixed = node.fixed.get(segment)
            if fixed is not None:
                node = fixed
            elif node.named is not None and segment:
                name, node = node.named
                names[name] = _decode(segment)
            else:
                raise NotFound(path, meant(segment, node.fixed))
        if not node.endpoints:
            raise NotFound(path)
        endpoint = node.endpoints.get(method)
        if endpoint is None:
            raise MethodNotAllowed(method, sorted(node.endpoints))
        return endpoint, names


def _split(path: str) -> list[str]:
    # A trailing slash is kept: with an empty id, the path of a message must not become the path of
    # all messages.
    return [] if path == "/" else path.split("/")[1:]


def _decode(segment: str) -> str:
    if "%" not in segment:
        return segment
    # File names are bytes: a name that is not UTF-8 must find its file, too.
    return os.fsdecode(unquote_to_bytes(segment))
