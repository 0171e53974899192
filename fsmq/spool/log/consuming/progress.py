"""Progress: which offsets of a channel are done, handed out, released, or passed over.

It is the content of the channel's file in memory: `apply` takes in each line, whoever wrote it.
Nothing here walks over all that is done or held, except `count` and `unburied_at`, for the state.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterator, Mapping
from itertools import count
from typing import TypeAlias

from ..ranges import Range, Ranges
from .keys import Keys
from .lines import (
    BURIED,
    CLAIMED,
    DONE,
    LOST,
    SKIPPED,
    SOUGHT,
    UNBURIED,
    Line,
    Tally,
    encode,
    encode_head,
)

# About how many bytes a range and a hold take in a file.
_RANGE_BYTES, _HOLD_BYTES = 16, 64
# How many timers may belong to holds that were finished before their end.
_MOST_ENDED = 1000
_Due: TypeAlias = "tuple[int, int, int, Lease]"
# How often messages were delivered, and which ones.
Held: TypeAlias = tuple[int, list[Range]]


class Lease:
    """Messages that are handed out, were released with a delay, or could not be buried.

    ranges: its unfinished offsets. deliveries: how often they were handed out. deadline_ns: when it
    ends, Unix nanoseconds. is_due: whether its end has been noticed.
    """

    __slots__ = ("deadline_ns", "deliveries", "is_due", "kind", "ranges")

    def __init__(self, line: Line, ranges: Ranges) -> None:
        self.kind = line.kind
        self.deliveries = line.deliveries
        self.deadline_ns = line.until_ns
        self.ranges = ranges
        self.is_due = False

    @property
    def is_claimed(self) -> bool:
        """Whether it is a claim that has not ended."""
        return self.kind == CLAIMED and not self.is_due


class Progress:
    """One generation of a channel. The caller has the lock.

    most: deliveries; a hold that ends with this many is poison. scanned: below this offset every
    message is known, or was considered for handing out.
    """

    def __init__(self, generation: int, tally: Tally, most: int | None) -> None:
        self.tally = tally
        self.most = most
        self._begin(generation)

    def _begin(self, generation: int) -> None:
        self.generation = generation
        self.done = Ranges()
        self.held = Ranges()
        self.owner: dict[int, Lease] = {}
        self.poison: set[Lease] = set()
        self.keys = Keys()
        self.scanned = 0
        self.is_cut = False  # whether the last claim did not look at all that there is
        self._holds: set[Lease] = set()
        self._ranges = 0  # of all holds
        self._claims: set[Lease] = set()  # those that are claims and have not ended
        self._numbers = count()
        self._now_ns = 0
        self._timers: list[tuple[int, int, Lease]] = []
        self._ended: set[Lease] = set()  # those that have ended since the last `due`
        self._due: list[_Due] = []  # ranges of those ended earlier; may be outdated

    # -- what the lines say ----------------------------------------------------------------------

    def apply(self, line: Line, keys: Mapping[int, str] | None = None) -> None:
        """Take in a line. keys: of the messages that it holds; None: not known yet."""
        if line.kind == SOUGHT:
            self._begin(self.generation + 1)
            self.done.update(line.ranges)
            return
        new = Ranges(one for start, end in line.ranges for one in self.done.gaps(start, end))
        if line.is_hold:
            self._hold(line, new, keys)
        else:
            self._end(new)
            self._count(line.kind, new)

    def _hold(self, line: Line, ranges: Ranges, keys: Mapping[int, str] | None) -> None:
        if not ranges:
            return
        if keys is not None:
            self.keys.hold(keys)
        hold = Lease(line, ranges)
        for start, end in ranges:
            if keys is None:
                for one in self.held.gaps(start, end):
                    self.keys.expect(*one)
            self._take_out(start, end)
            self.held.add(start, end)
            self.owner.update(dict.fromkeys(range(start, end), hold))
        self._holds.add(hold)
        self._ranges += len(ranges)
        self._schedule(hold)

    def _end(self, ranges: Ranges) -> None:
        for start, end in ranges:
            ended = self._take_out(start, end)
            for offset in ended:
                del self.owner[offset]
            self.keys.finish(ended)
            self.keys.expect_no_more(start, end)
            self.held.remove(start, end)
            self.done.add(start, end)

    def _take_out(self, start: int, end: int) -> list[int]:
        """Remove offsets from their holds; returns those that were held."""
        held = [offset for a, b in self.held.within(start, end) for offset in range(a, b)]
        if not held:
            return held
        for hold in {self.owner[offset] for offset in held}:
            self._ranges -= len(hold.ranges)
            hold.ranges.remove(start, end)
            self._ranges += len(hold.ranges)
            if not hold.ranges:
                for holds in (self._holds, self._claims, self._ended, self.poison):
                    holds.discard(hold)
        return held

    def _count(self, kind: str, new: Ranges) -> None:
        tally, number = self.tally, new.count()
        if not number:
            return
        if kind == LOST:
            tally.lost += number
            if tally.first_lost is None:
                tally.first_lost = next(iter(new))[0]
        elif kind == SKIPPED:
            tally.skipped += number
        elif kind == BURIED:
            tally.buried += number

    def encode(self, uuid: str) -> bytes:
        """The content of a new file with all this. uuid: of that file."""
        holds = (
            Line(hold.kind, list(hold.ranges), hold.deliveries, hold.deadline_ns)
            for hold in self._holds
        )
        head = encode_head(uuid, self.generation, self.tally)
        return head + encode([Line(DONE, list(self.done))]) + encode(holds)

    @property
    def size(self) -> int:
        """The approximate size of such a file, in bytes."""
        ranges = len(self.done) + self._ranges
        return _RANGE_BYTES * ranges + _HOLD_BYTES * len(self._holds)

    # -- timers ----------------------------------------------------------------------------------

    def _schedule(self, hold: Lease) -> None:
        hold.is_due = False
        if hold.is_claimed:
            self._claims.add(hold)
        heapq.heappush(self._timers, (hold.deadline_ns, next(self._numbers), hold))
        if len(self._timers) > 2 * len(self._holds) + _MOST_ENDED:
            self._timers = [timer for timer in self._timers if timer[2] in self._holds]
            heapq.heapify(self._timers)

    def end_timers(self, now_ns: int) -> None:
        """Note which holds have ended."""
        if now_ns < self._now_ns:  # the clock was set back: ended holds may hold again
            self._timers, self._ended, self._due, self.poison = [], set(), [], set()
            for hold in self._holds:
                self._schedule(hold)
        self._now_ns = now_ns
        while self._timers and self._timers[0][0] <= now_ns:
            hold = heapq.heappop(self._timers)[2]
            if hold not in self._holds:
                continue
            hold.is_due = True
            self._claims.discard(hold)
            if self.most is not None and hold.deliveries >= self.most:
                self.poison.add(hold)
            else:
                self._ended.add(hold)

    def next_deadline_ns(self) -> int | None:
        """When the next hold ends, if there is one."""
        while self._timers and self._timers[0][2] not in self._holds:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    @property
    def is_any_claimed(self) -> bool:
        """Whether there is a claim that has not ended."""
        return bool(self._claims)

    @property
    def poison_at(self) -> int | None:
        """The lowest offset whose deliveries are used up."""
        return min((hold.ranges.next(0) for hold in self.poison), default=None)

    def lowest_poison(self, most: int) -> list[Held]:
        """The lowest messages whose deliveries are used up, ``most`` at most."""
        found: list[Held] = []
        for hold in heapq.nsmallest(most, self.poison, key=lambda one: one.ranges.next(0)):
            for start, end in hold.ranges:
                if most > 0:
                    found.append((hold.deliveries, [(start, min(end, start + most))]))
                most -= end - start
        return found

    @property
    def unburied_at(self) -> int | None:
        """The lowest offset whose burial failed."""
        unburied = (hold.ranges for hold in self._holds if hold.kind == UNBURIED)
        return min((ranges.next(0) for ranges in unburied), default=None)

    def due(self) -> Generator[tuple[int, Lease]]:
        """Offsets whose holds have ended and are not poison, the lowest first."""
        while self._ended:
            hold = self._ended.pop()
            for start, end in hold.ranges:
                heapq.heappush(self._due, (start, end, next(self._numbers), hold))
        seen: list[_Due] = []
        try:
            while self._due:
                start, end, number, hold = heapq.heappop(self._due)
                while start < end and self.owner.get(start) is not hold:
                    start += 1  # done, or handed out again
                if start == end:
                    continue
                stop = min(end, max(start + 1, self._due[0][0])) if self._due else end
                if stop < end:
                    heapq.heappush(self._due, (stop, end, number, hold))
                seen.append((start, stop, number, hold))
                for offset in range(start, stop):
                    if self.owner.get(offset) is hold:
                        yield offset, hold
        finally:  # the next call sees which were handed out
            for one in seen:
                heapq.heappush(self._due, one)

    def count(self) -> tuple[int, int]:
        """How many messages are in flight, and how many are delayed."""
        in_flight = delayed = 0
        for hold in self._holds:
            if hold.is_claimed:
                in_flight += hold.ranges.count()
            elif not hold.is_due:
                delayed += hold.ranges.count()
        return in_flight, delayed

    # -- where it is -----------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The lowest offset that is not done."""
        return self.done.after(0)

    @property
    def highest(self) -> int:
        """The offset after the highest that was handed out."""
        return max(self.done.end, self.held.end)

    def is_known(self, offset: int) -> bool:
        """Whether a message is done or held."""
        return offset in self.owner or offset in self.done

    def next_known(self, offset: int) -> int:
        """The first offset from here on that is done or held; NEVER if there is none."""
        return min(self.done.next(offset), self.held.next(offset))

    def fresh(self, limit: int) -> Iterator[Range]:
        """Stretches below a limit that nobody has looked at. Asking for the next one means that all
        of the last was looked at. Known offsets before a stretch are not walked over again."""
        known = (self.done, self.held, self.keys.waiting)
        offset = max(self.scanned, self.position)
        while offset < limit:
            start = offset
            for ranges in known:
                offset = ranges.after(offset)
            self.scanned = offset
            if offset == start:
                offset = min(limit, *(ranges.next(offset) for ranges in known))
                yield start, offset
