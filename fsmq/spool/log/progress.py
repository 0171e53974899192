"""Progress: which offsets of a channel are done, handed out, delayed, or passed over.

What the folders of one generation say, kept in memory: under the channel's lock a process knows by
a counter whether another one has changed them since.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import count

from .finished import Finished
from .holds import RETRY, Hold, HoldFiles
from .ranges import Range, Ranges, ranges_of

KeysOf = Callable[[Iterable[Range]], dict[int, str]]


class Progress:
    """One generation of a channel. The caller has the lock. Methods raise OSError.

    scanned: the offset from which on no message was looked at to be handed out.
    """

    def __init__(self, finished: Finished, files: HoldFiles) -> None:
        self.finished = finished
        self.files = files
        self.owner: dict[int, Hold] = {}
        self.holds: set[Hold] = set()
        self.scanned = 0
        self._held = Ranges()
        self._keys: dict[int, str] = {}
        self._offsets: dict[str, set[int]] = {}  # unfinished ones that were handed out, by key
        self._passed: dict[str, deque[int]] = {}  # those that wait for others of their key
        self._passed_ranges = Ranges()
        self._timers: list[tuple[int, int, Hold]] = []
        self._due: set[Hold] = set()
        self._numbers = count()

    # -- what there is ---------------------------------------------------------------------------

    def load(self, keys_of: KeysOf | None) -> None:
        """Read the folders anew.

        keys_of: gives the keys of messages by offset, for those that have one.
        """
        free_before = self._held.copy()
        self.finished.load()
        self.owner, self.holds, self._held = {}, set(), Ranges()
        self._keys, self._offsets, self._timers, self._due = {}, {}, [], set()
        for hold in self.files.list():
            hold.ranges.discard(list(self.done))
            for start, end in list(hold.ranges):
                hold.ranges.discard(list(self._held.within(start, end)))
            if hold.ranges:
                self._add(hold)
                if keys_of is not None:
                    self.note_keys(keys_of(hold.ranges))
        # What was held and is neither done nor held now is to be handed out again.
        for start, end in free_before:
            for gap_start, gap_end in self._held.gaps(start, end):
                if not self.done.covers(gap_start, gap_end):
                    self.rescan()
                    return

    def rescan(self) -> None:
        """Look at all messages again that are neither done nor held."""
        self.scanned = 0
        self._passed, self._passed_ranges = {}, Ranges()

    @property
    def done(self) -> Ranges:
        return self.finished.done

    @property
    def position(self) -> int:
        """The lowest offset that is not done."""
        return self.done.after(0)

    @property
    def highest(self) -> int:
        """The offset behind the highest that was handed out."""
        return max(self.done.end, self._held.end)

    def _add(self, hold: Hold) -> None:
        self.holds.add(hold)
        for start, end in hold.ranges:
            self._held.add(start, end)
            self.owner.update(dict.fromkeys(range(start, end), hold))
        self._schedule(hold)

    def note_keys(self, keys: dict[int, str]) -> None:
        """Note the keys of messages that are held."""
        for offset, key in keys.items():
            self._keys[offset] = key
            self._offsets.setdefault(key, set()).add(offset)

    def _schedule(self, hold: Hold) -> None:
        self._due.discard(hold)
        heapq.heappush(self._timers, (hold.deadline_ns, next(self._numbers), hold))

    # -- timers ----------------------------------------------------------------------------------

    def end_timers(self, now_ns: int) -> None:
        """Note which holds have ended."""
        while self._timers and self._timers[0][0] <= now_ns:
            deadline_ns, _, hold = heapq.heappop(self._timers)
            if hold in self.holds and hold.deadline_ns == deadline_ns:
                hold.is_due = True
                self._due.add(hold)
        # A clock that was set back makes what has ended hold again.
        for hold in [one for one in self._due if one.deadline_ns > now_ns]:
            hold.is_due = False
            self._schedule(hold)

    def next_deadline_ns(self) -> int | None:
        """When the next hold ends, if one is to end."""
        while self._timers:
            deadline_ns, _, hold = self._timers[0]
            if hold in self.holds and hold.deadline_ns == deadline_ns and not hold.is_due:
                return deadline_ns
            heapq.heappop(self._timers)
        return None

    @property
    def is_any_claimed(self) -> bool:
        """Whether there is a claim that has not ended."""
        return any(hold.is_claim and not hold.is_due for hold in self.holds)

    def due(self) -> Iterator[tuple[int, Hold]]:
        """Offsets whose holds have ended, the lowest first."""
        return heapq.merge(*(_offsets_of(hold) for hold in self._due), key=lambda one: one[0])

    def due_holds(self) -> list[Hold]:
        return list(self._due)

    def count(self) -> tuple[int, int]:
        """How many messages are in flight, and how many are delayed."""
        in_flight = delayed = 0
        for hold in self.holds:
            if hold.is_due:
                continue
            if hold.folder == RETRY:
                delayed += hold.ranges.count()
            else:
                in_flight += hold.ranges.count()
        return in_flight, delayed

    # -- keys ------------------------------------------------------------------------------------

    def key(self, offset: int) -> str | None:
        """The key of a message that is held."""
        return self._keys.get(offset)

    def is_held_back(self, offset: int, key: str, chosen: dict[str, list[int]]) -> bool:
        """Whether a message waits for another of its key that was handed out.

        chosen: those that the same claim has, by key.
        """
        others = self._offsets.get(key)
        if not others:
            return False
        return bool(others.difference(chosen.get(key, ()), (offset,)))

    def has_lower(self, offset: int, key: str, chosen: list[int]) -> bool:
        """Whether a lower message of its key is handed out, or given up, and not ``chosen``."""
        return any(other < offset for other in self._offsets.get(key, set()).difference(chosen))

    def pass_over(self, offset: int, key: str) -> None:
        """Note that a message waits for others of its key."""
        self._passed.setdefault(key, deque()).append(offset)
        self._passed_ranges.add(offset, offset + 1)

    def passed(self, key: str) -> bool:
        return key in self._passed

    def released_keys(self, chosen: dict[str, list[int]]) -> list[str]:
        """Keys whose waiting messages may go on now, by the lowest of them."""
        free = [
            key
            for key in self._passed
            if not self._offsets.get(key, set()).difference(chosen.get(key, ()))
        ]
        free.sort(key=lambda key: self._passed[key][0])
        return free

    def take_passed(self, key: str) -> int | None:
        """The next waiting message of a key; None if there is none."""
        while waiting := self._passed.get(key):
            offset = waiting.popleft()
            self._passed_ranges.remove(offset, offset + 1)
            if not waiting:
                del self._passed[key]
            if offset not in self.owner and offset not in self.done:
                return offset
        return None

    def next_known(self, offset: int) -> int:
        """The first offset from here on that is done or held; a great one if there is none."""
        found = [next(self.done.within(offset, 1 << 62), None)]
        found.append(next(self._held.within(offset, 1 << 62), None))
        return min((one[0] for one in found if one is not None), default=1 << 62)

    def fresh(self, limit: int) -> Iterator[Range]:
        """Stretches that nobody has looked at, below a limit."""
        start = max(self.scanned, self.position)
        for gap_start, gap_end in list(self.done.gaps(start, limit)):
            for a, b in list(self._held.gaps(gap_start, gap_end)):
                yield from list(self._passed_ranges.gaps(a, b))

    # -- changes ---------------------------------------------------------------------------------

    def hand_out(self, offsets: list[int], deliveries: int, folder: str, deadline_ns: int) -> Hold:
        """Make a hold of offsets, in ascending order; they leave those that they were in."""
        ranges = Ranges(ranges_of(offsets))
        hold = self.files.make(folder, ranges, deliveries, deadline_ns)
        old = {self.owner[offset] for offset in offsets if offset in self.owner}
        for one in old:
            one.ranges.discard(ranges)
            self.files.shrink(one)
            if not one.ranges:
                self._remove(one)
        self._add(hold)
        return hold

    def renew(self, offsets: list[int], deadline_ns: int) -> None:
        """Give held offsets, all of one hold, another deadline."""
        hold = self.owner[offsets[0]]
        if hold.ranges.count() == len(offsets):
            self.files.stamp(hold, deadline_ns)
            self._schedule(hold)
        else:
            self.hand_out(offsets, hold.deliveries, hold.folder, deadline_ns)

    def give_up(self, offsets: list[int], deadline_ns: int) -> Hold:
        """Release held offsets, all of one hold, until a moment."""
        hold = self.owner[offsets[0]]
        if hold.is_claim and hold.ranges.count() == len(offsets):
            self.files.to_retry(hold, deadline_ns)
            self._schedule(hold)
            return hold
        return self.hand_out(offsets, hold.deliveries, RETRY, deadline_ns)

    def forget(self, ranges: Iterable[Range]) -> list[Hold]:
        """Take offsets that are done out of their holds; the holds that are empty now."""
        empty: list[Hold] = []
        pop, keys = self.owner.pop, self._keys
        for start, end in ranges:
            touched: dict[int, Hold] = {}
            for offset in range(start, end):
                hold = pop(offset, None)
                if hold is not None:
                    touched[id(hold)] = hold
                    if keys and (key := keys.pop(offset, None)) is not None:
                        self._forget_key(offset, key)
            self._held.remove(start, end)
            for hold in touched.values():
                hold.ranges.remove(start, end)
                if not hold.ranges:
                    self._remove(hold)
                    empty.append(hold)
        return empty

    def _forget_key(self, offset: int, key: str) -> None:
        others = self._offsets.get(key)
        if others is not None:
            others.discard(offset)
            if not others:
                del self._offsets[key]

    def _remove(self, hold: Hold) -> None:
        self.holds.discard(hold)
        self._due.discard(hold)


def _offsets_of(hold: Hold) -> Iterator[tuple[int, Hold]]:
    for start, end in list(hold.ranges):
        for offset in range(start, end):
            yield offset, hold
