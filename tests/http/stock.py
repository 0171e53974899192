"""Queues and logs full of messages for every request."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

from fsmq.spool.layout.messages.message import unpack
from fsmq.spool.layout.names import Facts, new_id
from fsmq.spool.layout.stamps import Stamps
from fsmq.spool.log.log import LogEntry
from fsmq.spool.spool import Spool
from fsmq.spool.verbs.dedup import read_side, write_side
from tests.harness.suite import Suite
from tests.http.routes import Request, document, every_request

_HOUR_MS = 3_600_000


class Stored(NamedTuple):
    """A stored message: the flags of its id, and the content of the file."""

    file: bytes
    headed: bool = False
    packed: bool = False

    def fill(self, root: Path, queue: str, each: int) -> str:
        """Store copies in every state of a queue; the id of a ready one."""
        ready = root / "queues" / queue
        ready.mkdir()
        now_ms = int(time.time() * 1000)
        for _ in range(each):
            self.place(root / "new", f"{queue}:")
            for deliveries in (0, 1):  # one delayed and one in flight
                path = self.place(root / "delay", f"{queue}:")
                message_id = path.name.rpartition(":")[2]
                mtime = Stamps().encode(message_id, now_ms + _HOUR_MS, deliveries)
                os.utime(path, ns=(mtime, mtime))
            last = self.place(ready)
        return last.name

    def place(self, folder: Path, prefix: str = "") -> Path:
        """One more copy in a folder."""
        path = folder / f"{prefix}{new_id(headed=self.headed, packed=self.packed)}"
        path.write_bytes(self.file)
        return path


class Stock:
    """Requests, each to its own queues with ``each`` messages in every state.

    together: as in `every_request`.
    """

    def __init__(self, suite: Suite, stored: Stored, each: int, *, together: bool = True) -> None:
        self._root = suite.root
        self._requests = list(every_request(document(suite.url), together=together))
        self._stored = stored
        self._each = each
        self._numbers = count()
        (suite.root / "topics" / "t").mkdir(exist_ok=True)

    def __len__(self) -> int:
        return len(self._requests)

    def request(self, number: int) -> Request:
        """A request with unused queues."""
        asked = self._requests[number]
        queue = f"stock-{next(self._numbers)}"
        message_id = self._stored.fill(self._root, queue, self._each)
        self._stored.fill(self._root, read_side(queue), self._each)
        (self._root / "queues" / write_side(queue)).mkdir()
        names = {"queue": queue, "topic": "t", "id": message_id, "number": "1000", "zone": "z"}
        names |= {"schedule": "none", "ref": "00", "reference": "00"}
        if "{log}" in asked.pattern:
            names |= self._fill_log()
        return asked.filled(names)

    def _fill_log(self) -> dict[str, str]:
        """A log with as many messages and an unread channel."""
        facts = Facts(headed=self._stored.headed, packed=self._stored.packed)
        channel = f"channel-{next(self._numbers)}"
        with Spool(self._root, delivers=False) as spool:
            log = spool.log("stock")
            if log.create():
                body, content_type, _ = unpack(self._stored.file, facts)
                log.publish_many([LogEntry(body, content_type=content_type)] * self._each)
            log.channel(channel).create(from_="first")
        return {"log": log.name, "channel": channel, "offset": "0"}

    def __iter__(self) -> Iterator[Request]:
        return map(self.request, range(len(self)))
