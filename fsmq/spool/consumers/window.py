"""Windows: the next ids of a queue in order, in memory that does not grow with the queue.

A ready index holds every id, so that each claim costs the same. A program that claims thousands at
a time can list the queue now and then instead, and keep only the first ids.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from ..errors import NoSuchQueue
from ..layout.duty_cycle import DutyCycle
from ..layout.names import is_id
from ..layout.transitions import QUEUES
from ..layout.tree import Tree

SIZE = 100_000
# How often to list: while ids of the last listing are left, and when they are used up.
_THROTTLE, _THROTTLE_EMPTY = DutyCycle(0.05), DutyCycle(0.5)


class Window:
    """The ready ids of one queue, from the first on; their messages may be gone by then.

    once: go through the queue only once. Of messages that come after the first listing, only those
        that sort before its last id can be seen.
    size: how many ids are kept.
    """

    def __init__(self, tree: Tree, queue: str, *, once: bool = False, size: int = SIZE) -> None:
        self._tree = tree
        self.queue = queue
        self._once = once
        self._size = size
        self._ids: list[str] = []  # the first one last
        self._after = ""  # the last one that was yielded
        self._upto: str | None = None  # the greatest id of the first listing, with ``once``
        self._is_cut = False  # the queue has more ids than are kept
        self._listed: float | None = None  # monotonic seconds
        self._cost = 0.0

    def ids(self) -> Iterator[str]:
        """The next ids, each taken out of the window, to the end of the queue.

        If the caller stops early, the next call yields the rest, after any newly arrived ids that
        sort before them. Raises NoSuchQueue, OSError.
        """
        if self._is_stale():
            self._after = ""
            self._list()
        while True:
            while self._ids:
                self._after = self._ids.pop()
                yield self._after
            if not self._is_cut:
                return
            self._list()

    @property
    def has_more(self) -> bool:
        """Whether ids are known that were not yielded yet, or were cut off."""
        return bool(self._ids) or self._is_cut

    def repeat(self, message_id: str) -> None:
        """Make the id that was yielded last the next one again."""
        self._ids.append(message_id)

    def _is_stale(self) -> bool:
        if self._listed is None or self._once:
            return self._listed is None
        duty_cycle = _THROTTLE if self._ids else _THROTTLE_EMPTY
        return time.monotonic() - self._listed >= duty_cycle.pause(self._cost)

    def _list(self) -> None:
        started = time.monotonic()
        if not self._tree.has_queue(self.queue):
            raise NoSuchQueue(self.queue)
        found: list[str] = []
        bound = self._upto
        greatest = ""
        self._is_cut = False
        for entry in self._tree.walk(self._tree.folder(QUEUES, self.queue)):
            name = entry.name
            greatest = max(greatest, name)
            if name <= self._after or (bound is not None and name > bound) or not is_id(name):
                continue
            found.append(name)
            if len(found) >= 2 * self._size:
                bound = self._cut(found)
        if len(found) > self._size:
            self._cut(found)
        found.sort(reverse=True)
        self._ids = found
        if self._once and self._upto is None:
            self._upto = greatest
        self._listed = time.monotonic()
        self._cost = self._listed - started

    def _cut(self, found: list[str]) -> str:
        """Keep only the first ids; returns the last of them."""
        found.sort()
        del found[self._size :]
        self._is_cut = True
        return found[-1]
