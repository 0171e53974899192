"""Rendering: makes pages from templates, and addresses with digests for the files they load."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from functools import cached_property
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from aiohttp import hdrs
from aiohttp.web import Response

from fsmq._version import __version__

from . import words
from .slimming import slim

if TYPE_CHECKING:
    import jinja2

_KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Not no-referrer: forms would then send "Origin: null".
    "Referrer-Policy": "same-origin",
}


class Asset(NamedTuple):
    """A file that pages load. digest: is in its address, so that browsers can cache it for ever.

    packed: the content, compressed by gzip.
    """

    digest: str
    kind: str
    content: bytes
    packed: bytes


class Addresses(Protocol):
    """Makes relative addresses of other pages for the one that is rendered."""

    def url(self, *segments: str, **query: object) -> str: ...


class Rendering:
    """Templates, and the files that they load.

    title: the name of the spool in the head of each page.
    """

    def __init__(self, title: str) -> None:
        self._title = title

    @cached_property
    def _templates(self) -> jinja2.Environment:
        # Imported for the first page: a server whose pages nobody opens saves 2 MB.
        import jinja2

        templates = jinja2.Environment(
            loader=jinja2.PackageLoader("fsmq.http.ui", "templates"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
            auto_reload=False,
        )
        templates.filters |= words.FILTERS
        templates.globals |= {
            "title": self._title,
            "version": __version__,
            "asset": self._address,
        }
        return templates

    @cached_property
    def assets(self) -> Mapping[str, Asset]:
        """The files that pages load, by name."""
        found = {}
        for file in resources.files("fsmq.http.ui").joinpath("static").iterdir():
            kind = _KINDS.get(file.name[file.name.rfind(".") :])
            if kind is not None:
                content = slim(file.name, file.read_bytes())
                digest = hashlib.sha256(content).hexdigest()[:12]
                packed = gzip.compress(content, mtime=0)
                found[file.name] = Asset(digest, kind, content, packed)
        return found

    def render(self, template: str, request: Addresses, values: Mapping[str, Any]) -> str:
        return self._templates.get_template(template).render(
            request=request, url=request.url, **values
        )

    @staticmethod
    def answer(text: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
        """A page that no other site can frame or script."""
        return Response(
            status=status,
            body=text.encode("utf-8", "replace"),
            content_type="text/html",
            charset="utf-8",
            headers={**HEADERS, **(headers or {}), hdrs.CACHE_CONTROL: "no-store"},
        )

    def _address(self, name: str, request: Addresses) -> str:
        return request.url("static", self.assets[name].digest, name)
