"""Stamps: a message's timer and its count of deliveries, kept in the file's mtime.

The mtime holds the deadline to the millisecond; the six digits under it hold
``count * 10000 + check``, where the check (1 to 9999) is computed from deadline, count and id. One
``utimensat`` sets both, and they survive restarts, every NFS version and ``rsync -t``. The check is
never 0, so a time in whole milliseconds or seconds, like that of ``touch -d``, does not verify; any
other foreign time verifies with a chance of 2 in 10,000.

The next value after the right check means in addition that the claim has ended: the message waits
for its ``retry_backoff``. So this mark is set together with the timer and the count.

Where the filesystem keeps whole seconds only (``coarse``) deadlines are rounded up and deliveries
are unknown.
"""

from __future__ import annotations

import sys
import zlib
from typing import Literal, NamedTuple

MAX_COUNT = 99
_NS_PER_MS = 1_000_000
_CHECKS = 9999  # how many checks there are: 1 to 9999
_NAMES = sys.getfilesystemencoding()


class Stamp(NamedTuple):
    """A verified stamp."""

    deadline_ms: int  # Unix milliseconds
    deliveries: int | None  # 0 to 99, where 99 means "99 or more"; None: unknown (coarse)
    backs_off: bool = False  # its claim has ended, and it waits for its retry_backoff

    @property
    def is_claim(self) -> bool:
        """Whether it is the stamp of a claim. Where times are coarse a delay counts as a claim."""
        return self.deliveries != 0 and not self.backs_off


HiddenState = Literal["in_flight", "delayed"]


def hidden_state(stamp: Stamp | None, now_ms: int) -> HiddenState:
    """The state of a message in ``delay/`` with this stamp."""
    is_delayed = stamp is not None and not stamp.is_claim and stamp.deadline_ms > now_ms
    return "delayed" if is_delayed else "in_flight"


class Stamps:
    """Encodes and decodes stamps as this filesystem can keep them."""

    def __init__(self, coarse: bool = False) -> None:
        self.coarse = coarse

    def encode(
        self, message_id: str, deadline_ms: int, deliveries: int, *, backs_off: bool = False
    ) -> int:
        """The mtime, in nanoseconds, that encodes this."""
        if self.coarse:
            return self.kept(deadline_ms) * _NS_PER_MS
        count = min(deliveries, MAX_COUNT)
        check = _check(message_id, deadline_ms, count)
        if backs_off:
            check = check % _CHECKS + 1
        return deadline_ms * _NS_PER_MS + count * 10_000 + check

    def kept(self, deadline_ms: int) -> int:
        """A deadline as this filesystem keeps it, and as `decode` returns it."""
        return -(-deadline_ms // 1000) * 1000 if self.coarse else deadline_ms

    def encoded(self, message_id: str, stamp: Stamp) -> int:
        """The mtime of a stamp."""
        return self.encode(
            message_id, stamp.deadline_ms, stamp.deliveries or 0, backs_off=stamp.backs_off
        )

    def decode(self, message_id: str, mtime_ns: int) -> Stamp | None:
        """The stamp in an mtime; None if it is no stamp of ours."""
        if self.coarse:
            return Stamp(mtime_ns // _NS_PER_MS, None)
        deadline_ms = mtime_ns // _NS_PER_MS
        count = mtime_ns // 10_000 % 100
        found = mtime_ns % 10_000
        check = _check(message_id, deadline_ms, count)  # which is never 0
        if found == check:
            return Stamp(deadline_ms, count)
        # A message with the count 0 has no claim that could have ended.
        if found == check % _CHECKS + 1 and count:
            return Stamp(deadline_ms, count, True)
        return None

    def hidden_state(self, message_id: str, mtime_ns: int, now_ms: int) -> HiddenState:
        """Whether a message in ``delay/`` is claimed, or waits for the end of a delay.

        A message whose delay has ended counts as claimed until a mover makes it ready.
        """
        return hidden_state(self.decode(message_id, mtime_ns), now_ms)

    def deliveries(self, message_id: str, mtime_ns: int) -> int:
        """The count of deliveries; 0 if it is unknown."""
        stamp = self.decode(message_id, mtime_ns)
        return (stamp.deliveries or 0) if stamp else 0


def _check(message_id: str, deadline_ms: int, count: int) -> int:
    # Any bytes of a file's name, like os.fsencode but faster.
    text = f"{deadline_ms} {count} {message_id}".encode(_NAMES, "surrogateescape")
    return zlib.crc32(text) % _CHECKS + 1
