"""mq's server in a thread of this process, for tests that inspect it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from fsmq.daemons.serving import loop_factory
from fsmq.http.dialect import Dialect
from fsmq.http.dialects import DIALECTS
from fsmq.http.fast_path.fast_path import FastPath
from fsmq.http.guard.access import Access
from fsmq.http.guard.admission import Admission
from fsmq.http.guard.limits import Limits
from fsmq.http.server import Server
from fsmq.http.service.service import Service
from fsmq.http.sqs.dialect import Sqs
from fsmq.http.sqs.names import SqsOptions
from fsmq.spool.durability.sync import Group, SyncMode
from fsmq.spool.layout.names import new_id
from fsmq.spool.spool import Spool
from tests.harness.suite import PATIENCE_S, eventually
from tests.http.helpers import Answer, Wire

T = TypeVar("T")
_ID = re.compile(r"(?:p[0-9]{2}\.)?[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_CLAIM = re.compile(r"\b(c[0-9]{1,2})-[0-9]{2}\b")
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{12,15}Z")
_EXPIRY = re.compile(r"\.x[0-9a-f]+")
_HANDLE = re.compile(r'(?<="ReceiptHandle":")[^"]+|(?<=Value )\S+(?= for parameter ReceiptHandle)')
_NUMBER = re.compile(r'(?<=Timestamp":")[0-9]{13}|(?<="SequenceNumber":")[0-9]{20}')


class Inside:
    """A spool and its server.

    fast_path: whether plain requests take the fast path. taken: how many requests it has answered.
    """

    def __init__(
        self,
        root: Path,
        *,
        fast_path: bool = True,
        dialects: Sequence[str] = (),
        host_names: Sequence[str] | None = None,
        access: Access | None = None,
        limits: Limits | None = None,
        sync: SyncMode = "none",
        read_timeout: float = 30.0,
        max_message_bytes: int = 16 * 1024 * 1024,
        send_buffer: int | None = None,
        journal: bool = False,
        sqs: SqsOptions | None = None,
        ui: bool = False,
    ) -> None:
        self.root = root
        self.taken = 0
        self._sync: SyncMode = sync
        self._max_message_bytes = max_message_bytes
        self._send_buffer = send_buffer
        self._journal = journal
        self._of_service = {
            "access": access,
            "admission": Admission(limits),
            "read_timeout": read_timeout,
        }
        self._spoken = (*dialects, *(["ui"] if ui else []))
        self._host_names = host_names
        self._fast_path = fast_path
        self._sqs = sqs
        self._started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Inside:
        self._thread.start()
        self._started.result(PATIENCE_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    @property
    def admission(self) -> Admission:
        return self.service.admission

    def until_open(self, number: int) -> None:
        """Wait until so many requests are being answered."""
        eventually(lambda: self.server._open.number == number)

    def holds_nothing(self) -> bool:
        """Whether no request is counted any more, which holds soon after the last answer."""
        of = self.admission
        return not (
            self.server._open.number or of.memory or of._requests or of._waiting or of._memory
        )

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a function on the loop, behind everything that is ready there."""

        async def do() -> T:
            return function(*arguments)

        return asyncio.run_coroutine_threadsafe(do(), self.loop).result(PATIENCE_S)

    def _dialect(self, name: str) -> Dialect:
        if name == Sqs.name:
            return Sqs(self.service, self._sqs)
        return DIALECTS[name].load()(self.service)

    def queue(self, name: str, *, ready: Sequence[bytes] = (), are_kept: bool = True) -> list[str]:
        """Create a queue with ready messages; their ids.

        are_kept: wait until the server has seen them all.
        """
        folder = self.root / "queues" / name
        folder.mkdir(exist_ok=True)
        ids = [new_id() for _ in ready]
        for message_id, body in zip(ids, ready, strict=True):
            (self.root / "tmp").mkdir(exist_ok=True)
            (self.root / "tmp" / message_id).write_bytes(body)
            # The fraction of a time can look like a count of deliveries.
            os.utime(self.root / "tmp" / message_id, (1.7e9, 1.7e9))
            (self.root / "tmp" / message_id).rename(folder / message_id)
        if ids and are_kept:
            self.seen(name, len(ids))
        return ids

    def fill(self, queue: str, bodies: Mapping[str, bytes]) -> None:
        """Put messages with these ids into an empty queue that is in use."""
        for name, body in bodies.items():
            path = self.root / "queues" / queue / name
            path.write_bytes(body)
            os.utime(path, (1.7e9, 1.7e9))
        self.load(queue)
        self.seen(queue, len(bodies))

    def _has_seen(self, queue: str, number: int) -> bool:
        """Whether the index has so many messages, or is not in use."""
        ready = self.spool.context.ready
        return self.call(lambda: ready.refresh() or True) and (
            self.call(ready.is_due, queue) or self.call(ready.count, queue) >= number
        )

    def seen(self, queue: str, number: int) -> None:
        """Wait until the index has so many ready messages."""
        eventually(lambda: self._has_seen(queue, number))

    def load(self, name: str) -> None:
        """Let aiohttp list a queue that was not in use: the fast path does not."""
        asyncio.run_coroutine_threadsafe(self.service.receiver.load(name), self.loop).result()

    @contextmanager
    def held_sync(self) -> Iterator[threading.Event]:
        """Hold every sync up, until the end or until the event is set."""
        gate, run = threading.Event(), self.spool.syncer.run_only
        syncer: Any = self.spool.syncer
        self.begun = threading.Semaphore(0)

        def wait(group: Group) -> None:
            self.begun.release()
            assert gate.wait(PATIENCE_S)
            run(group)

        syncer.run_only = wait
        try:
            yield gate
        finally:
            gate.set()
            syncer.run_only = run

    def delete_while_syncing(self, requests: Sequence[bytes], *later: bytes) -> list[Answer]:
        """Send requests to queue q and delete it during their sync; all answers.

        later: requests that are sent after the deletion.
        """
        with ExitStack() as stack, self.held_sync() as gate:
            wires = [stack.enter_context(Wire(self.url)) for _ in (*requests, *later)]
            for wire, request in zip(wires, requests, strict=False):
                wire.send(request)
            self.until_open(len(requests))
            self.call(lambda: None)  # the server has begun to read the last of them, too
            self.begun.acquire()
            (self.root / "queues" / "q").rename(self.root / "remove" / "q:gone")
            for wire, request in zip(wires[len(requests) :], later, strict=True):
                wire.send(request)
            gate.set()
            return [wire.answer() for wire in wires]

    def talking(self) -> int:
        """How many connections are open for reading."""
        connections = self.server._connections
        return self.call(lambda: sum(not one.has_ended for one in connections.open))

    def steps(self, queue: str) -> list[tuple[str, str]]:
        """The journal's steps of a queue, sorted, each with its dialect."""
        self.spool.context.journal.flush()
        lines = [
            json.loads(line)
            for path in self.root.rglob("*.jsonl")
            for line in path.read_text().splitlines()
        ]
        return sorted((line["event"], line["via"]) for line in lines if line.get("queue") == queue)

    def empty(self) -> None:
        """Remove every message."""
        for path in self._stored():
            os.unlink(path)

    def tree(self) -> list[tuple[str, bytes]]:
        """All messages by their paths, with generated ids replaced."""
        cut = len(f"{self.root}/")
        return sorted((alike(path[cut:]), Path(path).read_bytes()) for path in self._stored())

    def _stored(self) -> list[str]:
        """The paths of all messages."""
        return [path for top in ("new", "queues", "delay") for path in _files(f"{self.root}/{top}")]

    def _counting(self, observe: Callable[..., None]) -> Callable[..., None]:
        def count(*of: Any) -> None:
            self.taken += 1
            observe(*of)

        return count

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            try:
                runner.run(self._serve())
            except BaseException as error:
                if self._started.done():
                    raise
                self._started.set_exception(error)

    async def _serve(self) -> None:
        self.loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self.spool = Spool(
            self.root,
            sync=self._sync,
            delivers=False,
            max_message_bytes=self._max_message_bytes,
            journal=self._journal,
        )
        with self.spool, socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
            listening.setblocking(False)
            if self._send_buffer is not None:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer)
            of_service: Any = self._of_service
            self.service = Service(self.spool, **of_service)
            self.service._commits.at_once = 1  # what comes during a sync is one group
            dialects = map(self._dialect, self._spoken)
            self.server = Server(self.service, dialects, host_names=self._host_names)
            self.fast_path = self.server._fast_path
            fast_path: FastPath | None = self.fast_path
            while fast_path is not None:
                fast_path.observe = self._counting(fast_path.observe)  # type: ignore[method-assign]
                fast_path = fast_path.beside
            if not self._fast_path:
                self.server._connections.fast_path = None
            await self.server.start([listening])
            self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            self._started.set_result(None)
            await self._stop.wait()
            await self.server.stop(2)


def _files(folder: str) -> Iterator[str]:
    """All files at any depth; a list of folders by `pathlib` takes ten times as long."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)
            elif entry.is_file():
                yield entry.path


def alike(text: str) -> str:
    """A text with generated ids, times and names of claims replaced."""
    text = _NUMBER.sub("N", _HANDLE.sub("HANDLE", _EXPIRY.sub(".xEXPIRY", _ID.sub("ID", text))))
    return _CLAIM.sub(r"\1-NN", _MOMENT.sub("MOMENT", text))


@contextmanager
def syncing(root: Path, *dialects: str) -> Iterator[Inside]:
    """A server with syncs and a queue q; in the end no request may have left anything."""
    with Inside(root, sync="syncfs", dialects=dialects, journal=True) as server:
        server.queue("q")
        server.load("q")
        yield server
        eventually(server.holds_nothing)
