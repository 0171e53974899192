"""Delivery: all the work of the mover, in any process that does it.

new → queues for every message, new → delay for those put with a delay, and delay → queues (or the
dead-letter queue) when a timer ends. Events wake it, but the folders are the truth: a scan finds
what events missed. Any number of deliveries can work on one tree, since each step is a rename that
only one of them can do.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ..context import Context
from ..index.events import Event, Events, Kind
from ..layout.transitions import DELAY, NEW, QUEUES
from .delay import FromDelay
from .expiry import Expiry
from .new import FromNew
from .task import Listings, Task
from .undeliverable import Undeliverable

_MAX_WAIT_S = 1.0


class Delivery:
    """Delivers on one tree; call :meth:`step` when ``fileno()`` is readable or ``timeout()`` over.

    delay: seconds that an entry stays in ``delay/`` at least.
    new, timers: whether to deliver from ``new/``, and to redeliver from ``delay/``.
    expiry_interval: seconds between two looks for expired messages in the queues.
    rest: seconds that a shell user's file stays in ``new/``, for the sake of `mv`.
    first_look: seconds after which an entry that has come to ``delay/`` is read.
    on_problem: called once with each entry that is left where it is (name, reason).
    on_fault: called with an entry or a kind of work that failed and is tried again (name, error).

    Whatever fails waits separately, with growing pauses. It holds up nothing else.
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
        first_look: float = 0.0,
        on_problem: Callable[[str, str], None] = lambda name, reason: None,
        on_fault: Callable[[str, Exception], None] = lambda name, error: None,
    ) -> None:
        self.context = context
        self.claimed_at = float("-inf")  # when a message last came to delay/, monotonic seconds
        self._tree = context.tree
        self._new, self._delay = context.tree.folder(NEW), context.tree.folder(DELAY)
        self._delivers = new
        self._redelivers = timers
        self._poll_interval = poll_interval
        self._on_fault = on_fault
        self._undeliverable = Undeliverable(context.tree, on_problem)
        expiry = Expiry(context, expiry_interval, self._undeliverable.report)
        self._expiry = Task("expire", expiry.step, due=time.monotonic() + expiry_interval)
        listings = Listings(lambda: self.hears, poll_interval)
        self._from_delay = FromDelay(
            context, listings, self._undeliverable, delay, first_look, on_fault
        )
        self._from_new = FromNew(
            context, listings, self._undeliverable, self._on_defer, on_fault, rest
        )
        of_new = self._from_new.tasks if new else ()
        timed = self._from_delay.tasks if timers else ()
        self._tasks: tuple[Task, ...] = (*of_new, *timed, self._expiry)
        self._events = Events(context.tree) if events else None
        if self._events is not None:
            self._watch(self._events)

    @property
    def hears(self) -> bool:
        """Whether events of all its folders arrive."""
        return self._events is not None and not self._events.unwatched

    def fileno(self) -> int | None:
        """Readable when something happened; None if there are no events."""
        return None if self._events is None else self._events.fileno()

    def close(self) -> None:
        self._from_new.close()
        if self._events is not None:
            self._events.close()

    def timeout(self) -> float:
        """Seconds until the next step is due, at most one, as the clock can be set."""
        if self.is_behind:
            return 0.0
        due = [_MAX_WAIT_S, self._expiry.due - time.monotonic()]
        if self._delivers:
            due.append(self._from_new.timeout())
        if self._events is not None and not self._events.is_complete:
            due.append(self._poll_interval)
        if self._redelivers:
            due.append(self._from_delay.timeout())
        return max(0.0, min(due))

    @property
    def is_behind(self) -> bool:
        """Whether messages are left that the last step had no time for."""
        return self._from_new.is_behind

    @property
    def fault(self) -> Exception | None:
        """Why one of its folders cannot be listed; None if all can."""
        listings = (self._from_new.listing, self._from_delay.listing)
        return next((task.fault for task in listings if task.fault is not None), None)

    def measure_lag(self) -> None:
        """Record how late each kind of work is, in seconds."""
        metrics, now = self.context.metrics, self.context.clock()
        if self._delivers:
            metrics.set(("lag", "new"), round(self._from_new.lag(now), 3))
        if self._redelivers:
            metrics.set(("lag", "timers"), round(self._from_delay.lag(now), 3))

    def rescan(self) -> None:
        """Let the next step list the folders."""
        self._from_new.rescan()
        self._from_delay.rescan()

    def step(self) -> int:
        """Deliver what can be delivered now, up to a limit; returns how many moved."""
        for event in self._events.read() if self._events is not None else ():
            self._apply(event)
        now = time.monotonic()
        for task in self._tasks:
            if (fault := task.run(now)) is not None:
                self._on_fault(task.name, fault)
        moved = self._from_new.moved + self._from_delay.moved
        self._from_new.moved = self._from_delay.moved = 0
        return moved

    # -- waking ----------------------------------------------------------------------------------

    def _watch(self, events: Events) -> None:
        if self._delivers:
            events.watch(self._new, lasting=True)
        if self._redelivers:
            events.watch(self._delay, departures=True, changes=True, lasting=True)
        events.watch(self._tree.folder(QUEUES), files=False, lasting=True)

    def _apply(self, event: Event) -> None:
        if event.kind is Kind.LOST:
            self.rescan()
        elif event.folder == self._new:
            self._from_new.add(event.name)
        elif event.folder == self._delay:
            if event.kind is Kind.LEFT:
                self._from_delay.cancel(event.name)
            else:
                if event.kind is Kind.ARRIVED:
                    self.claimed_at = time.monotonic()
                    self._from_delay.arrived(event.name)
                else:
                    self._from_delay.changed(event.name)
        elif self._undeliverable.is_awaited(event.name):
            self._retry(event.name)

    def _retry(self, queue: str) -> None:
        """A queue appeared: deliver the messages that waited for it."""
        waiting = self._undeliverable.pop(queue)
        if waiting is None:
            self._from_new.listing.due = self._from_delay.listing.due = 0.0
        for folder, name in waiting or ():
            if folder == NEW:
                self._from_new.backlog.append(name)
            else:
                self._from_delay.schedule(name)

    def _on_defer(self, name: str) -> None:
        if self._redelivers:
            self._from_delay.schedule(name)
