"""A server with all dialects and pages on the loop of a test, and its routes."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fsmq.http.dialects import DIALECTS
from fsmq.http.fast_path.fast_path import FastPath
from fsmq.http.fast_path.request import Request
from fsmq.http.guard.access import Access
from fsmq.http.guard.keys import load
from fsmq.http.routing.router import Router
from fsmq.http.server import Server
from fsmq.http.service.service import Service
from fsmq.http.sqs.dialect import Sqs
from fsmq.http.sqs.names import SqsOptions
from fsmq.spool import Spool

# How a request of each action of Amazon's is known, beside its members.
SQS, SNS = "2012-11-05", "2010-03-31"


class Route(NamedTuple):
    """One route. open: it needs no right."""

    dialect: str
    method: str
    pattern: str
    open: bool


class Answer(NamedTuple):
    """An answer. head: the headers that do not vary."""

    status: int
    head: str
    body: bytes


class _Counted(set[Request]):
    """The incomplete requests of a fast path, counted."""

    def __init__(self, served: Served) -> None:
        super().__init__()
        self._served = served

    def add(self, request: Request) -> None:
        self._served._partials += 1
        super().add(request)


class Served:
    """A server with a key file and no timeout for bodies."""

    def __init__(self, spool: Spool, keys: Path, *, sqs_auth: str | None = None) -> None:
        service = Service(spool, access=Access(load(keys)), read_timeout=300.0)
        dialects = [one.load()(service) for one in DIALECTS.values()]
        if sqs_auth is not None:
            signed = Sqs(service, SqsOptions(auth=sqs_auth))
            dialects = [signed if isinstance(one, Sqs) else one for one in dialects]
        self.server = Server(service, dialects)
        self._partials = 0
        fast_path: FastPath | None = self.server._fast_path
        while fast_path is not None:
            fast_path._partial = _Counted(self)
            fast_path = fast_path.beside
        self._socket = socket.create_server(("127.0.0.1", 0))

    async def __aenter__(self) -> Served:
        self._port = self._socket.getsockname()[1]
        await self.server.start([self._socket])
        return self

    async def __aexit__(self, *of: object) -> None:
        await self.server.stop(1.0)

    @property
    def has_waited(self) -> bool:
        """Whether the fast path of any dialect has waited for a body."""
        return self._partials > 0

    def routes(self) -> Iterator[Route]:
        """Every route of every dialect but Amazon's, which have one path."""
        for dialect in (self.server._native, *self.server._others):
            router: Router = dialect.router
            for method, pattern, operation, _ in router.routes():
                yield Route(dialect.name, method, pattern, operation.open)

    def actions(self) -> Iterator[tuple[str, str]]:
        """Service and name of every action of Amazon's."""
        for dialect in self.server._others:
            if isinstance(dialect, Sqs):
                for is_sns, name in dialect._operations:
                    yield (SNS if is_sns else SQS), name

    async def ask(self, head: str, body: bytes = b"") -> Answer:
        """Send a head, to which the end is added, and a body on a new connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(f"{head}Host: 127.0.0.1\r\nConnection: close\r\n\r\n".encode() + body)
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            kept = "\n".join(line for line in lines if line and not line.startswith("Date:"))
            length = re.search(r"(?m)^Content-Length: (\d+)$", kept)
            if head.startswith("HEAD "):
                answer = b""
            elif length is not None:
                answer = await reader.readexactly(int(length[1]))
            else:
                answer = await reader.read()  # to its end, after which the server closes
            return Answer(int(first.split()[1]), kept, answer)
        finally:
            writer.close()
