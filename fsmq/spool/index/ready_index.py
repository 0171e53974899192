"""The ready ids of one queue in order; `fsmq.spool.index.ready` keeps one for each queue in use."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from heapq import nsmallest

from ..layout.steps import portions
from .quarantine import Quarantine
from .runs import Runs
from .share import Share

# How long waiting clients leave an id to processes that prefer it, and all leave a busy id.
GRACE_S = 0.05
# How often, in changes, the number of places is checked; and how many extra ones are ignored.
_LOOK_EVERY, _SPARE = 1000, 1024


class ReadyIndex:
    """The ready ids of one queue, the preferred ones first, each kind in name order.

    `add` returns in how many seconds to wake waiting clients: an id that other processes prefer is
    left to them for ``GRACE_S``. Otherwise two processes with waiting clients would both try each
    arrival, and one would lose the race. A claim right now may take it.

    An id that could not be claimed waits in quarantine. Otherwise it would always be tried first.
    """

    def __init__(self, share: Share) -> None:
        self.share = share
        self.present: set[str] = set()
        self._own = Runs()
        self._rest = Runs()
        self._busy: deque[tuple[float, str]] = deque()  # since (monotonic), id
        self._quarantined = Quarantine(limit=sys.maxsize)
        self._set_aside: list[str] = []  # those in quarantine when it was filled
        self._changes = 0

    def __len__(self) -> int:
        return len(self.present)

    def load(self, ids: Iterable[str]) -> None:
        """Replace everything by ``ids``."""
        self._fill(ids)
        self._quarantined.keep(self.present)

    def successor(self, ids: Iterable[str]) -> ReadyIndex:
        """An index of ``ids`` that will replace this one, which stays in use until then.

        Both share the quarantine.
        """
        index = ReadyIndex(self.share)
        index._quarantined = self._quarantined
        index._fill(ids)
        return index

    def take_place(self, share: Share) -> None:
        """Replace the previous index, with this share."""
        if share != self.share:
            self.share = share
            self._rebuild()
        self._quarantined.keep(self.present)
        for message_id in self._set_aside:
            # It has been popped, and its outcome was reported to the previous index.
            if message_id in self.present and message_id not in self._quarantined:
                self._place(message_id)
        self._set_aside = []

    def _fill(self, ids: Iterable[str]) -> None:
        self.present = set()
        for portion in portions(ids):
            self.present.update(portion)
        self._rebuild()

    def add(self, message_id: str) -> float | None:
        """Add an id; in how many seconds to wake a waiting client, or None if it was there."""
        if message_id in self.present:
            return None
        self.present.add(message_id)
        self._note_change()
        return self._place(message_id)

    def postpone(self, message_id: str) -> None:
        """Add an id that cannot be claimed right now, to be popped after ``GRACE_S``."""
        if message_id not in self.present:
            self.present.add(message_id)
            self._busy.append((time.monotonic(), message_id))

    def quarantine(self, message_id: str) -> None:
        """Add an id that could not be claimed, for :meth:`pop_failed`."""
        self.present.add(message_id)
        self._quarantined.add(message_id, time.monotonic())

    def discard(self, message_id: str) -> None:
        """Forget an id. Its place is dropped when its turn comes, or when too many are void."""
        if message_id not in self.present:
            return  # the usual case: this process has claimed it
        self.present.remove(message_id)
        self._quarantined.forget(message_id)
        self._note_change()

    def pop(self) -> str | None:
        """Remove and return the next id; None if there is none."""
        return next(iter(self.pop_some(1)), None)

    def pop_some(self, limit: int) -> list[str]:
        """Remove and return the next ids, up to ``limit``."""
        self._ripen()
        popped: list[str] = []
        for runs in (self._own, self._rest):
            while len(popped) < limit and (message_id := runs.pop()) is not None:
                if message_id in self.present:
                    self.present.remove(message_id)
                    popped.append(message_id)
        return popped

    def has_next(self) -> bool:
        """Whether :meth:`pop` would find one."""
        self._ripen()
        for runs in (self._own, self._rest):
            while (message_id := runs.peek()) is not None:
                if message_id in self.present:
                    return True
                runs.pop()
        return False

    def pop_failed(self, *, early: bool = False) -> str | None:
        """Remove and return an id in quarantine that is due or, if ``early``, due next."""
        while self._quarantined:
            now = time.monotonic()
            message_id = self._quarantined.pop_first() if early else self._quarantined.pop_due(now)
            if message_id is None:
                break
            if message_id in self.present:
                self.present.remove(message_id)
                return message_id
        return None

    def first(self, limit: int) -> list[str]:
        """The first ``limit`` ids, including those that others prefer; none is removed."""
        busy = (message_id for _, message_id in self._busy if message_id in self.present)
        own, rest = (runs.first(limit, self.present) for runs in (self._own, self._rest))
        return nsmallest(limit, {*own, *rest, *busy, *self._quarantined})

    def ripens_in(self) -> float | None:
        """Seconds until one more id can be popped; None if none waits."""
        while self._busy and self._busy[0][1] not in self.present:
            self._busy.popleft()
        times = [self._busy[0][0] + GRACE_S] if self._busy else []
        if (again := self._quarantined.next_s()) is not None:
            times.append(again)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _note_change(self) -> None:
        """Now and then, drop void places if there are too many."""
        self._changes += 1
        if self._changes % _LOOK_EVERY:
            return
        places, ids = len(self._own) + len(self._rest) + len(self._busy), len(self.present)
        if places > 4 * (ids + _SPARE):
            self._rebuild()  # by ids that came again and again
        elif places > 2 * (ids + _SPARE):
            self._own.thin(self.present)
            self._rest.thin(self.present)

    def _place(self, message_id: str) -> float:
        """Give an id its place; in how many seconds to wake a waiting client."""
        is_own = self.share.prefers(message_id)
        (self._own if is_own else self._rest).add(message_id, self.present)
        return 0.0 if is_own else GRACE_S

    def _ripen(self) -> None:
        if not self._busy:
            return
        ripe = time.monotonic() - GRACE_S
        while self._busy and self._busy[0][0] <= ripe:
            self._place(self._busy.popleft()[1])

    def _rebuild(self) -> None:
        self._busy.clear()
        self._own, self._rest = Runs(), Runs()
        self._set_aside = [one for one in self._quarantined if one in self.present]
        aside = set(self._set_aside)
        ids = (one for one in self.present if one not in aside) if aside else self.present
        if self.share.of == 1:
            self._own.fill(ids)
            return
        for portion in portions(ids):
            self._own.fill([i for i in portion if self.share.prefers(i)])
            self._rest.fill([i for i in portion if not self.share.prefers(i)])


class Entry:
    """An index and what is known about its freshness."""

    def __init__(self, share: Share) -> None:
        self.index = ReadyIndex(share)
        self.scanned = 0.0  # when the last listing began, monotonic seconds
        self.stale_at = 0.0  # also 0 if events were lost
        self.used = time.monotonic()
        self.watched = False
        self.scanning = threading.Lock()
        # Events during a listing, to be applied to its result. None: no listing runs, or some of
        # its events were lost.
        self.meanwhile: list[tuple[bool, str]] | None = None

    @property
    def is_exact(self) -> bool:
        """Whether events have reported all changes since it was listed."""
        return self.watched and self.stale_at > 0.0 and self.meanwhile is None

    def is_stale(self) -> bool:
        return time.monotonic() >= self.stale_at

    def note(self, ids: Sequence[str], *, arrived: bool) -> list[float]:
        """Add or forget ids; for each new one, in how many seconds to wake a waiting client."""
        if self.meanwhile is not None:
            self.meanwhile += [(arrived, message_id) for message_id in ids]
        if arrived:
            added = map(self.index.add, ids)
            return [seconds for seconds in added if seconds is not None]
        for message_id in ids:
            self.index.discard(message_id)
        return []
