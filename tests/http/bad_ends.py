"""Ways to end a request badly, and the requests that take bodies, or give them.

Used by tests/http/test_bad_ends.py, and by tests/soak/memory.py for long.
"""

from __future__ import annotations

import gzip
import random
import socket
import ssl
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fsmq.spool.log.log import LogEntry
from fsmq.spool.spool import Spool
from tests.http.stock import Stored

MIB = 1024 * 1024
# More than aiohttp and the kernel keep of what nobody reads; little enough to be sent often.
BODY_BYTES = 2 * MIB
JSON = "application/json"
_NAMES = {
    "queue": "q",
    "topic": "t",
    "log": "l",
    "channel": "c",
    "schedule": "s",
    "zone": "z",
    "id": "0",
    "number": "1",
    "offset": "0",
    "ref": "00",
    "reference": "00",
}


class Asked(NamedTuple):
    """A request. is_large: its answer is."""

    method: str
    target: str
    headers: Mapping[str, str]
    is_large: bool = False

    def __str__(self) -> str:
        action = self.headers.get("X-Amz-Target", "")
        return f"{self.method} {self.target} {action}".strip()


class Server(NamedTuple):
    """Where to ask. key: of a server that needs one. tls: of one that speaks it."""

    port: int
    key: str | None = None
    tls: ssl.SSLContext | None = None

    @contextmanager
    def connected(self) -> Iterator[socket.socket]:
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        connected = plain if self.tls is None else self.tls.wrap_socket(plain)
        try:
            # Whatever is refused may be refused before it is sent.
            with suppress(OSError):
                yield connected
        finally:
            with suppress(OSError):
                connected.close()

    def head(self, asked: Asked, *more: str, key: str | None = None) -> bytes:
        lines = [f"{asked.method} {asked.target} HTTP/1.1", f"Host: localhost:{self.port}"]
        lines += [f"{name}: {value}" for name, value in asked.headers.items()]
        if given := key or self.key:
            lines += [f"Authorization: Bearer {given}", f"X-BV-API-Key: {given}"]
        return "\r\n".join([*lines, *more, "", ""]).encode()


def with_bodies(served: Mapping[str, Any]) -> list[Asked]:
    """All requests that take a body: those of a server's document, and of dialects beside it."""
    found = []
    for path, methods in served["paths"].items():
        for method, operation in methods.items():
            if "requestBody" in operation:
                kinds = operation["requestBody"]["content"]
                kind = JSON if JSON in kinds else "application/octet-stream"
                found.append(Asked(method.upper(), path.format(**_NAMES), {"Content-Type": kind}))
    form = "application/x-www-form-urlencoded"
    browser = {"Origin": "http://localhost", "Content-Type": form}
    multipart = "multipart/form-data; boundary=b"
    amazon = {"Content-Type": "application/x-amz-json-1.0"}
    return [
        *found,
        Asked("POST", "/", amazon | {"X-Amz-Target": "AmazonSQS.SendMessage"}),
        Asked("POST", "/", {"Content-Type": form}),
        Asked("POST", "/?Action=Publish&Version=2010-03-31", {"Content-Type": form}),
        Asked("POST", "/000000000000/q", {"Content-Type": form}),
        Asked("POST", "/_ui/login", browser),
        Asked("POST", "/_ui/q/q", browser),
        Asked("POST", "/_ui/q/q", browser | {"Content-Type": multipart}),
    ]


# With messages of some megabytes in each of these queues, and in the log.
WITH_ANSWERS = [
    Asked("GET", "/q/messages?visibility=0", {}, True),
    Asked("GET", "/q/messages?visibility=0", {"X-Other": "not for the fast path"}, True),
    Asked("GET", "/q/messages?visibility=0&json=true", {}, True),
    Asked("GET", "/q/messages?visibility=0&count=2", {}, True),
    Asked("GET", "/q/peek?count=2", {}, True),
    Asked("GET", "/queue/1/e/peek?limit=2", {}, True),
    Asked("GET", "/queue/1/e/poll?limit=2&ttl=0", {}, True),
    Asked("GET", "/_logs/l/messages?from=first&count=2", {}, True),
]


def _all(server: Server, asked: Asked, head: bytes, body: bytes = b"") -> None:
    """Send all of a request, and take the answer."""
    with server.connected() as wire:
        with suppress(OSError):
            wire.sendall(head + body)
        while wire.recv(MIB):
            pass


def _announced(server: Server, asked: Asked, size: int = BODY_BYTES) -> bytes:
    return server.head(asked, f"Content-Length: {size}", "Connection: close")


def _chunked(server: Server, asked: Asked) -> bytes:
    return server.head(asked, "Transfer-Encoding: chunked", "Connection: close")


def _reset(wire: socket.socket) -> None:
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


BODY = b'["' + b"z" * (BODY_BYTES - 4) + b'"]'
NOISE = random.Random(1).randbytes(BODY_BYTES)


# -- ends of requests with bodies ------------------------------------------------------------------


def hang_up(server: Server, asked: Asked) -> None:
    with server.connected() as wire:
        wire.sendall(_announced(server, asked) + BODY[:-1000])


def reset(server: Server, asked: Asked) -> None:
    with server.connected() as wire:
        wire.sendall(_announced(server, asked) + BODY[:-1000])
        _reset(wire)


def send_half(server: Server, asked: Asked) -> None:
    """End the sending, and wait for an answer."""
    with server.connected() as wire:
        wire.sendall(_announced(server, asked) + BODY[:-1000])
        wire.shutdown(socket.SHUT_WR)
        while wire.recv(MIB):
            pass


def hang_up_in_a_chunk(server: Server, asked: Asked) -> None:
    with server.connected() as wire:
        wire.sendall(_chunked(server, asked) + _chunk(BODY)[:-1000])


def hang_up_between_chunks(server: Server, asked: Asked) -> None:
    with server.connected() as wire:
        wire.sendall(_chunked(server, asked) + _chunk(BODY))


def break_a_chunk(server: Server, asked: Asked) -> None:
    _all(server, asked, _chunked(server, asked), _chunk(BODY) + b"no number\r\n")


def say_nothing_in_chunks(server: Server, asked: Asked) -> None:
    """An extension without an end."""
    _all(server, asked, _chunked(server, asked), _chunk(BODY) + b"1;" + b"a" * MIB)


def say_nothing_behind_chunks(server: Server, asked: Asked) -> None:
    fields = b"".join(b"X-%d: %b\r\n" % (n, b"a" * 50_000) for n in range(20))
    _all(server, asked, _chunked(server, asked), _chunk(BODY) + b"0\r\n" + fields + b"\r\n")


def hang_up_before_the_answer(server: Server, asked: Asked) -> None:
    with server.connected() as wire:
        wire.sendall(_announced(server, asked) + BODY)


def send_what_is_no_json(server: Server, asked: Asked) -> None:
    _all(server, asked, _announced(server, asked), b"[" + BODY[1:-1] + b"}")


def send_too_much(server: Server, asked: Asked) -> None:
    with server.connected() as wire:
        wire.sendall(_announced(server, asked, 64 * MIB) + BODY)
        wire.recv(MIB)


def send_too_many_chunks(server: Server, asked: Asked) -> None:
    with server.connected() as wire:
        wire.sendall(_chunked(server, asked))
        for _ in range(9):
            wire.sendall(_chunk(BODY))
        wire.recv(MIB)


def send_an_unknown_parameter(server: Server, asked: Asked) -> None:
    sign = "&" if "?" in asked.target else "?"
    asked = asked._replace(target=f"{asked.target}{sign}zzz=1")
    _all(server, asked, _announced(server, asked), BODY)


def send_an_unknown_key(server: Server, asked: Asked) -> None:
    head = server.head(asked, f"Content-Length: {BODY_BYTES}", "Connection: close", key="none")
    _all(server, asked, head, BODY)


@cache
def _packed() -> bytes:
    return gzip.compress(NOISE, 1)


@cache
def _bomb() -> bytes:
    return zlib.compress(bytes(65 * MIB), 1)


def send_a_broken_pack(server: Server, asked: Asked) -> None:
    packed = _packed()
    size = f"Content-Length: {len(packed)}"
    head = server.head(asked, size, "Content-Encoding: gzip", "Connection: close")
    _all(server, asked, head, packed[:-100] + bytes(100))


def hang_up_in_a_pack(server: Server, asked: Asked) -> None:
    packed = _packed()
    size = f"Content-Length: {len(packed)}"
    with server.connected() as wire:
        wire.sendall(server.head(asked, size, "Content-Encoding: gzip") + packed[:-1000])


def send_a_bomb(server: Server, asked: Asked) -> None:
    packed = _bomb()
    size = f"Content-Length: {len(packed)}"
    head = server.head(asked, size, "Content-Encoding: deflate", "Connection: close")
    _all(server, asked, head, packed)


def send_an_unknown_pack(server: Server, asked: Asked) -> None:
    size = f"Content-Length: {BODY_BYTES}"
    _all(server, asked, server.head(asked, size, "Content-Encoding: br", "Connection: close"), BODY)


def expect_and_hang_up(server: Server, asked: Asked) -> None:
    with server.connected() as wire:
        wire.sendall(server.head(asked, f"Content-Length: {BODY_BYTES}", "Expect: 100-continue"))
        if wire.recv(100).startswith(b"HTTP/1.1 100"):
            wire.sendall(BODY[:-1000])


def hang_up_behind_one_that_waits(server: Server, asked: Asked) -> None:
    """With so much that the server reads no more of it."""
    first = server.head(Asked("GET", "/empty/messages?wait=20", {}))
    with server.connected() as wire:
        wire.sendall(first + server.head(asked, f"Content-Length: {BODY_BYTES}") + BODY[:200_000])


def send_more_than_fits_behind_one_that_waits(server: Server, asked: Asked) -> None:
    """What the kernel has no place for hides the end: it is seen when the wait is over."""
    first = server.head(Asked("GET", "/empty/messages?wait=0.2", {}))
    with server.connected() as wire:
        wire.sendall(first + server.head(asked, f"Content-Length: {BODY_BYTES}") + BODY[:-1000])


WITH_BODIES: tuple[Callable[[Server, Asked], None], ...] = (
    hang_up,
    reset,
    send_half,
    hang_up_in_a_chunk,
    hang_up_between_chunks,
    break_a_chunk,
    say_nothing_in_chunks,
    say_nothing_behind_chunks,
    hang_up_before_the_answer,
    send_what_is_no_json,
    send_too_much,
    send_too_many_chunks,
    send_an_unknown_parameter,
    send_an_unknown_key,
    send_a_broken_pack,
    hang_up_in_a_pack,
    send_a_bomb,
    send_an_unknown_pack,
    expect_and_hang_up,
    hang_up_behind_one_that_waits,
    send_more_than_fits_behind_one_that_waits,
)


# -- ends of answers with bodies -------------------------------------------------------------------


def _beginning(server: Server, asked: Asked, wire: socket.socket) -> None:
    wire.sendall(server.head(asked))
    wire.recv(20)


def hang_up_in_the_answer(server: Server, asked: Asked) -> None:
    with server.connected() as wire:
        _beginning(server, asked, wire)


def reset_in_the_answer(server: Server, asked: Asked) -> None:
    with server.connected() as wire:
        _beginning(server, asked, wire)
        _reset(wire)


def end_sending_in_the_answer(server: Server, asked: Asked) -> None:
    with server.connected() as wire:
        _beginning(server, asked, wire)
        wire.shutdown(socket.SHUT_WR)


def hang_up_behind_the_next_one(server: Server, asked: Asked) -> None:
    with server.connected() as wire:
        wire.sendall(server.head(asked) * 3)
        wire.recv(20)


OF_ANSWERS: tuple[Callable[[Server, Asked], None], ...] = (
    hang_up_in_the_answer,
    reset_in_the_answer,
    end_sending_in_the_answer,
    hang_up_behind_the_next_one,
)


def fill(root: Path) -> None:
    """Give a spool all that those requests ask for."""
    for queue, body in (("q", b"\x01" * 8 * MIB), ("e", b'"' + b"x" * 8 * MIB + b'"')):
        (root / "queues" / queue).mkdir()
        for _ in range(4):
            Stored(body).place(root / "queues" / queue)
    (root / "queues" / "empty").mkdir()
    (root / "topics" / "t").mkdir()
    with Spool(root, delivers=False) as spool:
        log = spool.log("l")
        log.create()
        log.publish_many([LogEntry(b"\x01" * 8 * MIB)] * 2)
        log.channel("c").create(from_="first")
