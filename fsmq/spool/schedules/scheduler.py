"""The scheduler puts messages of schedules when they are due. Any number can run on one tree."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from ..context import Context
from ..errors import (
    FsmqError,
    InUse,
    InvalidValue,
    MessageTooLarge,
    NoSuchQueue,
    NoSuchSchedule,
    Unavailable,
)
from ..index.events import Events
from ..index.quarantine import FIRST_S, LONGEST_S
from ..layout.documents import Version, version_of, version_to_keep
from ..layout.transitions import SCHEDULES
from .putting import Putter
from .schedule_files import DONE, ScheduleFiles

# How often to look at the folder if there are no schedules and no events.
IDLE_S = 60.0
# The longest sleep if there are schedules, as the clock can be set.
_LOOK_S = 1.0
_BUSY_S = 0.25
# Until the next try if somebody has to change the schedule, or to create its queue.
_PROBLEM_S = 5.0
_PROBLEMS = (NoSuchQueue, InvalidValue, MessageTooLarge)


class Scheduler:
    """Puts the messages of all schedules of a spool; call :meth:`step` when it is time.

    on_problem: called once with each schedule that somebody has to correct (file, reason).
    on_fault: called with what failed and is tried again (file, error).
    """

    def __init__(
        self,
        context: Context,
        on_problem: Callable[[str, str], None] = lambda name, reason: None,
        on_fault: Callable[[str, Exception], None] = lambda name, error: None,
    ) -> None:
        self._context = context
        self._tree = context.tree
        self._files = ScheduleFiles(context)
        self._putter = Putter(context, self._files)
        self._on_problem = on_problem
        self._on_fault = on_fault
        self._versions: dict[str, Version | None] = {}
        self._due: dict[str, float] = {}  # Unix seconds
        self._pauses: dict[str, float] = {}
        self._reported: dict[str, str] = {}
        self._orphans: dict[str, float] = {}
        self._folder: Version | None = None
        self._listed = float("-inf")

    def rescan(self) -> None:
        """Let the next step list the folder."""
        self._folder = None

    def step(self) -> float:
        """Put what is due; returns in how many seconds to call again, at most. Raises OSError."""
        now = self._context.clock()
        self._list_if_changed(now)
        for name in [name for name, due in self._due.items() if due <= now]:
            self._due[name] = self._put(name)
        if not self._due and not self._orphans:
            return IDLE_S
        upcoming = min(self._due.values(), default=now + IDLE_S)
        return max(0.0, min(_LOOK_S, upcoming - self._context.clock()))

    def _list_if_changed(self, now: float) -> None:
        folder = self._tree.look(self._files.folder)
        if (folder and version_of(folder)) == self._folder and abs(now - self._listed) < IDLE_S:
            return
        if now < self._listed:  # the clock was set back
            self._due = dict.fromkeys(self._due, now)
        self._folder, self._listed = folder and version_to_keep(folder), now
        names, orphans = self._files.names_and_orphans() if folder else ([], [])
        for gone in self._versions.keys() - set(names):
            for known in (self._versions, self._due, self._pauses, self._reported):
                known.pop(gone, None)
        for name in names:
            found = self._tree.look(self._files.path(name))
            version = found and version_of(found)
            if name not in self._due or version != self._versions.get(name):
                self._versions[name], self._due[name] = found and version_to_keep(found), now
        self._forget_orphans(orphans, now)

    def _put(self, name: str) -> float:
        """Put what is due for a schedule; returns when to look at it again."""
        path = self._files.path(name)
        try:
            done = self._putter.put_due(name)
        except NoSuchSchedule:
            return self._again(_BUSY_S)
        except _PROBLEMS as error:
            if self._reported.get(name) != str(error):
                self._reported[name] = str(error)
                self._on_problem(path, str(error))
            return self._again(_PROBLEM_S)
        except (OSError, FsmqError, ArithmeticError) as error:
            pause = self._pauses[name] = min(2 * self._pauses.get(name, FIRST_S / 2), LONGEST_S)
            self._on_fault(path, error)
            return self._again(pause)
        self._pauses.pop(name, None)
        self._reported.pop(name, None)
        if done is None:
            return self._again(_BUSY_S)
        return float("inf") if done.next is None else done.next

    def _again(self, pause: float) -> float:
        return self._context.clock() + pause

    def _forget_orphans(self, missing: list[str], now: float) -> None:
        """Remove the markers of schedules that were removed by hand, once that is certain.

        An editor can remove a file for a moment before writing it again.
        """
        self._orphans = {name: self._orphans.get(name, now) for name in missing}
        for name, since in list(self._orphans.items()):
            if now - since < IDLE_S:
                continue
            try:
                self._forget_orphan(name)
            except (OSError, FsmqError) as error:
                self._on_fault(self._files.path(name, DONE), error)
                self._orphans[name] = now  # it is tried again later, and does not hold up others

    def _forget_orphan(self, name: str) -> None:
        with suppress(InUse), self._files.held(name, 0.0):
            if self._tree.look(self._files.path(name)) is None:
                self._putter.finish(name)
                self._tree.unlink(self._files.path(name, DONE))


class SchedulerThread:
    """Puts messages of schedules in its own thread, beside a program's other work.

    events: whether changes of the folder wake it. on_problem, on_fault: as for `Scheduler`.
    """

    def __init__(
        self,
        context: Context,
        on_problem: Callable[[str, str], None],
        on_fault: Callable[[str, Exception], None],
        *,
        events: bool = True,
    ) -> None:
        self._scheduler = Scheduler(context, on_problem, on_fault)
        self._on_fault = on_fault
        self._events = self._watched(context) if events else None
        self._wake, self._waker = socket.socketpair()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="fsmq-schedules", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, after its current step."""
        self._is_stopping = True
        self._waker.send(b"x")
        self._thread.join()
        if self._events is not None:
            self._events.close()
        self._wake.close()
        self._waker.close()

    def _watched(self, context: Context) -> Events:
        events = Events(context.tree)
        # If the user has no watches left, a look now and then is enough.
        events.watch(context.tree.folder(SCHEDULES), lasting=True)
        return events

    def _run(self) -> None:
        while not self._is_stopping:
            try:
                pause = self._scheduler.step()
            except (OSError, Unavailable) as error:
                self._on_fault("schedules", error)
                pause = LONGEST_S
            except Exception as error:  # an error must not end the work for all schedules
                self._on_fault("schedules", error)
                pause = LONGEST_S
            self._wait(pause)

    def _wait(self, seconds: float) -> None:
        events = self._events
        wake = self._wake.fileno()
        fileno = None if events is None else events.fileno()
        select.select([wake] if fileno is None else [wake, fileno], [], [], seconds)
        if events is not None and events.read():
            self._scheduler.rescan()
