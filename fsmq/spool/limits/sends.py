"""Sends into fifo queues: each message gets its place in the order before it is written.

All puts of a process share the lock of the queue's sends, as they share a sync. They are shown in
their order, whichever is durable first.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from ..durability.dedup_records import DedupRecords, Record, Written
from ..durability.locks import Lock, lock, patiently
from ..durability.send_lines import Line, read_line, recover_held, write_line
from ..errors import Unavailable
from ..index import listings
from ..layout.names import sends_name
from ..layout.stamps import Stamps
from ..layout.transitions import CONFIG
from ..layout.tree import Tree
from ..layout.uuids import now_ticks

# How long a put waits for the puts of other processes, where it may wait at all.
_PATIENCE_S = 10.0
# After so long a process lets others have their turn, if they want it.
_TURN_S = 1.0
_PAUSE_S = 0.002
# What a thread that may not wait reads of records that others have written.
_MOST_BYTES = 100_000


class Unsent(Unavailable):
    """Others send into the queue, or the same: this has to wait, in a thread that may."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"another put into queue {queue!r} is under way", 1)
        self.queue = queue


class Sends:
    """The sends of one process into all fifo queues. Safe in threads."""

    def __init__(self, tree: Tree, stamps: Stamps, clock: Callable[[], float]) -> None:
        self._tree = tree
        self._stamps = stamps
        self._clock = clock
        self._queues: dict[str, _Queue] = {}
        self._lock = threading.Lock()

    def enter(self, queue: str, keys: Sequence[bytes | None]) -> Place:
        """Take the next places of a queue, behind those of all that were taken before.

        keys: of each message that of its deduplication id, or None; no key twice. What is stored
            already gets no place.

        Raises:
            Unsent: where this thread may not wait.
            Unavailable, OSError
        """
        with self._lock:
            one = self._queues.get(queue)
            if one is None:
                one = self._queues[queue] = _Queue(self._tree, self._stamps, self._clock, queue)
        place = one.enter(keys)
        if place is not None:
            return place
        if not listings.are_allowed():
            raise Unsent(queue)
        place = patiently(lambda: one.enter(keys), _PATIENCE_S, _PAUSE_S)
        if place is None:
            raise Unsent(queue)
        return place


class Place:
    """The places of one put.

    first: the lowest of them. known: for each message the id of the one that was stored before.
    paths: of the files that have to be synced.
    """

    def __init__(self, queue: _Queue, first: int, known: list[str | None]) -> None:
        self.first = first
        self.known = known
        self.last = first + known.count(None) - 1
        self.paths = [queue.path]
        self.show: Callable[[], None] | None = None
        self.is_over = False
        self.keys: list[bytes] = []
        self.written: Written | None = None
        self._queue = queue

    def note(self, messages: Sequence[tuple[bytes, str]]) -> None:
        """Write down which messages some deduplication ids become. Raises OSError."""
        self._queue.note(self, messages)

    def finish(self, show: Callable[[], None]) -> None:
        """Show its messages, which are durable now; those in front of it first.

        Where one in front is not durable yet, that one shows these, too. Raises what ``show`` does.
        """
        self._queue.finish(self, show)

    def abandon(self) -> None:
        """Let those behind go on: nothing of it will be shown."""
        self._queue.abandon(self)


class _Queue:
    """The sends of one process into one queue."""

    def __init__(self, tree: Tree, stamps: Stamps, clock: Callable[[], float], queue: str) -> None:
        self.path = tree.folder(CONFIG, sends_name(queue))
        self._tree = tree
        self._stamps = stamps
        self._clock = clock
        self._queue = queue
        self._guard = threading.RLock()
        self._places: deque[Place] = deque()
        self._held: Lock | None = None
        self._since = 0.0
        self._rests_until = 0.0
        self._last = self._settled = 0
        self._is_known = False  # what others left is shown, as far as this process can know
        self._records = DedupRecords(tree, queue)
        self._has_learned = False  # what others have put with deduplication ids
        self._under_way: set[bytes] = set()
        self._failed: list[Written] = []  # could not be made void yet

    def enter(self, keys: Sequence[bytes | None]) -> Place | None:
        with self._guard:
            if self._held is None:
                if not self._begin():
                    return None
            elif time.monotonic() - self._since > _TURN_S and self._places:
                return None  # others wait for their turn: it comes when all of ours are shown
            try:
                return self._enter(keys)
            except BaseException:
                self._end()
                raise

    def _enter(self, keys: Sequence[bytes | None]) -> Place | None:
        given = {key for key in keys if key is not None}
        if not given.isdisjoint(self._under_way):
            self._end()
            return None
        known: list[str | None] = self._find(keys) if given else [None] * len(keys)
        first = max(self._last + 1, now_ticks(self._clock()))
        place = Place(self, first, known)
        if place.last < first:
            place.is_over = True
            self._end()
            return place
        self._write(Line(place.last, settled=self._settled))
        self._last = place.last
        place.keys = [
            key for key, of in zip(keys, known, strict=True) if of is None and key is not None
        ]
        self._under_way.update(place.keys)
        self._places.append(place)
        return place

    def _find(self, keys: Sequence[bytes | None]) -> list[str | None]:
        now_ms = int(self._clock() * 1000)
        if not self._has_learned:
            most = None if listings.are_allowed() else _MOST_BYTES
            if not self._records.learn(now_ms, most):
                raise Unsent(self._queue)
            self._has_learned = True
        return [None if key is None else self._records.find(key, now_ms) for key in keys]

    def note(self, place: Place, messages: Sequence[tuple[bytes, str]]) -> None:
        now_ms = int(self._clock() * 1000)
        with self._guard:
            place.written = self._records.place(
                [Record(key, now_ms, message_id) for key, message_id in messages], now_ms
            )
            place.paths.append(self._records.write(place.written))

    def finish(self, place: Place, show: Callable[[], None]) -> None:
        with self._guard:
            place.show = show
            self._show(place)

    def abandon(self, place: Place) -> None:
        with self._guard:
            if place.is_over:
                return
            if place in self._places:
                self._places.remove(place)
            place.is_over = True
            self._forget(place)
            self._show(place)

    def _show(self, own: Place) -> None:
        error: BaseException | None = None
        while self._places and (show := self._places[0].show) is not None:
            place = self._places.popleft()
            place.is_over = True
            try:
                if place.written is not None:
                    self._settle(place.last)
                show()
            except BaseException as problem:
                self._is_known = False
                if place is own:
                    self._forget(place)
                    error = problem
            else:
                if place.written is not None:
                    self._records.hold(place.written)
            self._under_way.difference_update(place.keys)
        self._end()
        if error is not None:
            raise error

    def _settle(self, last: int) -> None:
        """Say that all records up to a place hold. Raises OSError."""
        while self._failed:
            self._records.void(self._failed[-1])
            self._failed.pop()
        self._write(Line(self._last, settled=last))
        self._settled = last

    def _forget(self, place: Place) -> None:
        """Let the records of a put that failed not hold."""
        self._under_way.difference_update(place.keys)
        if place.written is None:
            return
        self._records.forget()  # who cannot write may not know where the file ends
        self._has_learned = False
        try:
            self._records.void(place.written)
        except OSError:
            self._is_known = False
            self._failed.append(place.written)

    def _begin(self) -> bool:
        if time.monotonic() < self._rests_until:
            return False
        held = lock(self._tree, self.path, os.O_CREAT)
        if held is None:
            return False
        try:
            line = read_line(held.fd)
            if not (line.is_over and self._is_known):
                if not listings.are_allowed():
                    raise Unsent(self._queue)
                recover_held(self._tree, self._stamps, self._queue, self._clock(), held.fd)
                line = read_line(held.fd)
                self._records.forget()
                self._failed.clear()
                self._is_known = True
            self._settled = self._last = max(self._last, line.last)
            self._has_learned = False
        except BaseException:
            held.unlock()
            raise
        self._held, self._since = held, time.monotonic()
        return True

    def _write(self, line: Line) -> None:
        assert self._held is not None
        write_line(self._held.fd, line)

    def _end(self) -> None:
        """Let others send, if nothing of ours is left to be shown."""
        if self._places or self._held is None:
            return
        held, self._held = self._held, None
        if time.monotonic() - self._since > _TURN_S:
            self._rests_until = time.monotonic() + 2 * _PAUSE_S
        try:
            if self._is_known:
                write_line(held.fd, Line(self._last, is_over=True, settled=self._last))
        except OSError:
            self._is_known = False
        finally:
            held.unlock()
