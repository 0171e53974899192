"""Puts into fifo queues on the event loop: those that wait for the same queues are one group.

A group locks, writes and shows on the loop, in calls of microseconds, as other puts do; its sync
goes with the others' (`group_commit`). What lists a folder or takes long is done in a thread. Where
another process has a lock, the group tries again later: the wait takes no thread from others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple, TypeVar

from fsmq.spool.durability.prepared import Key, end_all, key_of
from fsmq.spool.durability.send_lines import PATIENCE_S
from fsmq.spool.durability.sync import Syncer
from fsmq.spool.errors import FsmqError
from fsmq.spool.limits.sequencer import Group, Sequencer, Unrecovered, Unsent
from fsmq.spool.prepare import Prepared

from ..problems import InternalError
from .group_commit import Commits
from .patience import Patience
from .threads import Threads
from .turns import LoopTurns

T = TypeVar("T")
log = logging.getLogger(__name__)
_End = Callable[[], None]
_LONG_PAUSE_S = 0.1


class _Waiting(NamedTuple):
    """A verb that is to be sent, and how its caller goes on. light: whether it is soon written."""

    prepared: Prepared[Any]
    end: _End
    light: bool


class SendGroups:
    """Completes verbs that send into fifo queues. threads: for what takes long."""

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
        # By the queues of a group that is under way: those of the next one.
        self._waiting: dict[Key, list[_Waiting]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def complete(self, prepared: Prepared[T], *, light: bool) -> T:
        """Send what a verb has for fifo queues, and give its result. Raises as its finish."""
        over = asyncio.Event()
        self.join(prepared, over.set, light=light)
        await over.wait()
        return prepared.end() if light else await self._threads.run_once(prepared.end)

    def join(self, prepared: Prepared[Any], end: _End, *, light: bool = True) -> None:
        """Send what a verb has for fifo queues, and call ``end``, which finishes the verb."""
        key = key_of(prepared)
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = []
            # Not at once: other handlers that are ready in this turn of the loop join first.
            asyncio.get_running_loop().call_soon(self._begin, key)
        waiting.append(_Waiting(prepared, end, light))

    def _begin(self, key: Key) -> None:
        group = self._sends.group(key)
        try:
            group.enter()
        except (Unsent, Unrecovered):
            self._spawn(self._wait(key, group))
        except Exception as error:
            self._end(key, self._taken(key), error)
        else:
            self._write(key, group)

    async def _wait(self, key: Key, group: Group) -> None:
        try:
            await self._patience.until_free(partial(self._enter, group), Unsent, PATIENCE_S)
        except Exception as error:
            self._end(key, self._taken(key), error)
        else:
            self._write(key, group)

    async def _enter(self, group: Group) -> None:
        try:
            group.enter()
        except Unrecovered:
            try:
                await self._threads.run_once(group.enter)
            except Unsent:
                await asyncio.sleep(_LONG_PAUSE_S)  # it is not cheap to try again
                raise

    def _write(self, key: Key, group: Group) -> None:
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
            self._commits.then(sent, end, end)

    async def _run(
        self,
        group: Group,
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

    def _taken(self, key: Key) -> list[_Waiting]:
        batch, self._waiting[key] = self._waiting[key], []
        return batch

    def _end(self, key: Key, batch: list[_Waiting], error: Exception | None) -> None:
        """Let those of a group go on, and begin the next one."""
        if error is not None:
            end_all([one.prepared for one in batch], _as_ours(error))
        if self._waiting[key]:
            asyncio.get_running_loop().call_soon(self._begin, key)
        else:
            del self._waiting[key]
        for one in batch:
            self._turns.do(one.end)


def _as_ours(error: Exception) -> FsmqError:
    if isinstance(error, FsmqError):
        return error
    log.error("a group of sends failed", exc_info=error)
    return InternalError()
