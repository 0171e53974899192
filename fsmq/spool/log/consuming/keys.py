"""The keys of a channel's messages: which messages are held, and which wait for others of a key."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Mapping

from ..ranges import Range, Ranges

KeysOf = Callable[[Iterable[Range]], Mapping[int, str]]


class Keys:
    """The keys of one generation of a channel. Held: handed out or released, and not done."""

    def __init__(self) -> None:
        self.waiting = Ranges()  # offsets that were passed over
        self._key_of: dict[int, str] = {}  # of those that are held
        self._held: dict[str, list[int]] = {}  # their offsets, sorted
        self._unknown = Ranges()  # held offsets whose keys only another process knows
        self._passed: dict[str, deque[int]] = {}  # offsets that wait, sorted
        # Keys with messages that may be free, by the lowest that waits; the key can be held again.
        self._free: list[tuple[int, str]] = []

    # -- held ------------------------------------------------------------------------------------

    def expect(self, start: int, end: int) -> None:
        """Note that messages are held whose keys have to be learned."""
        self._unknown.add(start, end)

    def expect_no_more(self, start: int, end: int) -> None:
        """Note that messages are done."""
        self._unknown.remove(start, end)

    def learn(self, held: Ranges, keys_of: KeysOf) -> None:
        """Read the unknown keys of messages that are still held."""
        unknown, self._unknown = self._unknown, Ranges()
        wanted = Ranges(one for start, end in unknown for one in held.within(start, end))
        if wanted:
            self.hold({o: key for o, key in keys_of(wanted).items() if o in wanted})

    def hold(self, keys: Mapping[int, str]) -> None:
        """Note the keys of messages that are held now."""
        for offset, key in keys.items():
            if offset not in self._key_of:
                self._key_of[offset] = key
                insort(self._held.setdefault(key, []), offset)

    def finish(self, offsets: Iterable[int]) -> None:
        """Note that messages are done."""
        if not self._key_of:
            return
        for offset in offsets:
            key = self._key_of.pop(offset, None)
            if key is None:
                continue
            others = self._held[key]
            del others[bisect_left(others, offset)]
            if not others:
                del self._held[key]
                self._free_if_passed(key)

    def key(self, offset: int) -> str | None:
        """The key of a message that is held."""
        return self._key_of.get(offset)

    def held(self, key: str) -> Collection[int]:
        """The messages of a key that are held."""
        return self._held.get(key, ())

    def number_below(self, key: str, offset: int) -> int:
        """How many messages of a key are held before a held one."""
        return bisect_left(self._held[key], offset)

    # -- passed over -----------------------------------------------------------------------------

    def pass_over(self, offset: int, key: str) -> None:
        """Note that a message waits for others of its key."""
        self._passed.setdefault(key, deque()).append(offset)
        self.waiting.add(offset, offset + 1)
        if key not in self._held:
            self._free_if_passed(key)

    def is_passed(self, key: str) -> bool:
        return key in self._passed

    def free(self, chosen: Mapping[str, int]) -> Generator[str]:
        """Keys whose waiting messages may be handed out, by the lowest of them.

        chosen: how many held messages of each key this claim has chosen.
        """
        for key, number in chosen.items():
            if number == len(self.held(key)):
                self._free_if_passed(key)
        left: list[str] = []
        seen: set[str] = set()
        try:
            while self._free:
                _, key = heapq.heappop(self._free)
                if key not in self._passed or key in seen:
                    continue
                if len(self.held(key)) > chosen.get(key, 0):
                    continue  # it is added again when they are done
                seen.add(key)
                left.append(key)
                yield key
        finally:
            for key in left:
                self._free_if_passed(key)

    def take(self, key: str, is_gone: Callable[[int], bool]) -> int | None:
        """The next waiting message of a key; None if there is none."""
        while waiting := self._passed.get(key):
            offset = waiting.popleft()
            self.waiting.remove(offset, offset + 1)
            if not waiting:
                del self._passed[key]
            if not is_gone(offset):
                return offset
        return None

    def _free_if_passed(self, key: str) -> None:
        if waiting := self._passed.get(key):
            heapq.heappush(self._free, (waiting[0], key))
