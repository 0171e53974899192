"""Ids that publishers gave, and the offsets that they got first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from ..errors import InvalidValue
from .record import Entry, LogMessage


class Ids:
    """The ids of the messages of the last ``window`` seconds of a log, of what is durable.

    seen: the offset up to which the log was read for them; None if not at all.
    """

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self.seen: int | None = None
        self._first: dict[str, int] = {}
        self._order: deque[tuple[int, str, int]] = deque()

    def add(self, messages: Iterable[LogMessage]) -> None:
        """Note messages, in their order."""
        for message in messages:
            self._add(message.id, message.offset, message.time_us)

    def add_own(self, first: int, entries: Sequence[Entry], time_us: int) -> None:
        """Note what this process has published durably, unless something is unknown before it."""
        if self.seen != first:
            return  # then it is read, with the rest
        for offset, (_, _, own) in enumerate(entries, first):
            self._add(own, offset, time_us)

    def _add(self, own: str | None, offset: int, time_us: int) -> None:
        if own is not None:
            self._first[own] = offset
            self._order.append((time_us, own, offset))
        self.seen = offset + 1

    def forget(self, now_us: int) -> None:
        """Forget ids of messages that are not of the window now; of one that is as far ahead
        nobody knows how old it is, since the clock was set back."""
        window_us = int(self.window_s * 1e6)
        while self._order and abs(now_us - self._order[0][0]) > window_us:
            _, own, offset = self._order.popleft()
            if self._first.get(own) == offset:  # else it was used again, later
                del self._first[own]

    def first_of(self, entries: Sequence[Entry], others: Mapping[str, int]) -> int | None:
        """The first offset of a batch that is stored already; None if it is new.

        others: ids of messages that are not durable yet, and their offsets.

        Raises:
            InvalidValue: some of its ids are known and others are not, or not in this order.
        """
        found = [
            None if own is None else self._first.get(own, others.get(own))
            for own in (entry.id for entry in entries)
        ]
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
