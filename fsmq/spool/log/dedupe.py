"""Ids that publishers gave, and the offsets at which they were first stored."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from ..errors import InvalidValue
from .segment.record import Entry, LogMessage

_Given = tuple[int, int, str]
"""The time of a message, its offset, and its id."""


class Ids:
    """The ids of durable messages of a log that are not older than a time.

    A publish of an id stores nothing if the log has a message with the id whose time is at most
    ``window`` seconds from now: whatever times other messages have, and whatever the clock said
    before.

    seen: the offset up to which the log was read for ids.
    """

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self.seen = 0
        self._window_us = int(window_s * 1e6)
        self._since_us: int | None = None
        self._of: dict[str, tuple[_Given, ...]] = {}
        self._oldest: list[_Given] = []  # a heap

    def since(self, now_us: int) -> int:
        """The time from which on ids have to be known now."""
        return now_us - self._window_us

    def knows(self, now_us: int) -> bool:
        """Whether all ids that matter now are known; not if the clock was set back."""
        return self._since_us is not None and self._since_us <= self.since(now_us)

    def add(self, messages: Iterable[LogMessage]) -> None:
        """Note messages, in their order."""
        for message in messages:
            self._add(message.id, message.offset, message.time_us)

    def add_own(self, first: int, entries: Sequence[Entry], time_us: int) -> None:
        """Note what this process has published durably, if all before it is known."""
        if self.seen != first:
            return  # it will be read with the rest
        for offset, (_, _, own) in enumerate(entries, first):
            self._add(own, offset, time_us)

    def _add(self, own: str | None, offset: int, time_us: int) -> None:
        if own is not None:
            given = (time_us, offset, own)
            before = self._of.get(own)
            self._of[own] = (given,) if before is None else (*before, given)
            heapq.heappush(self._oldest, given)
        self.seen = offset + 1

    def forget(self, now_us: int) -> None:
        """Forget ids of messages that are too old."""
        self._since_us = since_us = self.since(now_us)
        while self._oldest and self._oldest[0][0] < since_us:
            given = heapq.heappop(self._oldest)
            left = tuple(one for one in self._of.pop(given[2]) if one is not given)
            if left:
                self._of[given[2]] = left

    def _find(self, own: str, now_us: int) -> int | None:
        """The offset of the first message of an id whose time is close enough to now."""
        for time_us, offset, _ in self._of.get(own, ()):
            if abs(now_us - time_us) <= self._window_us:
                return offset
        return None

    def first_of(self, entries: Sequence[Entry], others: Ids, now_us: int) -> int | None:
        """The first offset of a batch that is already stored; None if it is new.

        others: the ids of messages that are not durable yet.

        Raises:
            InvalidValue: some of its ids are known and others are not, or not in this order.
        """
        found: list[int | None] = []
        for own in (entry.id for entry in entries):
            offset = self._find(own, now_us) if own is not None else None
            if offset is None and own is not None and others._of:
                offset = others._find(own, now_us)
            found.append(offset)
        if all(one is None for one in found):
            ids = [entry.id for entry in entries if entry.id is not None]
            if len(set(ids)) < len(ids):
                raise InvalidValue("id", "is given twice in one batch")
            return None
        first = found[0]
        if first is None or any(
            entry.id is not None and found[number] != first + number
            for number, entry in enumerate(entries)
        ):
            raise InvalidValue("id", "some messages of the batch are in the log, others are not")
        return first
