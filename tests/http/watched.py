"""mq with a watcher on its event loop: ``python -m tests.http.watched --watch=FILE OPTIONS…``.

FILE has the longest time, in seconds, for which the loop was blocked since 0 was written into
it. That is by how much a beat of the loop came late, or, if that is less, the processor time that
mq used meanwhile, in all threads: they share the interpreter, so what one of them does in a single
call blocks the loop as well. On a busy machine the loop is late for no fault
of ours; for how long its thread waited for a processor the kernel tells.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import struct
import sys
import threading
import time
from pathlib import Path

from fsmq.daemons.mq import main
from fsmq.http.service.service import Service
from tests.harness.suite import eventually

_BEAT_S = 0.002
# The longest time, which tests clear, and the number of beats: each is written alone.
_LONGEST, _BEATS = struct.Struct("d"), struct.Struct("Q")
_state = struct.Struct(_LONGEST.format + _BEATS.format)


class Watch:
    """A test's view of the file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.write_bytes(_state.pack(0.0, 0))

    def _read(self) -> tuple[float, int]:
        longest, beats = _state.unpack(self.file.read_bytes())
        return longest, beats

    @property
    def longest(self) -> float:
        """The longest time for which the loop was blocked since `clear`.

        The present beat counts when it has ended.
        """
        beats = self._read()[1]
        eventually(lambda: self._read()[1] >= beats + 2)
        return self._read()[0]

    def clear(self) -> None:
        with self.file.open("r+b") as file:
            file.write(_LONGEST.pack(0.0))


def _waited(fd: int) -> float:
    """How many seconds a thread has waited for a processor, by its ``schedstat``."""
    return int(os.pread(fd, 100, 0).split()[1]) / 1e9


async def _beat(place: mmap.mmap) -> None:
    fd = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
    was, used, waited = time.monotonic(), time.process_time(), _waited(fd)
    while True:
        await asyncio.sleep(_BEAT_S)
        now, uses, waits = time.monotonic(), time.process_time(), _waited(fd)
        held = min(now - was - _BEAT_S - (waits - waited), uses - used)
        was, used, waited = now, uses, waits
        longest, beats = _state.unpack(place[:])
        if held > longest:
            _LONGEST.pack_into(place, 0, held)
        _BEATS.pack_into(place, _LONGEST.size, beats + 1)


def _watch(path: str) -> None:
    start = Service.start
    with open(path, "r+b") as file:
        place = mmap.mmap(file.fileno(), _state.size)
    tasks = []

    def start_both(service: Service) -> None:
        start(service)
        tasks.append(asyncio.get_running_loop().create_task(_beat(place)))

    Service.start = start_both  # type: ignore[method-assign]


if __name__ == "__main__":
    _watch(sys.argv.pop(1).removeprefix("--watch="))
    main(prog_name="mq")
