"""Ways to end a request badly, and requests with large bodies or large answers.

Used by tests/http/test_bad_ends.py and tests/soak/memory.py.
"""

from __future__ import annotations

import gzip
import random
import select
import socket
import ssl
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fsmq.spool.log.log import LogEntry
from fsmq.spool.spool import Spool
from fsmq.spool.verbs.dedup import read_side, write_side
from tests.http.stock import Stored

MIB = 1024 * 1024
# More than aiohttp and the kernel buffer, but quick to send.
BODY_BYTES = 2 * MIB
# How long a slow client waits; the servers of tests wait less.
PATIENCE_MS = 5000
JSON = "application/json"
EVENTS = "application/cloudevents-batch+json"
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
    """A request. is_large: its answer is large."""

    method: str
    target: str
    headers: Mapping[str, str]
    is_large: bool = False

    def __str__(self) -> str:
        action = self.headers.get("X-Amz-Target", "")
        return f"{self.method} {self.target} {action}".strip()


class Server(NamedTuple):
    """Address of a server, with its key and TLS context if it needs them."""

    port: int
    key: str | None = None
    tls: ssl.SSLContext | None = None

    @contextmanager
    def connected(self) -> Iterator[socket.socket]:
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        connected = plain if self.tls is None else self.tls.wrap_socket(plain)
        try:
            # A refusal can come before the body is sent.
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
    """All requests with a body: those of the OpenAPI document, and of the other dialects."""
    found = []
    for path, methods in served["paths"].items():
        for method, operation in methods.items():
            if "requestBody" in operation:
                kinds = operation["requestBody"]["content"]
                kind = JSON if JSON in kinds else "application/octet-stream"
                found.append(Asked(method.upper(), path.format(**_NAMES), {"Content-Type": kind}))
    form = "application/x-www-form-urlencoded"
    browser = {"Sec-Fetch-Site": "same-origin", "Content-Type": form}
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


_PAGE = {"Sec-Fetch-Site": "same-origin"}
_RECEIVE = "Action=ReceiveMessage&MaxNumberOfMessages=10&VisibilityTimeout=0&Version=2012-11-05"
# Every kind of answer that can be large: with messages of some megabytes in each of these queues
# and in the log, many small ones, and many names.
WITH_ANSWERS = [
    Asked("GET", "/q/messages?visibility=0", {}, True),
    Asked("GET", "/q/messages?visibility=0", {"X-Other": "not for the fast path"}, True),
    Asked("GET", "/q/messages?visibility=0", {"Accept": "application/json"}, True),
    Asked("GET", "/q/messages?visibility=0&count=2", {}, True),
    Asked("GET", "/q/messages?visibility=0&count=2", {"Accept": EVENTS}, True),
    Asked("GET", "/_claim?queues=q,e&visibility=0&count=2", {}, True),
    Asked("GET", "/p/peek?count=2", {}, True),
    Asked("GET", "/q/messages/large", {}, True),
    Asked("GET", "/many/messages?visibility=0&count=1000", {}, True),
    Asked("GET", "/shown/peek?count=1000", {}, True),
    Asked("GET", "/queue/1/p/peek?limit=2", {}, True),
    Asked("GET", "/queue/1/e/poll?limit=2&ttl=0", {}, True),
    Asked("GET", "/queue/1/shown/peek?limit=5000", {}, True),
    Asked("GET", "/queue/1/many/poll?limit=1000&ttl=0", {}, True),
    Asked("GET", "/dedupq/1/d/peek?limit=2", {}, True),
    Asked("GET", "/dedupq/1/d/poll?limit=2&ttl=0", {}, True),
    Asked("GET", "/queues/e/message/large", {}, True),
    Asked("GET", f"/000000000000/s?{_RECEIVE}", {}, True),
    Asked("GET", "/_logs/l/messages?from=first&count=2", {}, True),
    Asked("GET", "/_logs/l/channels/c/messages?count=2&visibility=0", {}, True),
    Asked("GET", "/", {}, True),
    Asked("GET", "/queues", {}, True),
    Asked("GET", "/_topics/wide", {}, True),
    Asked("GET", "/_metrics", {}, True),
    Asked("GET", "/_openapi.json", {}, True),
    Asked("GET", "/_ui/queues", _PAGE, True),
    Asked("GET", "/_ui/queues", _PAGE | {"Accept": "text/event-stream"}),
    Asked("GET", "/_ui/q/q/m/large", _PAGE),
    Asked("GET", "/_ui/q/q/m/large/body", _PAGE, True),
]


def _all(server: Server, asked: Asked, head: bytes, body: bytes = b"") -> None:
    """Send a whole request and read the answer."""
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
    """Half-close the connection and wait for an answer."""
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
    """A chunk extension without an end."""
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
    """Send more behind it than the server reads ahead."""
    first = server.head(Asked("GET", "/empty/messages?wait=20", {}))
    with server.connected() as wire:
        wire.sendall(first + server.head(asked, f"Content-Length: {BODY_BYTES}") + BODY[:200_000])


def send_more_than_fits_behind_one_that_waits(server: Server, asked: Asked) -> None:
    """The end is behind bytes that the kernel cannot hold: it is seen after the wait."""
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


def read_half(server: Server, asked: Asked) -> None:
    """Read more than the kernel buffers, so that the server is in the middle of writing."""
    with server.connected() as wire:
        wire.sendall(server.head(asked, "Connection: close"))
        taken = 0
        while taken < 4 * MIB and (some := wire.recv(MIB)):
            taken += len(some)
            if not asked.is_large:  # a stream has no end
                break


def read_nothing(server: Server, asked: Asked) -> None:
    """Until the server gives up or has sent everything."""
    with server.connected() as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.sendall(server.head(asked, "Connection: close"))
        ended = select.poll()
        ended.register(wire, select.POLLRDHUP)
        ended.poll(PATIENCE_MS)


def read_slowly(server: Server, asked: Asked) -> None:
    """Read more slowly than the server demands."""
    with server.connected() as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.sendall(server.head(asked, "Connection: close"))
        end = time.monotonic() + PATIENCE_MS / 1000
        while wire.recv(1000) and time.monotonic() < end:
            time.sleep(0.05)


def hang_up_many_at_once(server: Server, asked: Asked) -> None:
    """All answers have begun before the first client hangs up."""
    with ExitStack() as stack:
        wires = [stack.enter_context(server.connected()) for _ in range(12)]
        for wire in wires:
            wire.sendall(server.head(asked))
        for wire in wires:
            wire.recv(20)


OF_ANSWERS: tuple[Callable[[Server, Asked], None], ...] = (
    hang_up_in_the_answer,
    reset_in_the_answer,
    end_sending_in_the_answer,
    hang_up_behind_the_next_one,
    read_half,
    hang_up_many_at_once,
)
# These take seconds each.
OF_SLOW_ANSWERS: tuple[Callable[[Server, Asked], None], ...] = (read_nothing, read_slowly)


def give_back(root: Path) -> None:
    """Put claimed messages back into their queues: no mover runs here."""
    for path in (root / "delay").iterdir():
        queue, _, name = path.name.partition(":")
        with suppress(OSError):  # another one does the same
            path.rename(root / "queues" / queue / name)


def answered(server: Server, asked: Asked) -> tuple[int, int]:
    """The status and the size of the answer, unless it is a stream."""
    with server.connected() as wire:
        wire.sendall(server.head(asked, "Connection: close"))
        first = wire.recv(MIB)
        size = len(first)
        while asked.is_large and (some := wire.recv(MIB)):
            size += len(some)
        return int(first.split()[1]), size
    raise AssertionError("it was cut off")


def fill(root: Path) -> None:
    """Create what the requests ask for."""
    queues = root / "queues"
    text = b'"' + b"x" * 8 * MIB + b'"'
    of_queues = {"q": b"\x01" * 8 * MIB, "e": text, "p": text, read_side("d"): text}
    for queue, body in of_queues.items():
        (queues / queue).mkdir()
        for _ in range(4):
            Stored(body).place(queues / queue)
        (queues / queue / "large").write_bytes(body)
    small = b'"' + b"x" * 500 + b'"'
    for queue, number, body in (
        ("many", 1000, small),
        ("shown", 1000, small),
        ("s", 10, b"x" * 100_000),
    ):
        (queues / queue).mkdir()
        for _ in range(number):
            Stored(body).place(queues / queue)
    (queues / "empty").mkdir()
    (queues / write_side("d")).mkdir()
    for topic, number in (("t", 1), ("wide", 500)):  # a publish to t stores each body once
        (root / "topics" / topic).mkdir()
        for n in range(number):
            name = f"{topic}-{n}-{'x' * 100}"
            (queues / name).mkdir()
            (root / "topics" / topic / name).touch()
    with Spool(root, delivers=False) as spool:
        log = spool.log("l")
        log.create()
        log.publish_many([LogEntry(b"\x01" * 8 * MIB)] * 2)
        log.channel("c").create(from_="first")
