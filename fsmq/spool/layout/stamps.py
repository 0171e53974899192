"""Stamps: a message's timer and its count of deliveries, kept in the file's mtime.

The mtime holds the deadline to the millisecond; the six digits under it hold
``count * 10000 + check``, where the check (1 to 9999) is computed from deadline, count and id. One
``utimensat`` sets both, and they survive restarts, every NFS version and ``rsync -t``. The check is
never 0, so a time in whole milliseconds or seconds, as ``touch -d`` makes it, does not verify; any
other foreign time does with a chance of 1 in 10,000.

Where the filesystem keeps whole seconds only (``coarse``) deadlines are rounded up and deliveries
are unknown.
"""

from __future__ import annotations

import sys
import zlib
from typing import Literal, NamedTuple

MAX_COUNT = 99
_NS_PER_MS = 1_000_000
_NS_PER_S = 1_000_000_000
_NAMES = sys.getfilesystemencoding()


class Stamp(NamedTuple):
    """A verified stamp."""

    deadline_ms: int  # Unix milliseconds
    deliveries: int | None  # 0 to 99, where 99 means "99 or more"; None: unknown (coarse)


HiddenState = Literal["in_flight", "delayed"]


def hidden_state(stamp: Stamp | None, now_ms: int) -> HiddenState:
    """The state of a message in ``delay/`` with this stamp."""
    is_delayed = stamp is not None and stamp.deliveries == 0 and stamp.deadline_ms > now_ms
    return "delayed" if is_delayed else "in_flight"


class Stamps:
    """Writes and reads stamps as this filesystem can keep them."""

    def __init__(self, coarse: bool = False) -> None:
        self.coarse = coarse

    def encode(self, message_id: str, deadline_ms: int, deliveries: int) -> int:
        """The mtime, in nanoseconds, that says this."""
        if self.coarse:
            return -(-deadline_ms // 1000) * _NS_PER_S
        count = min(deliveries, MAX_COUNT)
        return deadline_ms * _NS_PER_MS + count * 10_000 + _check(message_id, deadline_ms, count)

    def decode(self, message_id: str, mtime_ns: int) -> Stamp | None:
        """What an mtime says; None if no stamp of ours stands there."""
        if self.coarse:
            return Stamp(mtime_ns // _NS_PER_MS, None)
        deadline_ms = mtime_ns // _NS_PER_MS
        count = mtime_ns // 10_000 % 100
        if mtime_ns % 10_000 != _check(message_id, deadline_ms, count):  # which is never 0
            return None
        return Stamp(deadline_ms, count)

    def hidden_state(self, message_id: str, mtime_ns: int, now_ms: int) -> HiddenState:
        """Whether a message in ``delay/`` is claimed, or waits for the end of a delay.

        One whose delay has ended is as good as claimed, until a mover makes it ready.
        """
        return hidden_state(self.decode(message_id, mtime_ns), now_ms)

    def deliveries(self, message_id: str, mtime_ns: int) -> int:
        """The count of deliveries; 0 where none is known."""
        stamp = self.decode(message_id, mtime_ns)
        return (stamp.deliveries or 0) if stamp else 0


def _check(message_id: str, deadline_ms: int, count: int) -> int:
    # The bytes of the file's name, whatever they are, as os.fsencode gives them at more cost.
    text = f"{deadline_ms} {count} {message_id}".encode(_NAMES, "surrogateescape")
    return zlib.crc32(text) % 9999 + 1
