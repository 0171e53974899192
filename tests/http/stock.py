"""Queues full of messages for every request that a server answers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

from fsmq.spool.dedup import read_side, write_side
from fsmq.spool.names import new_id
from fsmq.spool.stamps import Stamps
from tests.http.routes import Request, document, every_request
from tests.suite import Suite

_HOUR_MS = 3_600_000


class Stored(NamedTuple):
    """A message as it lies on disk: the flags of its id, and the file."""

    file: bytes
    headed: bool = False
    packed: bool = False

    def fill(self, root: Path, queue: str, each: int) -> str:
        """So many copies in every state of a queue; the id of a ready one."""
        ready = root / "queues" / queue
        ready.mkdir()
        now_ms = int(time.time() * 1000)
        for _ in range(each):
            self.place(root / "new", f"{queue}:")
            for deliveries in (0, 1):  # one that is delayed, and one in flight
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


def everything(suite: Suite, stored: Stored, each: int) -> Iterator[Request]:
    """Every request that there is, each to queues of its own with messages in all states."""
    served = document(suite.url)
    (suite.root / "topics" / "t").mkdir()
    for number in count():
        queue = f"q{number}"
        message_id = stored.fill(suite.root, queue, each)
        stored.fill(suite.root, read_side(queue), each)
        (suite.root / "queues" / write_side(queue)).mkdir()
        names = {"queue": queue, "topic": "t", "id": message_id, "number": "1000"}
        names |= dict.fromkeys(("ref", "reference"), "00")
        requests = list(every_request(served, names))
        if number == len(requests):
            return
        yield requests[number]
