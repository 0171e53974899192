"""Dialects: the HTTP APIs that the server offers, each with paths, rules and errors of its own.

The first segment of its path decides to which dialect a request belongs; by default it belongs to
the native one. That dialect has its routes, and the form of all its errors, those for unknown paths
included.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from aiohttp.web import BaseRequest, Response

from fsmq.spool.errors import FsmqError

from .fast_path.fast_path import Reader
from .guard.access import Identity
from .guard.origin import Origins
from .routing.call import Call
from .routing.router import Endpoint, Router
from .service.service import Service

if TYPE_CHECKING:
    import socket


class AdminServer(Protocol):
    """Serves a separate socket for the administration of a dialect."""

    async def start(self, listening: socket.socket) -> None: ...

    async def stop(self) -> None: ...


class Dialect(ABC):
    """One dialect; ``__init__`` adds its routes. `fsmq.http.dialects` has the list of them.

    name: as ``--dialects`` takes it.
    prefixes: the first segments of its paths.
    in_document: whether the OpenAPI document includes it.
    admin_port: the field of the setting with the port of `admin`; empty: it has no admin port.
    """

    name: ClassVar[str]
    prefixes: ClassVar[frozenset[str]] = frozenset()
    in_document: ClassVar[bool] = True
    admin_port: ClassVar[str] = ""

    def __init__(self, service: Service) -> None:
        self.router = Router()

    @classmethod
    def problem_of(cls, settings: Mapping[str, Any], *, has_keys: bool) -> str | None:
        """Why it cannot be served with these settings, for the operator; None if it can.

        settings: the values of the settings of all dialects, by field.
        """
        return None

    @classmethod
    def make(cls, service: Service, settings: Mapping[str, Any]) -> Self:
        """The dialect with the operator's settings."""
        return cls(service)

    def admin(self) -> AdminServer:
        """The server of its admin port. Raises LookupError if it has none."""
        raise LookupError(f"the dialect {self.name} has no admin port")

    def claims(self, method: str, path: str, query: str, headers: Mapping[str, str]) -> bool:
        """Whether this request belongs to it whatever the first segment of the path is."""
        return False

    def find(self, method: str, path: str) -> tuple[Endpoint, Mapping[str, str]]:
        """The endpoint for a request, and the decoded values of the path's named segments.

        Raises:
            NotFound, MethodNotAllowed
        """
        return self.router.find(method, path)

    def reader(self, origins: Origins) -> Reader | None:
        """Reads the heads of requests that can take the fast path; None: there are none."""
        return None

    def admit(self, origins: Origins, request: BaseRequest) -> None:
        """Refuse what a page of another site made its visitor's browser send.

        Raises:
            CrossSite, UnknownHost
        """
        origins.check(request.headers)

    async def identify(self, call: Call) -> Identity:
        """Identify the sender of a request that needs a right.

        Raises:
            Unauthorized, TooManyRequests
        """
        return call.identify_bearer()

    async def refuse(self, call: Call, error: FsmqError) -> Response:
        """The answer to a request that has ended in an error."""
        return self.problem(error)

    @abstractmethod
    def problem(self, error: FsmqError) -> Response:
        """The answer to an error, of HTTP or of the spool."""


class Handlers:
    """Handlers of a dialect's routes: they translate requests into verbs."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._spool = service.spool
