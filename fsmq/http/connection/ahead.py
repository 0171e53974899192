"""Bytes that clients have sent ahead: incomplete heads, and what follows the current request.

It is not known yet which key they belong to, so they are counted per server and not per key. A
little is free on each connection; the rest counts against a limit that all connections share.
"""

from __future__ import annotations

import asyncio
import select

from .leftovers import Leftovers

END_OF_HEAD = b"\r\n\r\n"
# This much of each connection is not counted; most requests need no more in all.
FREE_BYTES = 16 * 1024
# aiohttp keeps a head as bytes and as text. One character beyond ASCII can make a str use four
# bytes for each of its characters, and each field takes several objects.
_TIMES, _TIMES_BEYOND_ASCII = 2, 5
FIELD_BYTES = 320
# Of all connections together.
ROOM_BYTES = 64 * 1024 * 1024
# Anything beyond this waits in the kernel.
_LONG_BYTES = 64 * 1024


class AheadOfAll:
    """The bytes that are counted on all connections of a server."""

    def __init__(self, leftovers: Leftovers, room: int = ROOM_BYTES) -> None:
        self.room = room
        self.size = 0
        self._leftovers = leftovers

    def change(self, by: int) -> None:
        """Add to the count; a negative number subtracts."""
        self.size += by
        if by < 0:
            self._leftovers.add(-by)


class Ahead:
    """What was sent ahead on one connection.

    head: the memory of an incomplete head, or of the head of the request being answered.
    behind: bytes that follow the request being answered. since: when the first of them arrived.
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
        """Count more bytes of a head."""
        self._size += len(data)
        self._fields += data.count(b"\n")
        if not data.isascii():
            self._times = _TIMES_BEYOND_ASCII
        self.head = self._size * self._times + self._fields * FIELD_BYTES
        if self.head > FREE_BYTES or self._counted:
            self.count()

    def forget_head(self) -> None:
        """Stop counting the head, because its request is answered."""
        self._size = self._fields = self.head = 0
        self._times = _TIMES
        if self._counted:
            self.count()

    @property
    def has_long_head(self) -> bool:
        """Whether a part of the head is counted."""
        return self.head > FREE_BYTES

    def keep(self, data: bytes, now: float) -> None:
        """Append bytes to ``behind``."""
        if not self.behind:
            self.since = now
        self.behind += data
        self.count()

    def take(self) -> bytes:
        """Return ``behind`` and clear it."""
        behind, self.behind = self.behind, b""
        self.count()
        return behind

    def forget(self) -> None:
        """Drop everything."""
        self.behind = b""
        self.forget_head()

    def count(self) -> None:
        """Update the server's count with what this connection holds."""
        size = self.head + len(self.behind)
        counted = size - FREE_BYTES if size > FREE_BYTES else 0
        if counted != self._counted:
            self._all.change(counted - self._counted)
            self._counted = counted

    @property
    def is_too_much(self) -> bool:
        """Whether this connection adds to a count that exceeds the shared limit."""
        return self._counted > 0 and self._all.size > self._all.room

    @property
    def is_long(self) -> bool:
        """Whether ``behind`` is so long that more has to wait in the kernel."""
        return len(self.behind) > _LONG_BYTES

    def is_late(self, now: float, seconds: float) -> bool:
        """Whether ``behind`` is a head that is still incomplete after ``seconds``."""
        return now - self.since > seconds and END_OF_HEAD not in self.behind


def has_hung_up(wire: asyncio.Transport) -> bool:
    """Whether the client has gone; works while reading is paused."""
    poller = select.poll()
    poller.register(wire.get_extra_info("socket").fileno(), select.POLLRDHUP)
    return bool(poller.poll(0))
