"""Counts the unsent bytes of answers on all connections.

Only bytes that the kernel has not taken count: they are in this process's memory, and their
request goes on until all are sent. Clients may read slowly as long as there is room.
"""

from __future__ import annotations

from typing import Protocol


class Waiting(Protocol):
    """A connection with an unsent answer."""

    @property
    def slow_since(self) -> float:
        """Since when its client has been reading too slowly."""

    def cut_off(self) -> None:
        """Close it at once and drop what is unsent."""


class UnsentOfAll:
    """Counts unsent bytes on all connections of a server; closes the slowest when room runs out.

    room, size: bytes.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self.size = 0
        self._sizes: dict[Waiting, int] = {}

    def note(self, of: Waiting, size: int) -> None:
        """Record how much waits on a connection now. A single answer can be of any size."""
        self.size += size - self._sizes.pop(of, 0)
        if size:
            self._sizes[of] = size
            if self.size > self.room:
                self._make_room()

    def _make_room(self) -> None:
        """Cut off the slowest: several at once, because finding them takes time if many wait."""
        enough = self.room - self.room // 4
        for one in sorted(self._sizes, key=lambda one: one.slow_since)[:-1]:
            one.cut_off()
            self.note(one, 0)
            if self.size <= enough:
                return
