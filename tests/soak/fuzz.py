"""Fuzzing over sockets: thousands of nearly valid requests to a real suite.

    python -m tests.soak.fuzz --requests 200000

Requests are generated from the server's OpenAPI document, with valid and with hostile names,
parameters, headers and bodies. Half of all connections end with a request whose bytes were changed,
dropped, doubled or mixed with those of another. Some bodies are large, some requests have no key or
one without rights, and one connection in five is closed by its client: in its request, behind it,
or in the answer. One request in twenty uses TLS. The run fails after a status 500, a hang, an error
in a log, a change outside the root, a finding of fsck, or if memory or descriptors of mq grow.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import random
import re
import socket
import ssl
import struct
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from fsmq.spool.fsck import check
from tests.harness import certificates
from tests.harness.suite import Suite, eventually
from tests.http.keyfile import add_key, bearer
from tests.http.test_limits import memory

# Short, because the fuzzer sends many incomplete requests.
OPTIONS = ("--header-timeout=0.5", "--read-timeout=0.5", "--idle-timeout=1", "--sync=none")
_CONNECTIONS = 64
_HANG_S = 30.0
# More growth in the second half is a leak: the remaining messages take a few megabytes.
_MOST_MIB = 48.0
_MOST_DESCRIPTORS = 16  # more than at the start, when all connections are closed
_SECURE_SHARE = 0.05  # of the requests use TLS
# How a client ends its connection, and how often.
_ENDS = {
    "reads all": 80,
    "hangs up within": 5,
    "hangs up behind": 4,
    "hangs up within the answer": 3,
    "resets": 4,
    "sends no more": 4,
}
_LARGE_SHARE = 0.004  # of the requests have large bodies
_STRANGE_SHARE = 0.15  # of the requests have another key
_STATUS = re.compile(rb"HTTP/1\.1 ([0-9]{3}) ")

NAMES = [
    "jobs",
    "jobs",
    "jobs",
    "a",
    "b:c",
    "A.b-c_d:e@f",
    "__x",
    "not-there",
    "x" * 180,
    "..",
    ".",
    "",
    "%2e%2e",
    "%2f",
    "..%2f..%2fetc%2fpasswd",
    "%00",
    "a%00b",
    "%0d%0a",
    "%ff%fe",
    "x" * 181,
    "x" * 4000,
    ".hidden",
    "_one",
    "a;b=c",
    "%zz",
    "%",
    "a%2fb",
    "%c3%a4",
    "*",
    "~",
    ":",
    "..%5c..",
    "new",
    "queues",
    "delay",
    "remove",
    "config",
    "peers",
    "%2e%2e%2fnew",
    "messages",
    "_topics",
    "_move",
    "queue",
    "1",
    "%E2%80%AE",
    "a%20b",
    "con",
    "-",
    "@",
    "a%3Ab",
    "%25%32%66",
    "01900000-0000-7000-8000-000000000000",
    "p07.01900000-0000-7000-8000-000000000000.x66666666.h",
    "ffffffff-ffff-7fff-bfff-ffffffffffff",
]
VALUES = [
    "0",
    "1",
    "0.5",  # a delay that is longer than any sync
    "5",
    "30",
    "99",
    "100",
    "1000",
    "-1",
    "1e3",
    "1e400",
    "nan",
    "inf",
    "-0",
    "",
    "true",
    "false",
    "TRUE",
    "null",
    "x",
    "9" * 30,
    "0x10",
    "1_0",
    "%00",
    "%ff",
    "+1",
    "%2B1",
    "new",
    "ready",
    "in_flight",
    "delayed",
    "remove",
    "..%2fnew",
    "jobs",
    "0" * 400 + "1",
    "1.5",
    "\u0661".encode().hex(),
    "%EF%BC%91",
    "1e-400",
    "--1",
    "1,2",
    "a" * 3000,
    "%zz",
    "604800",
    "604801",
]
HEADERS = [
    "Content-Type: application/json",
    "Content-Type: text/plain",
    'Content-Type: a/b; c="\\""',
    "Content-Type: ",
    "Accept: */*",
    "Accept: text/html",
    "X-Message-Attribute-A: b",
    "X-Message-Attribute-: b",
    "X-Message-Attribute-A: ",
    "X-Message-Attribute-..: /",
    "X-Message-Attribute-" + "n" * 200 + ": v",
    "X-Message-Attribute-Long: " + "v" * 7000,
    "Content-Encoding: gzip",
    "Content-Encoding: deflate",
    "Content-Encoding: br, gzip",
    "Expect: 100-continue",
    "Expect: x",
    "Origin: null",
    "Sec-Fetch-Site: none",
    "Range: bytes=0-",
    "X-BV-API-Key: k",
    "Authorization: Bearer x",
    "Authorization: Basic eDp5",
    "If-Match: *",
    "Cookie: a=b",
    "X-Forwarded-For: ::1",
    "X-HTTP-Method-Override: DELETE",
    "Upgrade: h2c",
    "Connection: Upgrade",
    "TE: trailers",
    "Trailer: X",
    "X: \xff\xfe\x80",
]
BODIES: list[bytes] = [
    b"",
    b"hello",
    b"\0" * 100,
    b"\xff\xfe\xfd",
    b"{}",
    b"[]",
    b"null",
    b"3",
    b'"x"',
    b"{",
    b"[" * 9999,
    b'{"ids": ["a", "../new/x", "%2e%2e", ""]}',
    b'{"ids": []}',
    b'{"ids": [1]}',
    b'{"ids": {"a": 1}}',
    b'[{"body": "x"}]',
    b'[{"body": "x", "id": "../../x"}]',
    b'[{"body_base64": "!"}]',
    b"[[]]",
    b'[{"body": "\\ud800"}]',
    b'[{"body": "x", "priority": 1e400}]',
    b'[{"body": "x", "delay": NaN}]',
    b'[{"body": "x", "attributes": {"a": "\\r\\nb: c"}}]',
    b'{"visibility_timeout": -1}',
    b'{"max_deliveries": 2, "dead_letter_queue": "../x"}',
    b'{"max_deliveries": 2, "dead_letter_queue": "jobs.dead"}',
    b'{"max_deliveries": null, "dead_letter_queue": null, "max_depth": null}',
    b'{"retention": 1e308, "max_message_bytes": 99999999999999999999999}',
    b'{"compress": true}',
    b'{"a":' * 5000,
    b'"' + b"\\u0000" * 500 + b'"',
    b"\x1f\x8b\x08\0\0\0\0\0",
    b"x" * 70_000,
    b'{"filter": {"attributes": {"a": ["b"]}}}',
    b'{"from": "jobs", "to": "jobs"}',
]
FRAMINGS = [
    "Content-Length: {n}",
    "Content-Length: {n}",
    "Content-Length: {n}",
    "Content-Length: {n}",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: CHUNKED",
]
WRONG_FRAMINGS = [
    "Content-Length: {n}\r\nTransfer-Encoding: chunked",
    "Content-Length: {n}\r\nContent-Length: 3",
    "Content-Length: +{n}",
    "Content-Length: -1",
    "Content-Length: 9999999999999999999999",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding:\x0bchunked",
    "Content-Length: {n}\n",
    " Content-Length: {n}",
    "Content-Length:\r\n {n}",
    "Content-Length: 9",
]
_MIB = 1024 * 1024
LARGE: list[Callable[[], bytes]] = [
    lambda: b"x" * 3 * _MIB,
    lambda: b"[" + b"{}," * _MIB + b"{}]",
    lambda: b"%41" * _MIB,
    lambda: b'[{"body": "' + b"\\u0001" * (_MIB // 2) + b'"}]',
    lambda: gzip.compress(b"x" * 8 * _MIB),
    lambda: b"a=b&" * (_MIB // 2),
]
ACTIONS = [
    "SendMessage",
    "ReceiveMessage",
    "DeleteMessage",
    "SendMessageBatch",
    "CreateQueue",
    "GetQueueAttributes",
    "SetQueueAttributes",
    "StartMessageMoveTask",
    "ListQueues",
    "Nothing",
]
MEMBERS = ["QueueUrl", "MessageBody", "QueueName", "Entries", "Attributes", "SourceArn", "Id"]


class Generator:
    """Generates requests for the operations of an OpenAPI document.

    key: the key with all rights. others: keys without them.
    """

    def __init__(
        self, document: dict[str, Any], seed: int, key: str = "", others: Sequence[str] = ()
    ) -> None:
        self.random = random.Random(seed)
        self._key = key
        self._others = others
        self._operations = [
            (method.upper(), path, [p["name"] for p in operation.get("parameters", [])])
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        ]

    def connection(self) -> tuple[int, bytes]:
        """The number of requests on one connection, and their bytes."""
        draw = self.random
        count = draw.randint(1, 12)
        parts = [self.request() for _ in range(count)]
        if draw.random() < 0.5:
            parts.append(self.mutated(self.request(wrong=draw.random() < 0.3)))
        else:
            parts.append(b"GET /jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return len(parts), b"".join(parts)

    def request(self, *, wrong: bool = False) -> bytes:
        """A request whose framing is valid (unless ``wrong``); the rest may be invalid."""
        draw = self.random
        if self._key and draw.random() < 0.08:
            return self._sqs_request()
        method, pattern, known = draw.choice(self._operations)
        if draw.random() < 0.03:
            method = draw.choice(
                ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE"]
            )
        path = re.sub(r"\{\w+\}", lambda _: self._name(), pattern)
        if draw.random() < 0.02:
            path += draw.choice(
                ["/", "//", "/..", "/%2e%2e/", "?", "#", ";x=1", "/" + self._name()]
            )
        query = [(name, draw.choice(VALUES)) for name in known if draw.random() < 0.3]
        if draw.random() < 0.05:
            query.append((quote(self._name()), draw.choice(VALUES)))
        if query:
            path += "?" + "&".join(f"{name}={value}" for name, value in query)
        host = "localhost" if draw.random() < 0.995 else "evil.example"
        chosen = draw.sample(HEADERS, draw.choice([0, 0, 0, 1, 1, 2, 4]))
        headers = {line.partition(":")[0]: line for line in chosen}  # most may not occur twice
        if self._key:
            headers.setdefault("Authorization", f"Authorization: Bearer {self._any_key()}")
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *headers.values()]
        # The connection of a client that sends these and does not wait for the answer is lost.
        lines = [line for line in lines if wrong or not line.startswith(("Expect", "Upgrade"))]
        has_body = draw.random() < (0.8 if method in ("POST", "PUT", "PATCH") else 0.05)
        body = self._body() if has_body else b""
        if has_body:
            framing = draw.choice(WRONG_FRAMINGS if wrong else FRAMINGS)
            lines.append(framing.replace("{n}", str(len(body))))
            if "chunked" in framing.lower():
                body = self._chunked(body)
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body

    def _any_key(self) -> str:
        is_strange = self.random.random() < _STRANGE_SHARE
        return self.random.choice(self._others) if is_strange else self._key

    def _sqs_request(self) -> bytes:
        draw = self.random
        action = draw.choice(ACTIONS)
        members = {name: draw.choice([*NAMES, *VALUES, "jobs"]) for name in draw.sample(MEMBERS, 3)}
        scope = f"{self._any_key()}/20260101/us-east-1/{draw.choice(['sqs', 'sns'])}/aws4_request"
        signed = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=\xe4"
        lines = ["POST / HTTP/1.1", "Host: localhost", f"Authorization: {signed}"]
        if draw.random() < 0.5:
            body = json.dumps(members).encode() if draw.random() < 0.8 else self._body()
            lines.append(f"X-Amz-Target: AmazonSQS.{action}")
        else:
            body = urlencode({"Action": action, **members}).encode()
            lines.append("Content-Type: application/x-www-form-urlencoded")
        lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body

    def mutated(self, request: bytes) -> bytes:
        """A request with some of its bytes changed."""
        draw = self.random
        data = bytearray(request)
        for _ in range(draw.choice([1, 1, 2, 3, 8])):
            start = draw.randrange(len(data) + 1)
            end = min(len(data), start + draw.choice([1, 1, 2, 5, 40]))
            match draw.randrange(6):
                case 0:
                    data[start:end] = draw.randbytes(end - start)
                case 1:
                    del data[start:end]
                case 2:
                    data[start:start] = data[start:end] * draw.choice([1, 2, 50])
                case 3:
                    data[start:start] = draw.choice(
                        [b"\r\n", b"\n", b"\r", b"\0", b"\r\n\r\n", b" ", b":"]
                    )
                case 4:
                    data[start:end] = self.request()[: draw.choice([5, 50, 500])]
                case _:
                    data[start:] = b""
            if not data:
                break
        return bytes(data)

    def _name(self) -> str:
        draw = self.random
        if draw.random() < 0.5:
            return draw.choice(("jobs", "jobs", "a", "some"))
        if draw.random() < 0.9:
            return draw.choice(NAMES)
        return quote(draw.randbytes(draw.randint(1, 12)))

    def _body(self) -> bytes:
        draw = self.random
        if self._key and draw.random() < _LARGE_SHARE / 0.4:  # 40 % of the requests have a body
            return draw.choice(LARGE)()
        if draw.random() < 0.8:
            return draw.choice(BODIES)
        return draw.randbytes(draw.choice([1, 10, 300]))

    def _chunked(self, body: bytes) -> bytes:
        draw, parts = self.random, []
        while body:
            size = min(len(body), draw.choice([1, 7, 1000, 100_000]))
            if len(parts) > 20:
                size = len(body)
            extension = b";a=b" if draw.random() < 0.05 else b""
            parts.append(b"%x%s\r\n%s\r\n" % (size, extension, body[:size]))
            body = body[size:]
        return b"".join([*parts, b"0\r\n\r\n"])


class Fuzzer:
    """Sends requests until a number of them is answered. An invalid one ends its connection."""

    def __init__(
        self, suite: Suite, seed: int, trusted: ssl.SSLContext | None, keys: Sequence[str]
    ) -> None:
        self.answered = 0
        request = urllib.request.Request(f"{suite.url}/_openapi.json", headers=bearer(keys[0]))
        with urllib.request.urlopen(request, context=trusted) as answer:
            self._generator = Generator(json.load(answer), seed, keys[0], keys[1:])
        self._draw = random.Random(seed)
        self._trusted = trusted
        self._port = suite.port
        self.sent = 0
        self.statuses: Counter[int] = Counter()
        self.faults: list[str] = []

    async def run(self, requests: int) -> None:
        async def work() -> None:
            while self.answered < requests and not self.faults:
                count, data = self._generator.connection()
                self.sent += count
                await self._send(data)

        await asyncio.gather(*(work() for _ in range(_CONNECTIONS)))

    async def _send(self, data: bytes) -> None:
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(_HANG_S):
                await self._exchange(data, parts)
        except TimeoutError:
            self.faults.append(
                f"no end within {_HANG_S:g} s: {data!r}; answered: {b''.join(parts)[-2000:]!r}"
            )
            return
        for status in _STATUS.findall(b"".join(parts)):
            self.statuses[int(status)] += 1
            self.answered += 1
            if status == b"500":
                self.faults.append(f"500 among the answers to {data!r}"[:20_000])

    async def _exchange(self, data: bytes, parts: list[bytes]) -> None:
        """Send the data and end the connection in a random way. parts: receives the answers."""
        [end] = self._draw.choices(list(_ENDS), list(_ENDS.values()))
        if end in ("hangs up within", "resets"):
            data = data[: self._draw.randrange(len(data) + 1)]
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", self._port, ssl=self._trusted
            )
        except ConnectionError:
            return  # a slow handshake is cut off, like a slow head
        writing = asyncio.ensure_future(_write(writer, data, is_all=end == "sends no more"))
        try:
            if end in ("hangs up within", "hangs up behind", "resets"):
                await writing
                return
            most = 1 if end == "hangs up within the answer" else sys.maxsize
            await _read(reader, most, parts)
        finally:
            writing.cancel()
            own: socket.socket | None = writer.get_extra_info("socket")
            if end == "resets" and own is not None and own.fileno() >= 0:
                own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            writer.close()


async def _write(writer: asyncio.StreamWriter, data: bytes, *, is_all: bool) -> None:
    try:
        writer.write(data)
        await writer.drain()
        if is_all and writer.can_write_eof():
            writer.write_eof()
    except OSError:
        pass  # the server has closed the connection


async def _read(reader: asyncio.StreamReader, most: int, parts: list[bytes]) -> None:
    """Read up to ``most`` parts."""
    try:
        while len(parts) < most and (part := await reader.read(65536)):
            parts.append(part)
    except OSError:
        pass


def fuzz(
    folder: Path,
    requests: int,
    seed: int,
    log: Callable[[str], None] = print,
    *,
    tls: bool = False,
) -> list[str]:
    """Fuzz a suite below ``folder``; the faults."""
    root = folder / "mq"
    options, trusted = OPTIONS, None
    if tls:
        certificate, key = certificates.make(folder, "live")
        options = (*options, f"--tls-cert={certificate}", f"--tls-key={key}")
        trusted = ssl.create_default_context(cafile=certificate)
    file = folder / "keys.toml"
    # All rights, rights on names that do not exist, an unknown key, no key.
    keys = [
        add_key(file, "all", *_rights("*")),
        add_key(file, "one", *_rights("z*")),
        "fsmq_" + "x" * 52,
        "",
    ]
    options = (*options, f"--keys={file}")
    others = _neighbours(folder)
    with Suite(root, mq_options=options) as suite:
        for queue in ("jobs", "a"):
            (root / "queues" / queue).mkdir()
        at_first = _descriptors(suite)
        fuzzer = Fuzzer(suite, seed, trusted, keys)
        asyncio.run(fuzzer.run(min(requests, 2000)))  # fills caches
        before, started = _memory(suite), time.monotonic()
        asyncio.run(fuzzer.run(requests // 2))
        halfway = _memory(suite)
        asyncio.run(fuzzer.run(requests))
        took = time.monotonic() - started
        faults = fuzzer.faults + _no_answer(suite, trusted)
        after = _memory(suite)
        if after - halfway > _MOST_MIB:
            faults.append(f"the memory of mq grew by {after - halfway:.1f} MiB in the second half")
        try:
            eventually(lambda: _descriptors(suite) <= at_first + _MOST_DESCRIPTORS)
        except AssertionError:
            faults.append(f"mq has {_descriptors(suite)} descriptors open, at first {at_first}")
        log(
            f"{fuzzer.answered} requests answered of {fuzzer.sent} sent{' over TLS' if tls else ''}"
            f" (seed {seed}, {took:.0f} s), by status: {dict(sorted(fuzzer.statuses.items()))};"
            f" memory of mq {before:.1f} MiB before, {halfway:.1f} halfway, {after:.1f} after;"
            f" descriptors {at_first} before, {_descriptors(suite)} after"
        )
        for program in ("mq", "mover", "reaper"):
            if not suite[program].is_running():
                faults.append(f"{program} has ended")
            for event in suite.logs(program):
                if event.get("level") not in ("info", "debug", "warning"):
                    faults.append(f"{program} logged {event}"[:2000])
    report = check(root, offline=True)
    faults += [f"fsck: {finding}" for finding in report.findings][:20]
    if others != _neighbours(folder):
        faults.append("something outside the root was touched")
    return faults


def _rights(pattern: str) -> list[str]:
    return [
        f"--{right}={prefix}{pattern}"
        for right in ("send", "receive", "look", "admin")
        for prefix in ("", "topics/", "logs/", "logs/*/")
    ]


def _no_answer(suite: Suite, trusted: ssl.SSLContext | None) -> list[str]:
    """A fault if the server does not answer any more."""
    try:
        urllib.request.urlopen(
            f"{suite.url}/_health/live", timeout=_HANG_S, context=trusted
        ).close()
    except OSError as error:
        return [f"after all of them GET /_health/live is not answered: {error}"]
    return []


def _neighbours(folder: Path) -> dict[str, tuple[float, bytes]]:
    """The files beside the root, which are created by the first call."""
    place = folder / "neighbour"
    if not place.exists():
        (place / "new").mkdir(parents=True)
        for name in ("x", "passwd", "new/x", "new/jobs:x"):
            (place / name).write_bytes(b"not yours")
    return {
        str(path): (path.stat().st_mtime, path.read_bytes() if path.is_file() else b"")
        for path in [place, *sorted(place.rglob("*")), *sorted(folder.iterdir())]
        if path.name not in ("mq", "mq-logs")
    }


def _descriptors(suite: Suite) -> int:
    """How many mq has open, without those of logs, some of which it keeps open."""
    opened = Path(f"/proc/{suite['mq'].pid}/fd").iterdir()
    return sum("/logs/" not in _target(link) for link in opened)


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except FileNotFoundError:
        return ""


def _memory(suite: Suite) -> float:
    return memory(suite) / _MIB


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz a real suite over sockets.")
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=None, help="default: random")
    options = parser.parse_args()
    seed = random.randrange(2**32) if options.seed is None else options.seed
    secure = round(options.requests * _SECURE_SHARE) if certificates.HAS_OPENSSL else 0
    if not secure:
        print("openssl is missing: no request uses TLS")
    faults = []
    for tls, requests in ((True, secure), (False, options.requests - secure)):
        with tempfile.TemporaryDirectory() as folder:
            faults += fuzz(Path(folder), requests, seed, tls=tls) if requests else []
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
