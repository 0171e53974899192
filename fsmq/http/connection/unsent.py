"""Answers that wait for their clients: how much of them there is, on all connections together.

What the kernel has taken of an answer is not here any more; the rest lies in this process, and the
request that it answers goes on until there is none. Whoever takes an answer slowly may do so as
long as there is room.
"""

from __future__ import annotations

from typing import Protocol


class Waiting(Protocol):
    """A connection on which an answer waits."""

    @property
    def slow_since(self) -> float:
        """Since when its client has taken less than it has to."""

    def cut_off(self) -> None:
        """End it at once: what waits there is forgotten."""


class UnsentOfAll:
    """Counts it, on all connections of a server, and ends the slowest when there is no more room.

    room, size: bytes.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self.size = 0
        self._sizes: dict[Waiting, int] = {}

    def note(self, of: Waiting, size: int) -> None:
        """So much waits on a connection now. One alone may be of any size."""
        self.size += size - self._sizes.pop(of, 0)
        if size:
            self._sizes[of] = size
            if self.size > self.room:
                self._make_room()

    def _make_room(self) -> None:
        """Cut off the slowest: some of them, as to look for them takes a while where many wait."""
        enough = self.room - self.room // 4
        for one in sorted(self._sizes, key=lambda one: one.slow_since)[:-1]:
            one.cut_off()
            self.note(one, 0)
            if self.size <= enough:
                return
