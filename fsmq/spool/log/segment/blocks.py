"""Blocks: stretches of segments that were read and parsed, kept for all channels together.

A thousand channels at the end of a log read it once. The memory has a fixed budget.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict

from ..ranges import Range
from .record import LogMessage
from .record_scan import Scanned, scan_records
from .segments import File

BLOCK_BYTES = 1024 * 1024
DEFAULT_BUDGET = 64 * 1024 * 1024
# About what a message costs beside its bytes in the file.
_OVERHEAD = 200


class Block:
    """The messages of a stretch: offsets from ``first`` to before ``next``, except lost ones."""

    __slots__ = ("first", "lost", "messages", "next", "position", "size")

    def __init__(self, first: int, scanned: Scanned, begin: int) -> None:
        self.first = first
        self.messages = scanned.messages
        self.next = scanned.offset
        self.position = scanned.position
        self.lost = scanned.lost
        self.size = scanned.position - begin + _OVERHEAD * len(scanned.messages)

    def from_offset(self, offset: int, count: int) -> list[LogMessage]:
        """Up to ``count`` messages from an offset on."""
        at = offset - self.first
        if self.lost:
            at = bisect_left(self.messages, offset, key=lambda message: message.offset)
        return self.messages[at : at + count]

    def lost_from(self, offset: int) -> list[Range]:
        """Offsets from this one on whose records are damaged."""
        return [(max(start, offset), end) for start, end in self.lost if end > offset]

    def grow(self, scanned: Scanned) -> None:
        """Add the messages after it."""
        size = scanned.position - self.position + _OVERHEAD * len(scanned.messages)
        # A new list: others may be reading the old one.
        self.messages = self.messages + scanned.messages
        self.lost = self.lost + scanned.lost
        self.next, self.position = scanned.offset, scanned.position
        self.size += size


class Blocks:
    """The blocks of all logs of a process. Safe in threads."""

    def __init__(self, budget: int = DEFAULT_BUDGET) -> None:
        self.budget = budget
        self._lock = threading.Lock()
        self._used = 0
        self._known: OrderedDict[tuple[int, int, int], Block] = OrderedDict()

    def get(self, log: int, number: int, slot: int) -> Block | None:
        """A block that is kept: the one that begins at this position."""
        with self._lock:
            key = (log, number, slot)
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
            return found

    def keep(self, log: int, number: int, slot: int, block: Block) -> None:
        """Keep a block, as long as there is room."""
        with self._lock:
            key = (log, number, slot)
            old = self._known.pop(key, None)
            if old is not None:
                self._used -= old.size
            self._known[key] = block
            self._used += block.size
            while self._used > self.budget:
                _, gone = self._known.popitem(last=False)
                self._used -= gone.size

    def grew(self, log: int, number: int, slot: int, by: int) -> None:
        """Note that a block has more bytes, if it is still kept."""
        with self._lock:
            if (log, number, slot) in self._known:
                self._used += by

    def forget(self, log: int) -> None:
        """Forget the blocks of a log that is closed."""
        with self._lock:
            for key in [key for key in self._known if key[0] == log]:
                self._used -= self._known.pop(key).size


def block_end(position: int) -> int:
    """The end of the block that has a position: at the first record from there on."""
    return (position // BLOCK_BYTES + 1) * BLOCK_BYTES


def read_block(file: File, position: int, offset: int, limit: int, end_offset: int) -> Block:
    """Read a block. For the limits see `read_stretch`."""
    scanned = scan_records(file, position, offset, block_end(position), limit, end_offset)
    return Block(offset, scanned, position)
