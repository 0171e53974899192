"""Handing out: which messages a claim gets, by the order of the channel.

none: any ready message, the lowest offset first. key: of each key only the lowest unfinished
messages, and none while another claim has one of that key: one claim can have several messages of a
key, but never two claims. strict: one claim at a time, in order, up to a message that is not ready.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import takewhile
from typing import NamedTuple

from ..log_settings import Order
from ..ranges import Range
from ..reader import PAGE_BYTES, Page
from ..segment.record import LogMessage
from .progress import Progress

# The most messages that one claim looks at, if keys hold them back.
_MOST_LOOKED_AT = 100_000
# A claim ends early when its bodies reach this many bytes.
MAX_CLAIM_BYTES = 1 << 30
_ENOUGH = 1 << 62


class Asked(NamedTuple):
    """One of several simultaneous requests for a claim.

    number: of messages. visibility: seconds; None: the channel's. max_bytes: of bodies but the
    last.
    """

    number: int
    visibility: float | None = None
    max_bytes: int = MAX_CLAIM_BYTES


class Chosen(NamedTuple):
    """What a claim gets: offsets by their earlier deliveries, and the messages.

    lost: offsets whose messages cannot be read.
    """

    offsets: dict[int, list[int]]
    messages: dict[int, LogMessage]
    keys: dict[int, str]
    lost: list[Range]


class Dispatcher:
    """Chooses for one claim. page: reads messages, and raises Unavailable if it makes no progress.
    limit: the first offset that it must not get.

    max_bytes: of all bodies except the last one. apart: whether the messages are for different
    callers, no two of which may get messages of one key.
    """

    def __init__(
        self,
        progress: Progress,
        order: Order,
        page: Callable[[int, int, int], Page],
        limit: int,
        max_bytes: int = MAX_CLAIM_BYTES,
        *,
        apart: bool = False,
    ) -> None:
        self._progress = progress
        self._order = order
        self._page = page
        self._limit = limit
        self._keys: set[str] = set()  # of chosen messages
        self._of_held: Counter[str] = Counter()  # of chosen messages that were held before
        self._is_claimed: dict[str, bool] = {}
        self._chosen = Chosen({}, {}, {}, [])
        self._number = 0
        self._room = max_bytes
        self._apart = apart

    def choose(self, count: int) -> Chosen:
        """Up to ``count`` messages. Raises OSError, Unavailable."""
        if self._order == "strict":
            if not self._progress.is_any_claimed:
                self._in_order(count)
        else:
            self._due(count)
            if self._order == "key":
                self._passed(count)
            if self._number < count:
                self._fresh(count)
        return self._chosen

    def _add(self, message: LogMessage, deliveries: int) -> None:
        self._chosen.messages[message.offset] = message
        self._chosen.offsets.setdefault(deliveries, []).append(message.offset)
        self._number += 1
        self._room -= len(message.body)
        if self._room <= 0:
            self._number = _ENOUGH
        key = message.key if self._order == "key" else None
        if key is not None:
            self._chosen.keys[message.offset] = key
            self._keys.add(key)

    def _read(self, offset: int) -> LogMessage | None:
        messages, _ = self._stretch(offset, offset + 1, 1)
        return messages[0] if messages else None

    def _stretch(self, offset: int, end: int, number: int) -> tuple[list[LogMessage], int]:
        """About ``number`` messages of a stretch, and where to continue; notes lost ones."""
        # Messages that are read but not handed out take memory, too.
        most_bytes = max(1, min(self._room, PAGE_BYTES))
        page = self._page(offset, min(number, end - offset), most_bytes)
        self._chosen.lost.extend((a, min(b, end)) for a, b in page.lost if a < end)
        if page.next <= end:
            return page.messages, page.next
        # If some are lost, the page reaches beyond the stretch.
        return [message for message in page.messages if message.offset < end], end

    def _due(self, count: int) -> None:
        """Choose messages whose claim or delay has ended."""
        with closing(self._progress.due()) as due:
            for offset, hold in due:
                if self._number >= count:
                    return
                key = self._progress.keys.key(offset)
                if key is not None and self._must_wait(offset, key):
                    continue
                message = self._read(offset)
                if message is not None:
                    self._add(message, hold.deliveries)
                    if key is not None:
                        self._of_held[key] += 1

    def _must_wait(self, offset: int, key: str) -> bool:
        """Whether a message that is held waits for others of its key."""
        keys, owner = self._progress.keys, self._progress.owner
        if self._is_taken(key) or keys.number_below(key, offset) > self._of_held[key]:
            return True
        if key not in self._is_claimed:
            self._is_claimed[key] = any(owner[one].is_claimed for one in keys.held(key))
        return self._is_claimed[key]

    def _is_taken(self, key: str) -> bool:
        """Whether another caller gets a message of this key."""
        return self._apart and key in self._keys

    def _passed(self, count: int) -> None:
        """Choose messages that waited for others of their key, which are done now."""
        progress = self._progress
        with closing(progress.keys.free(self._of_held)) as free:
            while self._number < count and (key := next(free, None)) is not None:
                while self._number < count and not self._is_taken(key):
                    offset = progress.keys.take(key, progress.is_known)
                    if offset is None:
                        break
                    message = self._read(offset)
                    if message is not None:
                        self._add(message, 0)

    def _fresh(self, count: int) -> None:
        """Choose messages that were not looked at yet."""
        progress, looked_at = self._progress, 0
        progress.is_cut = False
        for start, end in progress.fresh(self._limit):
            offset = start
            while offset < end:
                progress.is_cut = looked_at > _MOST_LOOKED_AT
                if self._number >= count or progress.is_cut:
                    return
                messages, offset = self._stretch(offset, end, max(count - self._number, 64))
                for message in messages:
                    if self._number >= count:
                        return
                    looked_at += 1
                    self._take_or_pass(message)
                    progress.scanned = message.offset + 1
                progress.scanned = max(progress.scanned, offset)

    def _take_or_pass(self, message: LogMessage) -> None:
        if self._order == "key":
            key = message.key
            if key is not None and (
                self._is_taken(key)
                or self._progress.keys.is_passed(key)
                or len(self._progress.keys.held(key)) > self._of_held[key]
            ):
                self._progress.keys.pass_over(message.offset, key)
                return
        self._add(message, 0)

    def _in_order(self, count: int) -> None:
        """Choose from the lowest unfinished message on, up to the first that is not ready."""
        progress = self._progress
        offset = progress.position
        while self._number < count and offset < self._limit:
            offset = progress.done.after(offset)
            hold = progress.owner.get(offset)
            if hold is None:
                end = min(self._limit, progress.next_known(offset))
                if end <= offset:
                    return
                messages, offset = self._stretch(offset, end, count - self._number)
                for found in messages:
                    if self._number >= count:
                        return
                    self._add(found, 0)
                continue
            if not hold.is_due or hold in progress.poison:
                return
            message = self._read(offset)
            if message is not None:
                self._add(message, hold.deliveries)
            offset += 1


def together(asked: Sequence[Asked], order: Order) -> Sequence[Asked]:
    """The first request, and the next ones that can share its claim, as each is for one message."""
    first = asked[0]
    if order == "strict" or first.number > 1:
        return asked[:1]
    alike = (1, first.visibility)
    return list(takewhile(lambda one: (one.number, one.visibility) == alike, asked))
