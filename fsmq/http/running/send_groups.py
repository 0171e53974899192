"""Puts into fifo queues on the event loop: those that wait for the same queues are one group.

A group locks, writes and shows on the loop, in calls of microseconds, as other puts do; its sync
goes with the others' (`group_commit`). What would have to wait for another process, or to list a
folder, locks in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from fsmq.spool.context import Pending
from fsmq.spool.durability.pending import Key, end_all, key_of
from fsmq.spool.errors import FsmqError
from fsmq.spool.limits.sends import Group, Sends, Unsent

from ..problems import InternalError
from .group_commit import Commits, end_of
from .threads import Threads

T = TypeVar("T")
log = logging.getLogger(__name__)
_End = Callable[[], None]


class SendGroups:
    """Completes verbs that send into fifo queues. threads: for what takes long."""

    def __init__(self, sends: Sends, commits: Commits, threads: Threads) -> None:
        self._sends = sends
        self._commits = commits
        self._threads = threads
        # By the queues of a group that is under way: those of the next one, and how they go on.
        self._waiting: dict[Key, list[tuple[Pending[Any], _End]]] = {}
        self._locking: set[asyncio.Task[None]] = set()

    async def complete(self, pending: Pending[T]) -> T:
        """Send what a verb has for fifo queues, and give its result. Raises as its finish."""
        over = asyncio.Event()
        self._join(pending, over.set)
        await over.wait()
        return pending.end()

    def then(
        self,
        pending: Pending[T],
        done: Callable[[T], None],
        failed: Callable[[FsmqError], None],
    ) -> None:
        """The same with callbacks, as `Commits.then`."""
        self._join(pending, end_of(pending, done, failed))

    def _join(self, pending: Pending[Any], end: _End) -> None:
        key = key_of(pending)
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = []
            # Not at once: other handlers that are ready in this turn of the loop join first.
            asyncio.get_running_loop().call_soon(self._begin, key)
        waiting.append((pending, end))

    def _begin(self, key: Key) -> None:
        group = self._sends.group(key)
        try:
            group.enter()
        except Unsent:
            locking = asyncio.ensure_future(self._wait(key, group))
            self._locking.add(locking)
            locking.add_done_callback(self._locking.discard)
        except Exception as error:
            self._end(key, self._taken(key), _as_ours(error))
        else:
            self._write(key, group)

    async def _wait(self, key: Key, group: Group) -> None:
        try:
            await self._threads.run(group.wait)
        except Exception as error:
            self._end(key, self._taken(key), _as_ours(error))
        else:
            self._write(key, group)

    def _write(self, key: Key, group: Group) -> None:
        some = self._taken(key)
        end = partial(self._end, key, some)
        try:
            sent = group.write([pending for pending, _ in some])
        except Exception as error:
            end(_as_ours(error))
        else:
            self._commits.then(sent, lambda _: end(None), end)

    def _taken(self, key: Key) -> list[tuple[Pending[Any], _End]]:
        some, self._waiting[key] = self._waiting[key], []
        return some

    def _end(
        self, key: Key, some: list[tuple[Pending[Any], _End]], error: FsmqError | None
    ) -> None:
        """Let those of a group go on, and begin the next one."""
        if error is not None:
            end_all([pending for pending, _ in some], error)
        if self._waiting[key]:
            asyncio.get_running_loop().call_soon(self._begin, key)
        else:
            del self._waiting[key]
        for _, end in some:
            end()


def _as_ours(error: Exception) -> FsmqError:
    if isinstance(error, FsmqError):
        return error
    log.exception("a group of sends failed")
    return InternalError()
