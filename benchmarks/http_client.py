"""A lean HTTP client for what wrk cannot do: paced posts, and thousands of long polls.

One request in flight on each connection; no more of HTTP than our server answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple, TypeVar, cast

import uvloop

T = TypeVar("T")


def run(client: Coroutine[Any, Any, T]) -> T:
    """Run a client on the loop that costs it least: it shares the cores with what it measures."""
    return uvloop.run(client)


class Answer(NamedTuple):
    status: int
    head: bytes  # the status line and the headers
    body: bytes

    def header(self, name: str) -> str | None:
        """A header's value."""
        start = b"\r\n" + name.lower().encode() + b": "
        at = self.head.lower().find(start)
        if at < 0:
            return None
        value = self.head[at + len(start) :]
        return value.partition(b"\r\n")[0].decode()


class Connection(asyncio.Protocol):
    """A connection that stays open."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._data = b""
        self._waiting: asyncio.Future[Answer] | None = None

    @classmethod
    async def open(cls, port: int) -> Connection:
        """Connect. Raises OSError."""
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(cls, "127.0.0.1", port)
        return connection

    async def request(self, method: str, path: str, body: bytes = b"", headers: str = "") -> Answer:
        """Send one request and wait for its answer. Raises ConnectionError.

        headers: more of them, each with its line end.
        """
        assert self._transport is not None
        assert self._waiting is None
        length = f"Content-Length: {len(body)}"
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}{length}\r\n\r\n"
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(head.encode() + body)
        try:
            return await self._waiting
        finally:
            self._waiting = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods and not the class.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, end, rest = self._data.partition(b"\r\n\r\n")
        if not end:
            return
        answer = Answer(int(head[9:12]), head, b"")
        if answer.header("Transfer-Encoding") is not None:
            if not rest.endswith(b"0\r\n\r\n"):  # JSON and base64 have no such line
                return
            body, self._data = _joined(rest), b""
        else:
            length = int(answer.header("Content-Length") or 0)
            if len(rest) < length:
                return
            body, self._data = rest[:length], rest[length:]
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(answer._replace(body=body))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(exc or ConnectionError("the server closed the connection"))


def _joined(chunks: bytes) -> bytes:
    """A body that came in chunks."""
    parts = []
    while chunks:
        size, _, rest = chunks.partition(b"\r\n")
        length = int(size, 16)
        parts.append(rest[:length])
        chunks = rest[length + 2 :] if length else b""
    return b"".join(parts)
