"""Group commit on the event loop: requests that wait at the same moment share one sync.

Handlers change the tree on the loop, in calls of microseconds; only the sync itself, which takes
milliseconds and needs no interpreter, runs in a thread. So there is one hand-off between threads
for a whole group and not one for each message.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from queue import SimpleQueue
from typing import TypeVar

from fsmq.spool.context import Pending
from fsmq.spool.durability.sync import Group, Syncer, Work
from fsmq.spool.errors import FsmqError, Unavailable

from ..problems import InternalError

T = TypeVar("T")
log = logging.getLogger(__name__)
# The ends of verbs may take so many seconds at a time.
_TURN_S = 0.01


class Commits:
    """Completes verbs of the spool, many at a time."""

    def __init__(self, syncer: Syncer) -> None:
        self._syncer = syncer
        self._thread: threading.Thread | None = None
        self._groups: SimpleQueue[tuple[Group, list[Callable[[Group], None]]] | None]
        self._groups = SimpleQueue()
        self._group = Group()
        self._waiting: list[Callable[[Group], None]] = []
        self._running = False

    def close(self) -> None:
        if self._thread is not None:
            self._groups.put(None)
            self._thread.join()

    async def complete(self, pending: Pending[T]) -> T:
        """Make a verb durable and give its result. Raises Unavailable if the disk refuses."""
        await self.sync(pending)
        return pending.finish()

    async def sync(self, pending: Pending[T]) -> None:
        """Make a verb durable, and leave its finish to the caller. Raises Unavailable."""
        work = pending.work
        if not work.files and not work.folders:
            return
        synced: asyncio.Future[Group] = asyncio.get_running_loop().create_future()

        def done(group: Group) -> None:
            if not synced.done():
                synced.set_result(group)

        self._join(work, done)
        group = await synced
        try:
            group.check()
        except Unavailable:
            pending.abandon()
            raise

    def then(
        self,
        pending: Pending[T],
        done: Callable[[T], None],
        failed: Callable[[FsmqError], None],
    ) -> None:
        """Make a verb durable and call ``done`` with its result, or ``failed`` with its error.

        Both are called in the context of the caller.
        """

        def finish(group: Group | None) -> None:
            try:
                done(_finished(pending, group))
            except FsmqError as error:
                failed(error)
            except Exception:
                log.exception("the end of a verb failed")
                failed(InternalError())

        work = pending.work
        if work.files or work.folders:
            context = copy_context()
            self._join(work, lambda group: context.run(finish, group))
        else:
            finish(None)

    def _join(self, work: Work, done: Callable[[Group], None]) -> None:
        self._group.works.append(work)
        self._waiting.append(done)
        if not self._running:
            self._running = True
            # Not at once: other handlers that are ready in this turn of the loop join first.
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        group, self._group = self._group, Group()
        waiting, self._waiting = self._waiting, []
        if self._thread is None:
            loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._sync_all, args=(loop,), name="fsmq-sync")
            self._thread.start()
        self._groups.put((group, waiting))

    def _sync_all(self, loop: asyncio.AbstractEventLoop) -> None:
        """What the thread does: one group after the other."""
        while (given := self._groups.get()) is not None:
            group, waiting = given
            try:
                self._syncer.run_only(group)
            except BaseException as error:  # whatever it is, who waits must be told
                group.error = Unavailable(f"the sync failed: {error}")
            loop.call_soon_threadsafe(self._end, group, waiting)

    def _end(self, group: Group, waiting: list[Callable[[Group], None]]) -> None:
        if self._waiting:
            self._run()
        else:
            self._running = False
        # Here and not in the thread, which would wait for the interpreter behind each of them.
        group.close()
        self._call(group, waiting)

    def _call(self, group: Group, waiting: list[Callable[[Group], None]]) -> None:
        """Call those that wait for a group; if it takes long, others get their turn in between."""
        until = time.monotonic() + _TURN_S
        for number, done in enumerate(waiting, 1):
            done(group)
            if time.monotonic() >= until and number < len(waiting):
                asyncio.get_running_loop().call_soon(self._call, group, waiting[number:])
                return


def _finished(pending: Pending[T], group: Group | None) -> T:
    """The result of a verb whose group is synced; None is that of one that needs no sync."""
    if group is not None:
        try:
            group.check()
        except Unavailable:
            pending.abandon()
            raise
    return pending.finish()
