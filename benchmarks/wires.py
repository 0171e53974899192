"""What beanstalkd, NATS JetStream and RabbitMQ are asked, on the wire: a put, and a whole life.

A round is a generator: it yields a request with what tells whether bytes are a whole answer to it
(None: there is no answer), and is sent the answer.
"""

from __future__ import annotations

import json
import re
import socket
import struct
from collections.abc import Callable, Generator, Iterator
from typing import Any, Protocol

IsWhole = Callable[[bytes], bool]
Round = Generator[tuple[bytes, IsWhole | None], bytes, None]
_PIECE = 1 << 16


class Wire(Protocol):
    """One connection."""

    link: socket.socket

    def prepare(self) -> None:
        """Make the queue, if it needs that."""

    def read(self) -> bytes:
        """What has come. RuntimeError if the server has closed the connection."""

    def put(self) -> Round:
        """Put a durable message."""

    def life(self) -> Round:
        """Put one, take one, and acknowledge it."""

    def held(self) -> int:
        """How many messages the server has."""


class _Wire:
    def __init__(self, port: int, body: bytes) -> None:
        self.body = body
        self.link = socket.create_connection(("127.0.0.1", port))
        self.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def prepare(self) -> None:
        pass

    def read(self) -> bytes:
        data = self.link.recv(_PIECE)
        if not data:
            raise RuntimeError("the server has closed a connection")
        return data

    def ask(self, request: bytes, is_whole: IsWhole) -> bytes:
        self.link.sendall(request)
        answer = b""
        while not is_whole(answer):
            answer += self.read()
        return answer


def _expect(is_right: bool, answer: bytes) -> None:
    if not is_right:
        raise RuntimeError(f"refused: {answer[:200]!r}")


class Beanstalkd(_Wire):
    """Each job may be taken for a minute."""

    def put(self) -> Round:
        command = b"put 1024 0 60 %d\r\n%b\r\n" % (len(self.body), self.body)
        answer = yield command, lambda heard: heard.endswith(b"\r\n")
        _expect(answer.startswith(b"INSERTED "), answer)

    def life(self) -> Round:
        yield from self.put()
        answer = yield b"reserve\r\n", self._is_whole
        _expect(answer.startswith(b"RESERVED ") and self.body in answer, answer)
        answer = yield b"delete %b\r\n" % answer.split()[1], lambda heard: heard.endswith(b"\r\n")
        _expect(answer == b"DELETED\r\n", answer)

    def held(self) -> int:
        told = self.ask(b"stats-tube default\r\n", self._is_whole)
        return sum(int(n) for n in re.findall(rb"current-jobs-(?:ready|reserved): (\d+)", told))

    @staticmethod
    def _is_whole(heard: bytes) -> bool:
        """Of an answer whose first line ends with the length of what follows."""
        head, end, rest = heard.partition(b"\r\n")
        return bool(end) and len(rest) == int(head.split()[-1]) + 2


class Nats(_Wire):
    """A stream that is a work queue, with one durable consumer that all connections share."""

    def __init__(self, port: int, body: bytes) -> None:
        super().__init__(port, body)
        self.inbox = b"_INBOX.%d" % self.link.fileno()
        while not self.read().endswith(b"\r\n"):  # its INFO
            pass
        connect = b'CONNECT {"verbose":false}\r\nSUB %b 1\r\nPING\r\n' % self.inbox
        self.ask(connect, lambda heard: heard.endswith(b"PONG\r\n"))

    def read(self) -> bytes:
        """What has come; a PING, which the server sends whenever it likes, is answered here."""
        data = super().read()
        if b"PING\r\n" in data:
            self.link.sendall(b"PONG\r\n")
        return data.replace(b"PING\r\n", b"")

    def prepare(self) -> None:
        stream = {"name": "bench", "subjects": ["jobs"], "retention": "workqueue"}
        self._api("STREAM.CREATE.bench", {**stream, "storage": "file"})
        consumer = {"durable_name": "all", "ack_policy": "explicit", "ack_wait": 60_000_000_000}
        asked = {"stream_name": "bench", "config": consumer}
        self._api("CONSUMER.DURABLE.CREATE.bench.all", asked)

    def put(self) -> Round:
        answer = yield self._publish(b"jobs", self.body), self._is_whole
        _expect(b'"seq":' in answer, answer)

    def life(self) -> Round:
        yield from self.put()
        wanted = b'{"batch":1,"expires":30000000000}'
        answer = yield self._publish(b"$JS.API.CONSUMER.MSG.NEXT.bench.all", wanted), self._is_whole
        _expect(answer.startswith(b"MSG jobs ") and self.body in answer, answer)
        # With a place for an answer, which comes when the acknowledgement is processed.
        yield self._publish(answer.split(None, 4)[3], b"+ACK"), self._is_whole

    def held(self) -> int:
        return int(self._api("STREAM.INFO.bench", {})["state"]["messages"])

    def _api(self, verb: str, asked: dict[str, Any]) -> dict[str, Any]:
        request = self._publish(b"$JS.API." + verb.encode(), json.dumps(asked).encode())
        answer = self.ask(request, self._is_whole)
        told: dict[str, Any] = json.loads(answer.partition(b"\r\n")[2])
        _expect("error" not in told, answer)
        return told

    def _publish(self, subject: bytes, body: bytes) -> bytes:
        return b"PUB %b %b %d\r\n%b\r\n" % (subject, self.inbox, len(body), body)

    @staticmethod
    def _is_whole(heard: bytes) -> bool:
        head, end, rest = heard.partition(b"\r\n")
        _expect(not end or head.startswith(b"MSG "), heard)
        return bool(end) and len(rest) >= int(head.split()[-1]) + 2


class RabbitMQ(_Wire):
    """AMQP 0-9-1: a quorum queue with confirms of publishes; acknowledgements have no answer."""

    _QUEUE = b"\0\0\5bench"
    _METHOD, _HEADER, _BODY = 1, 2, 3
    _FRAME = 1 << 16

    def __init__(self, port: int, body: bytes) -> None:
        super().__init__(port, body)
        self.ask(b"AMQP\0\0\x09\1", self._is_whole)
        login = b"\5PLAIN" + struct.pack(">I", 12) + b"\0guest\0guest" + b"\5en_US"
        self.ask(self._method(10, 11, bytes(4) + login, channel=0), self._is_whole)
        tuned = self._method(10, 31, struct.pack(">HIH", 1, 2 * self._FRAME, 0), channel=0)
        self.ask(tuned + self._method(10, 40, b"\1/\0\0", channel=0), self._is_whole)
        self.ask(self._method(20, 10, b"\0"), self._is_whole)
        self.ask(self._method(85, 10, b"\0"), self._is_whole)  # confirm what is published
        header = struct.pack(">HHQHB", 60, 0, len(body), 0x1000, 2)  # persistent
        self.message = self._method(60, 40, b"\0\0\0\5bench\0") + self._frame(self._HEADER, header)
        for start in range(0, len(body), self._FRAME):
            self.message += self._frame(self._BODY, body[start : start + self._FRAME])

    def prepare(self) -> None:
        kind = b"\x0cx-queue-typeS" + struct.pack(">I", 6) + b"quorum"
        durable = b"\2" + struct.pack(">I", len(kind)) + kind
        answer = self.ask(self._method(50, 10, self._QUEUE + durable), self._is_whole)
        _expect(self._is_method(answer, 50, 11), answer)

    def put(self) -> Round:
        answer = yield self.message, self._is_whole
        _expect(self._is_method(answer, 60, 80), answer)

    def life(self) -> Round:
        yield from self.put()
        answer = yield self._method(60, 70, self._QUEUE + b"\0"), self._is_whole
        _expect(self._is_method(answer, 60, 71), answer)
        tag = next(self._frames(answer))[1][4:12]
        yield self._method(60, 80, tag + b"\0"), None

    def held(self) -> int:
        passive = b"\1" + bytes(4)
        answer = self.ask(self._method(50, 10, self._QUEUE + passive), self._is_whole)
        _expect(self._is_method(answer, 50, 11), answer)
        count: int = struct.unpack_from(">I", answer, 7 + 4 + 6)[0]
        return count

    @staticmethod
    def _frame(kind: int, payload: bytes, channel: int = 1) -> bytes:
        return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"

    @classmethod
    def _method(cls, group: int, number: int, arguments: bytes, channel: int = 1) -> bytes:
        return cls._frame(cls._METHOD, struct.pack(">HH", group, number) + arguments, channel)

    @staticmethod
    def _frames(heard: bytes) -> Iterator[tuple[int, bytes]]:
        """Kind and payload of those that are whole."""
        at = 0
        while len(heard) >= at + 8:
            kind, _, size = struct.unpack_from(">BHI", heard, at)
            if len(heard) >= at + 8 + size:
                yield kind, heard[at + 7 : at + 7 + size]
            at += 8 + size

    @staticmethod
    def _is_method(answer: bytes, group: int, number: int) -> bool:
        return answer[7:11] == struct.pack(">HH", group, number)

    @classmethod
    def _is_whole(cls, heard: bytes) -> bool:
        frames = list(cls._frames(heard))
        if not frames or not cls._is_method(heard, 60, 71):
            return bool(frames)
        # A message: its header has the length of the body, which comes in frames of its own.
        if len(frames) < 2:
            return False
        size: int = struct.unpack_from(">Q", frames[1][1], 4)[0]
        return sum(len(payload) for _, payload in frames[2:]) == size


WIRES: dict[str, Callable[[int, bytes], Wire]] = {
    "beanstalkd": Beanstalkd,
    "nats": Nats,
    "rabbitmq": RabbitMQ,
}
