"""Helpers of the HTTP tests: short forms of the usual requests, and a client on a bare socket."""

from __future__ import annotations

import http.client
import json
import select
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message as Headers
from pathlib import Path
from typing import Any, Self
from urllib.parse import urljoin, urlsplit

from aiohttp import ClientSession
from yarl import URL

from tests.harness.suite import eventually_on_loop

PROBLEM = "application/problem+json"
# The longest wait of a fetch.
ARRIVAL_S = 20


def moment(text: str) -> datetime:
    """A time as headers and JSON have it."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


@dataclass
class Answer:
    """A whole answer."""

    status: int
    headers: Any
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def id(self) -> str:
        return str(self.headers["X-Message-Id"])


def leads_to(path: str, answer: Answer) -> str:
    """The target of ``Location``, also below the path of a proxy."""
    location = str(answer.headers["Location"])
    found = urljoin(path, location)
    assert urljoin(f"https://example.org/a/b{path}", location) == f"https://example.org/a/b{found}"
    return found


async def ask(client: ClientSession, method: str, path: str, /, **options: Any) -> Answer:
    """Send one request and read the answer. The path is sent as it is."""
    async with client.request(method, URL(path, encoded=True), **options) as response:
        return Answer(response.status, response.headers, await response.read())


async def post(client: ClientSession, queue: str, body: bytes = b"", /, **params: Any) -> str:
    """Post a message; its id."""
    answer = await send(client, queue, body, **params)
    assert answer.status == 201, answer
    return answer.id


async def send(client: ClientSession, queue: str, body: bytes = b"", /, **params: Any) -> Answer:
    """Post a message; the answer."""
    query = "&".join(f"{name}={value}" for name, value in params.items())
    return await ask(client, "POST", f"/{queue}/messages?{query}", data=body)


async def fetch(client: ClientSession, queue: str, /, **params: Any) -> Answer:
    """Fetch, waiting for an arrival unless ``wait`` says how long."""
    query = "&".join(f"{name}={value}" for name, value in ({"wait": ARRIVAL_S} | params).items())
    return await ask(client, "GET", f"/{queue}/messages?{query}")


async def configure(client: ClientSession, queue: str, /, **settings: Any) -> Answer:
    """Change settings of a queue."""
    answer = await ask(client, "PATCH", f"/{queue}", json=settings)
    assert answer.status == 200, answer
    return answer


async def counts(client: ClientSession, queue: str) -> dict[str, int]:
    """A queue's counts by state."""
    found: dict[str, int] = (await ask(client, "GET", f"/{queue}")).json["messages"]
    assert found.pop("unfinished") == found["ready"] + found["in_flight"]
    return found


async def until_ready(client: ClientSession, queue: str, number: int) -> None:
    """Wait until so many messages are ready and none is in new."""

    async def are_ready() -> bool:
        found = await counts(client, queue)
        return bool(found["ready"] == number and found["new"] == 0)

    await eventually_on_loop(are_ready)


class Crowd:
    """Many connections that send the same bytes and nothing more."""

    def __init__(self, port: int, number: int, says: bytes = b"") -> None:
        self._sockets = []
        for _ in range(number):
            self._sockets.append(socket.create_connection(("127.0.0.1", port)))
            if says:
                self._sockets[-1].sendall(says)

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *of: object) -> None:
        for one in self._sockets:
            one.close()

    def left(self) -> int:
        """How many of them the server has not closed."""
        return sum(map(_is_open, self._sockets))


def _is_open(one: socket.socket) -> bool:
    try:
        while one.recv(4096, socket.MSG_DONTWAIT):
            pass  # what comes before the end
    except BlockingIOError:
        return True
    except ConnectionResetError:
        pass
    return False


class Wire:
    """A connection whose bytes a test writes itself."""

    def __init__(self, url: str, timeout: float = 20.0) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.netloc, parts.port or 0
        self.socket = socket.create_connection((parts.hostname, parts.port), timeout)
        self._reader = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *of: object) -> None:
        self.close()

    def close(self) -> None:
        self._reader.close()
        self.socket.close()

    def send(self, data: bytes | str) -> None:
        self.socket.sendall(data.encode() if isinstance(data, str) else data)

    def request(
        self, method: str, target: str, headers: dict[str, str] | None = None, body: bytes = b""
    ) -> None:
        """Send one request; only the host and the length of the body are added."""
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self.host}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        self.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)

    def is_read(self) -> bool:
        """Whether the server has read everything that was sent."""
        ours, theirs = (f":{port:04X}" for port in (self.socket.getsockname()[1], self.port))
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, local, remote, _, queues, *_ = line.split()
            if local.endswith(theirs) and remote.endswith(ours):
                return int(queues.split(":")[1], 16) == 0
        return False  # it is closed

    def is_readable(self) -> bool:
        """Whether there is something to read, or the end."""
        return bool(select.select([self.socket], [], [], 0)[0])

    def answer(self, *, head: bool = False) -> Answer:
        """Read one answer and nothing more."""
        status_line = self._reader.readline()
        assert status_line, "the server closed the connection"
        status = int(status_line.split()[1])
        headers = http.client.parse_headers(self._reader)
        return Answer(status, headers, b"" if head or status < 200 else self._body(headers))

    def ask(self, *of: Any, **more: Any) -> Answer:
        self.request(*of, **more)
        return self.answer(head=of[0] == "HEAD")

    def is_closed(self) -> bool:
        """Wait for the server to close the connection; False if it sends something instead."""
        try:
            return self._reader.read(1) == b""
        except ConnectionResetError:
            return True

    def rest(self) -> bytes:
        """Everything that the server sends until it closes the connection."""
        return self._reader.read()

    def _body(self, headers: Headers) -> bytes:
        length = headers["Content-Length"]
        if headers["Transfer-Encoding"] == "chunked":
            assert length is None
            return b"".join(self._chunks())
        assert headers["Transfer-Encoding"] is None
        return self._reader.read(int(length)) if length is not None else b""

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self._reader.readline(), 16):
            yield self._reader.read(size)
            assert self._reader.read(2) == b"\r\n"
        assert self._reader.readline() == b"\r\n"
