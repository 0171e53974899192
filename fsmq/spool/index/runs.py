"""Ids in order, in sorted runs: the least of their heads is the next id.

A listing is sorted portion by portion, and later changes affect one portion at a time. So even with
a million ids no step takes longer than with ten thousand, and other threads can run.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from heapq import heapify, heappop, heappush, heapreplace, merge
from itertools import chain, count, takewhile

from ..layout.steps import portions

# This many arrived ids become a run: sorting them takes milliseconds.
_MOST_ARRIVED = 10_000


class Runs:
    """Places of ids, in the order of the ids; an id that is gone keeps its place until its turn.

    An id that came, went and came again has two places. Callers tell which ids are ``present``.
    """

    def __init__(self) -> None:
        # For each run the first id, a number as a tie-breaker, and the rest of the run, reversed.
        self._heads: list[tuple[str, int, list[str]]] = []
        self._arrived: list[str] = []  # a heap
        self._numbers = count()
        self._in_runs = 0
        self._next_to_thin = 0

    def __len__(self) -> int:
        return self._in_runs + len(self._arrived)

    def fill(self, ids: Iterable[str]) -> None:
        """Add many, in no order."""
        for portion in portions(ids):
            self._add_run(portion)

    def add(self, message_id: str, present: Container[str]) -> None:
        """Add an id that has just arrived."""
        arrived = self._arrived
        heappush(arrived, message_id)
        if len(arrived) >= _MOST_ARRIVED:
            arrived[:] = sorted(one for one in arrived if one in present)  # is a heap
            if len(arrived) > _MOST_ARRIVED // 2:
                self._arrived = []
                self._add_run(arrived)

    def peek(self) -> str | None:
        """The first id, which may be gone; None if there is none."""
        heads, arrived = self._heads, self._arrived
        if heads and not (arrived and arrived[0] < heads[0][0]):
            return heads[0][0]
        return arrived[0] if arrived else None

    def pop(self) -> str | None:
        """Remove and return the first id, which may be gone; None if there is none."""
        heads, arrived = self._heads, self._arrived
        if not heads or (arrived and arrived[0] < heads[0][0]):
            return heappop(arrived) if arrived else None
        message_id, number, rest = heads[0]
        self._in_runs -= 1
        if rest:
            heapreplace(heads, (rest.pop(), number, rest))
        else:
            heappop(heads)
        return message_id

    def first(self, limit: int, present: Container[str]) -> list[str]:
        """The first ids that are present, up to ``limit``; none of them is removed."""
        while (first := self.peek()) is not None and first not in present:
            self.pop()
        runs = (chain((head,), reversed(rest)) for head, _, rest in self._heads)
        found: dict[str, None] = {}
        ids = merge(*runs, sorted(self._arrived))
        for message_id in takewhile(lambda _: len(found) < limit, ids):
            if message_id in present:
                found[message_id] = None
        return list(found)

    def thin(self, present: Container[str]) -> None:
        """Drop the places of ids that are gone from one run, the next run each time."""
        self._arrived = sorted({one for one in self._arrived if one in present})
        if self._heads:
            self._next_to_thin = (self._next_to_thin + 1) % len(self._heads)
            head, _, rest = self._heads[self._next_to_thin]
            self._heads[self._next_to_thin] = self._heads[-1]
            self._heads.pop()
            heapify(self._heads)
            self._in_runs -= 1 + len(rest)
            self._add_run([one for one in (*rest, head) if one in present])

    def _add_run(self, ids: list[str]) -> None:
        if ids:
            ids.sort(reverse=True)
            self._in_runs += len(ids)
            heappush(self._heads, (ids.pop(), next(self._numbers), ids))
