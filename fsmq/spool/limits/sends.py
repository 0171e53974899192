"""Sends into fifo queues: each message gets its place in the order before it is written.

All puts of a process share the lock of the queue's sends, as they share a sync. They are shown in
their order, whichever is durable first.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable

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


class Unsent(Unavailable):
    """Another process sends into the queue: this has to wait, in a thread that may."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"another process sends into queue {queue!r}", 1)
        self.queue = queue


class Sends:
    """The sends of one process into all fifo queues. Safe in threads."""

    def __init__(self, tree: Tree, stamps: Stamps, clock: Callable[[], float]) -> None:
        self._tree = tree
        self._stamps = stamps
        self._clock = clock
        self._queues: dict[str, _Queue] = {}
        self._lock = threading.Lock()

    def enter(self, queue: str, count: int) -> Place:
        """Take the next places of a queue, behind those of all that were taken before.

        Raises:
            Unsent: where this thread may not wait.
            Unavailable, OSError
        """
        with self._lock:
            one = self._queues.get(queue)
            if one is None:
                one = self._queues[queue] = _Queue(self._tree, self._stamps, self._clock, queue)
        place = one.enter(count)
        if place is not None:
            return place
        if not listings.are_allowed():
            raise Unsent(queue)
        place = patiently(lambda: one.enter(count), _PATIENCE_S, _PAUSE_S)
        if place is None:
            raise Unsent(queue)
        return place


class Place:
    """The places of one put. first: the lowest of them. path: of the file that has to be synced."""

    def __init__(self, queue: _Queue, first: int, path: str) -> None:
        self.first = first
        self.path = path
        self.show: Callable[[], None] | None = None
        self.is_over = False
        self._queue = queue

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
        self._tree = tree
        self._stamps = stamps
        self._clock = clock
        self._queue = queue
        self._path = tree.folder(CONFIG, sends_name(queue))
        self._guard = threading.RLock()
        self._places: deque[Place] = deque()
        self._held: Lock | None = None
        self._since = 0.0
        self._rests_until = 0.0
        self._last = 0
        self._is_known = False  # what others left is shown, as far as this process can know

    def enter(self, count: int) -> Place | None:
        with self._guard:
            if self._held is None:
                if not self._begin():
                    return None
            elif time.monotonic() - self._since > _TURN_S and self._places:
                return None  # others wait for their turn: it comes when all of ours are shown
            first = max(self._last + 1, now_ticks(self._clock()))
            try:
                self._write(Line(first + count - 1))
            except BaseException:
                self._end()
                raise
            self._last = first + count - 1
            place = Place(self, first, self._path)
            self._places.append(place)
            return place

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
            self._show(place)

    def _show(self, own: Place) -> None:
        error: BaseException | None = None
        while self._places and (show := self._places[0].show) is not None:
            place = self._places.popleft()
            place.is_over = True
            try:
                show()
            except BaseException as problem:
                self._is_known = False
                if place is own:
                    error = problem
        self._end()
        if error is not None:
            raise error

    def _begin(self) -> bool:
        if time.monotonic() < self._rests_until:
            return False
        held = lock(self._tree, self._path, os.O_CREAT)
        if held is None:
            return False
        try:
            line = read_line(held.fd)
            if not (line.is_over and self._is_known):
                if not listings.are_allowed():
                    raise Unsent(self._queue)
                recover_held(self._tree, self._stamps, self._queue, self._clock())
                self._is_known = True
            self._last = max(self._last, line.last)
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
                write_line(held.fd, Line(self._last, is_over=True))
        except OSError:
            self._is_known = False
        finally:
            held.unlock()
