"""Group commit on the event loop: requests that wait at the same moment share one sync.

Handlers change the tree on the loop, in calls of microseconds; only the sync itself, which takes
milliseconds without the GIL, runs in a thread. So there is one hand-off between threads for a whole
group instead of one for each message.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import TypeAlias, TypeVar

from fsmq.spool.errors import FsmqError, Unavailable
from fsmq.spool.prepare import IN_FLIGHT, Dirty, Group, Prepared, Syncer

from ..connection.turns import LoopTurns
from ..problems import InternalError

T = TypeVar("T")
# A thread's groups, each with the function to call on the loop after it; None ends the thread.
_Groups: TypeAlias = "SimpleQueue[tuple[Group, Callable[[], None]] | None]"
log = logging.getLogger(__name__)
# The most files of a group that is synced at the same time as another. A change without files, only
# of names, counts as _LARGE, because it can be of many names.
_SMALL = 8
_LARGE = 9


class Commits:
    """Completes verbs of the spool in groups. at_once: how many groups are synced at a time."""

    def __init__(self, syncer: Syncer, turns: LoopTurns) -> None:
        self.at_once = IN_FLIGHT
        self._syncer = syncer
        self._turns = turns
        self._threads: list[tuple[threading.Thread, _Groups]] = []
        self._idle: list[_Groups] = []  # of threads without work
        self._group = Group()
        self._waiting: list[Callable[[Group], None]] = []
        self._in_flight: list[int] = []  # the files of each group
        self._is_planned = False

    def close(self) -> None:
        """End the threads; groups in flight are synced, but their callers are not called."""
        for _, groups in self._threads:
            groups.put(None)
        for thread, _ in self._threads:
            thread.join()

    async def complete(self, prepared: Prepared[T]) -> T:
        """Make a verb durable and return its result. Raises Unavailable if the disk fails."""
        await self.sync(prepared)
        return prepared.commit()

    async def sync(self, prepared: Prepared[T]) -> None:
        """Make a verb durable; the caller commits it. Raises Unavailable."""
        dirty = prepared.dirty
        if dirty.is_clean:
            return
        synced: asyncio.Future[Group] = asyncio.get_running_loop().create_future()

        def done(group: Group) -> None:
            if not synced.done():
                synced.set_result(group)

        self._join(dirty, done)
        group = await synced
        try:
            group.check()
        except Unavailable:
            prepared.abort()
            raise

    def then(
        self,
        prepared: Prepared[T],
        done: Callable[[T], None],
        failed: Callable[[FsmqError], None],
        *,
        is_group: bool = False,
    ) -> None:
        """Make a verb durable and call ``done`` with its result, or ``failed`` with its error.

        Both are called in the context of the caller. is_group: it is that of many requests, and
        waits for no others.
        """

        dirty = prepared.dirty
        if dirty.is_clean:
            _end(prepared, done, failed, None)
        else:
            context = copy_context()
            self._join(dirty, lambda group: context.run(_end, prepared, done, failed, group))
            if is_group and self._is_planned:
                self._begin()

    def _join(self, dirty: Dirty, done: Callable[[Group], None]) -> None:
        self._group.changes.append(dirty)
        self._waiting.append(done)
        if not self._is_planned and len(self._in_flight) < self.at_once:
            self._is_planned = True
            # Later, so that other handlers that are ready in this turn of the loop can join.
            asyncio.get_running_loop().call_soon(self._begin_if_planned)

    def _begin_if_planned(self) -> None:
        if self._is_planned:
            self._begin()

    def _begin(self) -> None:
        """Begin to sync the next group; while another is synced, only if both are small.

        With one small group at a time the disk would be idle while its callers are answered. Two
        large groups at a time would only be two syncs instead of one.
        """
        self._is_planned = False
        size = sum([len(dirty.files) or _LARGE for dirty in self._group.changes])
        if self._in_flight and max(size, *self._in_flight) > _SMALL:
            return  # it begins when that one ends
        group, self._group = self._group, Group()
        waiting, self._waiting = self._waiting, []
        if not self._threads:
            self._start_threads()
        self._in_flight.append(size)
        # The thread that worked last, because its caches are warm; others are seldom needed.
        groups = self._idle.pop()
        groups.put((group, partial(self._end, groups, group, size, waiting)))

    def _start_threads(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(IN_FLIGHT):
            groups: _Groups = SimpleQueue()
            thread = threading.Thread(
                target=self._sync_all, args=(loop, groups), name="fsmq-sync", daemon=True
            )
            thread.start()
            self._threads.append((thread, groups))
            self._idle.append(groups)

    def _sync_all(self, loop: asyncio.AbstractEventLoop, groups: _Groups) -> None:
        """The main function of a thread: syncs one group after the other."""
        while (given := groups.get()) is not None:
            self._sync_one(loop, *given)
            del given  # it refers to messages

    def _sync_one(
        self, loop: asyncio.AbstractEventLoop, group: Group, end: Callable[[], None]
    ) -> None:
        try:
            self._syncer.run_only(group)
        except BaseException as error:  # whatever it is, waiting callers must get an answer
            log.exception("the sync failed")
            group.error = Unavailable(f"the sync failed: {error}")
        loop.call_soon_threadsafe(end)

    def _end(
        self, groups: _Groups, group: Group, size: int, waiting: list[Callable[[Group], None]]
    ) -> None:
        self._idle.append(groups)
        self._in_flight.remove(size)
        if self._waiting and not self._is_planned:
            self._begin()  # first, so that the disk works while these callers go on
        # Here and not in the thread, which would have to wait for the GIL for each file.
        group.close()
        for done in waiting:
            self._turns.do(partial(done, group))


def end_of(
    prepared: Prepared[T], done: Callable[[T], None], failed: Callable[[FsmqError], None]
) -> Callable[[], None]:
    """A function that ends a durable verb in the context of the caller, as `Commits.then` does."""
    context = copy_context()
    return lambda: context.run(_end, prepared, done, failed, None)


def _end(
    prepared: Prepared[T],
    done: Callable[[T], None],
    failed: Callable[[FsmqError], None],
    group: Group | None,
) -> None:
    try:
        done(_finished(prepared, group))
    except FsmqError as error:
        failed(error)
    except Exception:
        log.exception("the end of a verb failed")
        failed(InternalError())


def _finished(prepared: Prepared[T], group: Group | None) -> T:
    """The result of a verb after the sync of its group; None: it needs no sync."""
    if group is not None:
        try:
            group.check()
        except Unavailable:
            prepared.abort()
            raise
    return prepared.end()
