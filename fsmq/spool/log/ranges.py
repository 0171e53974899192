"""Sets of offsets, as sorted half-open ranges that do not touch."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]
NEVER = 1 << 62


class Ranges:
    """A set of whole numbers. All ranges are half-open: ``(2, 5)`` is 2, 3 and 4."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in ranges:
            self.add(start, end)

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __len__(self) -> int:
        """How many ranges, not numbers."""
        return len(self._starts)

    def __iter__(self) -> Iterator[Range]:
        return zip(self._starts, self._ends, strict=True)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number < self._ends[at]

    def __repr__(self) -> str:
        return f"Ranges({list(self)})"

    def add(self, start: int, end: int) -> None:
        """Add the numbers from ``start`` to before ``end``."""
        if start >= end:
            return
        starts, ends = self._starts, self._ends
        if not ends or start > ends[-1]:
            starts.append(start)
            ends.append(end)
            return
        first = bisect_left(ends, start)  # the first that touches or comes after
        last = bisect_right(starts, end)  # the first that comes after without touching
        if first < last:
            start, end = min(start, starts[first]), max(end, ends[last - 1])
        starts[first:last] = [start]
        ends[first:last] = [end]

    def remove(self, start: int, end: int) -> None:
        """Remove the numbers from ``start`` to before ``end``."""
        if start >= end:
            return
        starts, ends = self._starts, self._ends
        first = bisect_right(ends, start)
        last = bisect_left(starts, end)
        if first >= last:
            return
        left, right = starts[first], ends[last - 1]
        new = [pair for pair in ((left, start), (end, right)) if pair[0] < pair[1]]
        starts[first:last] = [pair[0] for pair in new]
        ends[first:last] = [pair[1] for pair in new]

    def update(self, ranges: Iterable[Range]) -> None:
        for start, end in ranges:
            self.add(start, end)

    def within(self, start: int, end: int) -> Iterator[Range]:
        """The parts of ``start`` to before ``end`` that are in the set."""
        at = bisect_right(self._ends, start)
        while at < len(self._starts) and self._starts[at] < end:
            yield max(start, self._starts[at]), min(end, self._ends[at])
            at += 1

    def gaps(self, start: int, end: int) -> Iterator[Range]:
        """The parts of ``start`` to before ``end`` that are not in the set."""
        for found_start, found_end in self.within(start, end):
            if start < found_start:
                yield start, found_start
            start = found_end
        if start < end:
            yield start, end

    def after(self, number: int) -> int:
        """The least number from ``number`` on that is not in the set."""
        at = bisect_right(self._starts, number) - 1
        return self._ends[at] if at >= 0 and number < self._ends[at] else number

    def next(self, number: int) -> int:
        """The least number from ``number`` on that is in the set; NEVER if there is none."""
        at = bisect_right(self._ends, number)
        return max(number, self._starts[at]) if at < len(self._starts) else NEVER

    @property
    def end(self) -> int:
        """One more than the greatest number; 0 if there is none."""
        return self._ends[-1] if self._ends else 0

    def count(self) -> int:
        """How many numbers there are."""
        return sum(self._ends) - sum(self._starts)


def ranges_of(numbers: Iterable[int]) -> list[Range]:
    """Numbers in ascending order as ranges."""
    found: list[Range] = []
    start = end = -1
    for number in numbers:
        if number == end:
            end += 1
            continue
        if end > start:
            found.append((start, end))
        start, end = number, number + 1
    if end > start:
        found.append((start, end))
    return found


def size_of(ranges: Iterable[Range]) -> int:
    """How many numbers ranges have."""
    return sum(end - start for start, end in ranges)
