"""Delivery: what the mover does, in any process that does it.

new → queues for every message, new → delay for those whose timer lies ahead, and delay → queues
(or the dead letters) when a timer ends. Events wake it, the folders are the truth: a scan at any
time puts right whatever events missed. Any number of deliveries on one tree do no harm, since each
step is a rename that one of them wins.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ..context import Context
from ..index.events import Event, Events, Kind
from ..layout.transitions import DELAY, NEW, QUEUES
from .delay import Returns
from .expiry import Sweeper
from .new import Arrivals
from .retries import Stuck
from .task import Pace, Task

_MAX_WAIT_S = 1.0


class Delivery:
    """Delivers on one tree; call :meth:`step` when ``fileno()`` is readable or ``timeout()`` over.

    delay: seconds that an entry stays in ``delay/`` at least.
    new, timers: whether ``new/`` and ``delay/`` are served; one mover may serve one of them.
    expiry_interval: seconds between two looks for expired messages in the queues.
    rest: seconds that what a shell user puts into ``new/`` stays there, for the sake of `mv`.
    on_problem: told once about each entry that is left where it is (name, reason).
    on_fault: told of what failed, and is tried again: an entry, or a kind of work (name, error).

    What fails waits apart, with a pause of its own that grows. It holds up nothing else.
    """

    def __init__(
        self,
        context: Context,
        *,
        delay: float = 0.0,
        new: bool = True,
        timers: bool = True,
        events: bool = True,
        poll_interval: float = 0.25,
        expiry_interval: float = 30.0,
        rest: float = 0.0,
        on_problem: Callable[[str, str], None] = lambda name, reason: None,
        on_fault: Callable[[str, Exception], None] = lambda name, error: None,
    ) -> None:
        self.context = context
        self._tree = context.tree
        self._serves_new = new
        self._serves_timers = timers
        self._poll_interval = poll_interval
        self._on_fault = on_fault
        self._stuck = Stuck(context.tree, on_problem)
        sweeper = Sweeper(context, expiry_interval, self._stuck.tell)
        self._sweep = Task("sweep", sweeper.step, due=time.monotonic() + expiry_interval)
        pace = Pace(events, poll_interval)
        self._returns = Returns(context, pace, self._stuck, delay, on_fault)
        self._arrivals = Arrivals(context, pace, self._stuck, self._on_defer, on_fault, rest)
        of_new = self._arrivals.tasks if new else ()
        timed = self._returns.tasks if timers else ()
        self._tasks: tuple[Task, ...] = (*of_new, *timed, self._sweep)
        self._events = Events(context.tree) if events else None
        if self._events is not None:
            self._watch(self._events)

    def fileno(self) -> int | None:
        """Readable when something happened; None where there are no events."""
        return None if self._events is None else self._events.fileno()

    def close(self) -> None:
        self._arrivals.close()
        if self._events is not None:
            self._events.close()

    def timeout(self) -> float:
        """Seconds until the next step is due, at most one: the clock may be set meanwhile."""
        if self.is_behind:
            return 0.0
        due = [_MAX_WAIT_S, self._sweep.due - time.monotonic()]
        if self._serves_new:
            due.append(self._arrivals.timeout())
        if self._events is not None and not self._events.is_complete:
            due.append(self._poll_interval)
        if self._serves_timers:
            due.append(self._returns.timeout())
        return max(0.0, min(due))

    @property
    def is_behind(self) -> bool:
        """Whether messages wait that the last step had no time for."""
        return self._arrivals.is_behind

    @property
    def fault(self) -> Exception | None:
        """Why a folder that is served cannot be listed; None if all can."""
        listings = (self._arrivals.listing, self._returns.listing)
        return next((task.fault for task in listings if task.fault is not None), None)

    def measure_lag(self) -> None:
        """Note how late the waiting work is, in seconds, for each kind that is served."""
        metrics, now = self.context.metrics, self.context.clock()
        if self._serves_new:
            metrics.set(("lag", "new"), round(self._arrivals.lag(now), 3))
        if self._serves_timers:
            metrics.set(("lag", "timers"), round(self._returns.lag(now), 3))

    def rescan(self) -> None:
        """Let the next step list the folders."""
        self._arrivals.rescan()
        self._returns.rescan()

    def step(self) -> int:
        """Deliver what can be delivered now, or a good part of it; returns how many moved."""
        for event in self._events.read() if self._events is not None else ():
            self._apply(event)
        now = time.monotonic()
        for task in self._tasks:
            if (fault := task.run(now)) is not None:
                self._on_fault(task.name, fault)
        moved = self._arrivals.moved + self._returns.moved
        self._arrivals.moved = self._returns.moved = 0
        return moved

    # -- waking ----------------------------------------------------------------------------------

    def _watch(self, events: Events) -> None:
        tree = self._tree
        if self._serves_new:
            events.watch(tree.folder(NEW), lasting=True)
        if self._serves_timers:
            events.watch(tree.folder(DELAY), departures=True, changes=True, lasting=True)
        events.watch(tree.folder(QUEUES), files=False, lasting=True)

    def _apply(self, event: Event) -> None:
        tree = self._tree
        if event.kind is Kind.LOST:
            self.rescan()
        elif event.folder == tree.folder(NEW):
            if event.name[0] != ".":
                self._arrivals.arrived(event.name)
        elif event.folder == tree.folder(DELAY):
            if event.kind is Kind.LEFT:
                self._returns.cancel(event.name)
            elif event.name[0] != ".":
                self._returns.schedule(event.name)
        elif self._stuck.is_awaited(event.name):
            self._retry(event.name)

    def _retry(self, queue: str) -> None:
        """The queue appeared: its messages that had no place to go are served now."""
        waiting = self._stuck.take(queue)
        if waiting is None:
            self._arrivals.listing.due = self._returns.listing.due = 0.0
        for folder, name in waiting or ():
            if folder == NEW:
                self._arrivals.backlog.append(name)
            else:
                self._returns.schedule(name)

    def _on_defer(self, name: str) -> None:
        if self._serves_timers:
            self._returns.schedule(name)
