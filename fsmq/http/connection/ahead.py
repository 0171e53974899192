"""What clients have sent ahead: heads without an end, and what stands behind a request.

Nobody knows yet who has sent it, or what for, so it is counted here and not for a key. A little is
free on each connection; the rest takes room of which all connections together have so much.
"""

from __future__ import annotations

import asyncio
import select

from .leftovers import Leftovers

END_OF_HEAD = b"\r\n\r\n"
# So much of each connection is not counted: as much as most requests take in all.
FREE_BYTES = 16 * 1024
# aiohttp has a head as bytes and as text. One sign beyond ASCII may give four bytes to each sign of
# a text, and each field is some objects of its own.
_TIMES, _TIMES_BEYOND_ASCII = 2, 5
FIELD_BYTES = 320
# Of all connections together.
ROOM_BYTES = 64 * 1024 * 1024
# What is more has to wait in the kernel.
_LONG_BYTES = 64 * 1024


class AheadOfAll:
    """How much is counted, on all connections of a server."""

    def __init__(self, leftovers: Leftovers, room: int = ROOM_BYTES) -> None:
        self.room = room
        self.size = 0
        self._leftovers = leftovers

    def change(self, by: int) -> None:
        """Count so much more, or less."""
        self.size += by
        if by < 0:
            self._leftovers.add(-by)


class Ahead:
    """What was sent ahead on one connection.

    head: the memory of a head that has no end yet, or of the one that is being answered. behind:
    what has come behind the request that is being answered, since when it is there.
    """

    __slots__ = ("_all", "_counted", "_fields", "_size", "_times", "behind", "head", "since")

    def __init__(self, of_all: AheadOfAll) -> None:
        self._all = of_all
        self._counted = 0
        self._size = self._fields = 0  # of the head
        self._times = _TIMES
        self.head = 0
        self.behind = b""
        self.since = 0.0

    def add_to_head(self, data: bytes) -> None:
        """Take note of more of a head."""
        self._size += len(data)
        self._fields += data.count(b"\n")
        if not data.isascii():
            self._times = _TIMES_BEYOND_ASCII
        self.head = self._size * self._times + self._fields * FIELD_BYTES
        if self.head > FREE_BYTES or self._counted:
            self.count()

    def forget_head(self) -> None:
        """Its request is answered."""
        self._size = self._fields = self.head = 0
        self._times = _TIMES
        if self._counted:
            self.count()

    @property
    def has_long_head(self) -> bool:
        """Whether a part of the head is counted."""
        return self.head > FREE_BYTES

    def keep(self, data: bytes, now: float) -> None:
        """Put bytes behind the others."""
        if not self.behind:
            self.since = now
        self.behind += data
        self.count()

    def take(self) -> bytes:
        """What is behind, which is no longer kept here."""
        behind, self.behind = self.behind, b""
        self.count()
        return behind

    def forget(self) -> None:
        """Keep nothing."""
        self.behind = b""
        self.forget_head()

    def count(self) -> None:
        """Take note of how much there is."""
        size = self.head + len(self.behind)
        counted = size - FREE_BYTES if size > FREE_BYTES else 0
        if counted != self._counted:
            self._all.change(counted - self._counted)
            self._counted = counted

    @property
    def is_too_much(self) -> bool:
        """Whether there is no room for it, since others have it."""
        return self._counted > 0 and self._all.size > self._all.room

    @property
    def is_long(self) -> bool:
        """Whether there is so much that more has to wait in the kernel."""
        return len(self.behind) > _LONG_BYTES

    def is_late(self, now: float, seconds: float) -> bool:
        """Whether what is behind is a head that has not come to its end within so many seconds."""
        return now - self.since > seconds and END_OF_HEAD not in self.behind


def has_hung_up(wire: asyncio.Transport) -> bool:
    """Whether the client has gone, where nobody reads what comes."""
    poller = select.poll()
    poller.register(wire.get_extra_info("socket").fileno(), select.POLLRDHUP)
    return bool(poller.poll(0))
