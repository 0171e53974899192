"""The number of a queue's claims, for queues that limit it.

File events update the count where they arrive: each rename is reported before it returns, so the
next claim, which needs the same lock, counts it. Without events ``delay/`` is listed now and then;
claims since then are added, and ends since then are unknown: the count is never too small.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ..index import listings
from ..index.events import Event, Kind
from ..index.listings import Unlisted
from ..index.ready import Ready
from ..index.timers import Timers
from ..layout.duty_cycle import DutyCycle
from ..layout.names import split_entry
from ..layout.of_queues import OfQueues
from ..layout.stamps import Stamp, Stamps
from ..layout.transitions import DELAY
from ..layout.tree import Tree

_SHARE = 0.05


def hidden_ids(tree: Tree, queue: str) -> set[str]:
    """The messages of a queue in ``delay/``. Raises OSError."""
    prefix = queue + ":"
    names = [name for name in tree.names(tree.folder(DELAY)) if name.startswith(prefix)]
    return {parts[1] for parts in map(split_entry, names) if parts and parts[0] == queue}


class _Claims:
    """The claims of one queue. unknown: ids in ``delay/`` that have to be looked at."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.unknown: set[str] = set()
        self.is_listed = False
        self.polls = False  # whether no events arrive
        self.due = 0.0  # the next listing if they do not
        self.granted = 0  # claims ever made by the last listing


class InFlight:
    """Counts the claims of some queues. Safe in threads.

    on_end: called with a queue when an event shows that a claim has ended. on_unlisted: called with
    a queue that has to be listed, in a thread that may not do so.
    """

    def __init__(
        self,
        tree: Tree,
        stamps: Stamps,
        ready: Ready,
        on_end: Callable[[str], None],
        on_unlisted: Callable[[str], None],
    ) -> None:
        self._tree = tree
        self._stamps = stamps
        self._ready = ready
        self._on_end = on_end
        self._on_unlisted = on_unlisted
        self._folder = tree.folder(DELAY)
        self._lock = threading.RLock()
        self._queues: OfQueues[_Claims] = OfQueues(tree)
        self._polling = DutyCycle(_SHARE, ready.poll_interval)

    def count(self, queue: str, now_ms: int, granted: int) -> int:
        """How many claims a queue has, while the lock of its limits is held.

        granted: how many claims were ever made. Raises Unlisted, OSError.
        """
        self._ready.refresh()  # which may report lost events, so that all must be listed
        claims = self._queues.get(queue)
        if claims is None or not claims.is_listed or self._is_due(claims):
            claims = self._list(queue, granted)
        with self._lock:
            self._look_up(queue, claims)
            while claims.timers.pop_due(now_ms) is not None:
                pass
            more = max(0, granted - claims.granted) if claims.polls else 0
            unread = sum(message_id not in claims.timers for message_id in claims.unknown)
            return len(claims.timers) + unread + more

    def next_ms(self, queue: str) -> int | None:
        """When the next claim ends, in Unix milliseconds."""
        with self._lock:
            claims = self._queues.get(queue)
            return None if claims is None else claims.timers.next_ms()

    def polls(self, queue: str) -> bool:
        """Whether a queue's claims have to be counted now and then, as no event reports an end."""
        claims = self._queues.get(queue)
        return self._ready.polls if claims is None else claims.polls or bool(claims.unknown)

    def forget(self, queue: str) -> None:
        """Stop counting a queue."""
        with self._lock:
            self._queues.pop(queue, None)
            is_last = not self._queues
        if is_last:
            self._ready.listen(self._folder, None, of=self)
            self._on_loss()  # for a queue that another thread has just begun to count

    def _is_due(self, claims: _Claims) -> bool:
        return claims.polls and time.monotonic() >= claims.due and listings.are_allowed()

    def _list(self, queue: str, granted: int) -> _Claims:
        if not listings.are_allowed():
            self._on_unlisted(queue)
            raise Unlisted(queue)
        started = time.monotonic()
        claims = _Claims()
        claims.granted = granted
        claims.is_listed = True  # unless events are lost from now on
        with self._lock:
            self._queues[queue] = claims
        try:
            # Watch first, list afterwards: ids that arrive in between are seen twice, never missed.
            # (Without our lock: events arrive under another one.)
            hears = self._ready.listen(
                self._folder, self._on_event, self._on_loss, changes=True, of=self
            )
            claims.polls = not hears
            hidden = hidden_ids(self._tree, queue)
        except BaseException:
            claims.is_listed = False
            raise
        with self._lock:
            claims.unknown |= hidden
            self._look_up(queue, claims)
        claims.due = time.monotonic() + self._polling.pause(time.monotonic() - started)
        return claims

    def _look_up(self, queue: str, claims: _Claims) -> None:
        for message_id in list(claims.unknown):
            try:
                stamp = self._stamp(queue, message_id)
            except OSError:
                continue  # it counts as a claim until it can be read
            # Where times are coarse no count is known, and a delay counts as a claim.
            if stamp and stamp.is_claim:
                claims.timers.start(message_id, stamp.deadline_ms)
            else:
                claims.timers.cancel(message_id)
            claims.unknown.discard(message_id)

    def _has_ended(self, queue: str, message_id: str) -> bool:
        """Whether a message waits for its backoff; False if it cannot be read."""
        try:
            stamp = self._stamp(queue, message_id)
        except OSError:
            return False
        return bool(stamp and stamp.backs_off)

    def _stamp(self, queue: str, message_id: str) -> Stamp | None:
        found = self._tree.stat(self._tree.folder(DELAY, f"{queue}:{message_id}"))
        return found and self._stamps.decode(message_id, found.st_mtime_ns)

    def _on_event(self, event: Event) -> None:
        parts = split_entry(event.name)
        with self._lock:
            claims = self._queues.get(parts[0]) if parts is not None else None
            if parts is None or claims is None:
                return
            queue, message_id = parts
            if event.kind is not Kind.LEFT:
                claims.unknown.add(message_id)
                if event.kind is not Kind.CHANGED or not self._has_ended(queue, message_id):
                    return
            claims.unknown.discard(message_id)
            claims.timers.cancel(message_id)
        self._on_end(queue)

    def _on_loss(self) -> None:
        with self._lock:
            for claims in self._queues.values():
                claims.is_listed = False
