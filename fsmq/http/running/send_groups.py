"""Puts into fifo queues on the event loop: those that wait for the same queues form a group.

A group locks, writes and publishes on the loop, in calls of microseconds, as other puts do, and
shares their sync (`group_commit`). What lists a folder or takes long runs in a thread. If another
process has a lock, the group tries again later, so that its wait blocks no thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple, TypeVar

from fsmq.spool.errors import FsmqError
from fsmq.spool.prepare import (
    SENDS_PATIENCE_S,
    Prepared,
    SendGroup,
    SendKey,
    Sequencer,
    Syncer,
    Unrecovered,
    Unsent,
    end_all,
    key_of,
)

from ..connection.turns import LoopTurns
from ..problems import InternalError
from .group_commit import Commits
from .patience import Patience
from .threads import Threads

T = TypeVar("T")
log = logging.getLogger(__name__)
_End = Callable[[], None]
_LONG_PAUSE_S = 0.1


class _Waiting(NamedTuple):
    """A verb to be sent, and how its caller goes on. light: whether writing it is quick."""

    prepared: Prepared[Any]
    end: _End
    light: bool


class SendGroups:
    """Completes verbs that send into fifo queues. threads: for work that takes long."""

    def __init__(
        self,
        sends: Sequencer,
        syncer: Syncer,
        commits: Commits,
        threads: Threads,
        patience: Patience,
        turns: LoopTurns,
    ) -> None:
        self._patience = patience
        self._turns = turns
        self._sends = sends
        self._syncer = syncer
        self._commits = commits
        self._threads = threads
        # By the queues of a group that is in progress: the verbs of the next group.
        self._waiting: dict[SendKey, list[_Waiting]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def complete(self, prepared: Prepared[T], *, light: bool) -> T:
        """Send a verb's messages for fifo queues, and return its result. Raises as its end."""
        over = asyncio.Event()
        self.join(prepared, over.set, light=light)
        await over.wait()
        return prepared.end() if light else await self._threads.run_once(prepared.end)

    def join(self, prepared: Prepared[Any], end: _End, *, light: bool = True) -> None:
        """Send a verb's messages for fifo queues, and call ``end``, which finishes the verb."""
        key = key_of(prepared)
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = []
            # Later, so that other handlers that are ready in this turn of the loop can join.
            asyncio.get_running_loop().call_soon(self._begin, key)
        waiting.append(_Waiting(prepared, end, light))

    def _begin(self, key: SendKey) -> None:
        group = self._sends.group(key)
        try:
            group.enter()
        except (Unsent, Unrecovered):
            self._spawn(self._wait(key, group))
        except Exception as error:
            self._end(key, self._taken(key), error)
        else:
            self._write(key, group)

    async def _wait(self, key: SendKey, group: SendGroup) -> None:
        try:
            await self._patience.until_free(partial(self._enter, group), Unsent, SENDS_PATIENCE_S)
        except Exception as error:
            self._end(key, self._taken(key), error)
        else:
            self._write(key, group)

    async def _enter(self, group: SendGroup) -> None:
        try:
            group.enter()
        except Unrecovered:
            try:
                await self._threads.run_once(group.enter)
            except Unsent:
                await asyncio.sleep(_LONG_PAUSE_S)  # trying again is expensive
                raise

    def _write(self, key: SendKey, group: SendGroup) -> None:
        batch = self._taken(key)
        all_prepared = [one.prepared for one in batch]
        end = partial(self._end, key, batch)
        if not all(one.light for one in batch):
            self._spawn(self._run(group, all_prepared, end))
            return
        try:
            sent = group.write(all_prepared)
        except Exception as error:
            end(error)
        else:
            self._commits.then(sent, end, end, is_group=True)

    async def _run(
        self,
        group: SendGroup,
        all_prepared: list[Prepared[Any]],
        end: Callable[[Exception | None], None],
    ) -> None:
        try:
            await self._threads.run_once(group.run, all_prepared, self._syncer)
        except Exception as error:
            end(error)
        else:
            end(None)

    def _spawn(self, going: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(going)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _taken(self, key: SendKey) -> list[_Waiting]:
        batch, self._waiting[key] = self._waiting[key], []
        return batch

    def _end(self, key: SendKey, batch: list[_Waiting], error: Exception | None) -> None:
        """Let the callers of a group go on, and begin the next group."""
        if error is not None:
            end_all([one.prepared for one in batch], _as_ours(error))
        try:
            if self._waiting[key]:
                self._begin(key)  # first, so that the disk works while these callers go on
            else:
                del self._waiting[key]
        finally:
            for one in batch:
                self._turns.do(one.end)


def _as_ours(error: Exception) -> FsmqError:
    if isinstance(error, FsmqError):
        return error
    log.error("a group of sends failed", exc_info=error)
    return InternalError()
