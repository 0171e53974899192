"""The connections of the client for threads: a small request is sent in one piece.

urllib3 sends head and body apart. So a server is woken twice, and has half a request in between.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

_SMALL_BYTES = 64 * 1024

if TYPE_CHECKING:
    _Base = HTTPConnection
else:
    _Base = object


class _InOnePiece(_Base):
    """What a connection does before another sends bytes."""

    _held: list[bytes] | None = None  # of the request that is being put together

    def request(self, method: str, url: str, body: Any = None, *given: Any, **more: Any) -> None:
        """Send a request, in one piece if it is small."""
        if not isinstance(body, bytes) or len(body) > _SMALL_BYTES:
            super().request(method, url, body, *given, **more)
            return
        held: list[bytes] = []
        self._held = held
        try:
            super().request(method, url, body, *given, **more)
        finally:
            self._held = None
        self.send(b"".join(held))

    def send(self, data: Any) -> None:
        """Send bytes, or keep them until the request is whole."""
        if self._held is None:
            super().send(data)
        else:
            self._held.append(data)


class _Plain(_InOnePiece, HTTPConnection):
    """A connection without TLS."""


class _Secure(_InOnePiece, HTTPSConnection):
    """A connection with TLS."""


class _PlainPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Plain


class _SecurePool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _Secure


def pool(
    host: str, port: int, connections: int, tls: ssl.SSLContext | None
) -> urllib3.HTTPConnectionPool:
    """So many connections to a server, which are made when they are needed."""
    if tls is None:
        return _PlainPool(host, port, maxsize=connections)
    return _SecurePool(host, port, maxsize=connections, ssl_context=tls)
