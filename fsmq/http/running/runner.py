"""Runs work on the event loop if it is small, and otherwise in threads.

Work on the loop delays all other requests, but handing it to a thread costs as much as a small
request in all. So its size decides, which is known before or found out on the way: see
:mod:`fsmq.spool.layout.steps`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from fsmq.spool.errors import FsmqError
from fsmq.spool.prepare import (
    LARGE_BYTES,
    Prepared,
    Sequencer,
    Steps,
    Syncer,
    finish,
    listings,
    portions,
)

from ..connection.turns import LoopTurns
from .group_commit import Commits, end_of
from .patience import Patience
from .send_groups import SendGroups
from .threads import Threads

T = TypeVar("T")
# How many listings run at a time. Their time grows with the number of messages in the tree, so they
# have threads of their own; otherwise all other work would wait for them.
_LISTINGS = 4
_AT_ONCE = 256
_HUGE_BYTES = 2 * 1024 * 1024


class Runner:
    """Threads of one service, and its group commit.

    workers: threads for requests that take long. learn: counts the messages of a queue. turns: run
    short work on the loop. decodings: decompress bodies.
    """

    def __init__(
        self, syncer: Syncer, sends: Sequencer, workers: int, learn: Callable[[str], object]
    ) -> None:
        self._learn = learn
        self.threads = Threads(workers, listings.forbid)
        self.listings = Threads(min(workers, _LISTINGS))
        # A single one: threads that each write or remove many files take the interpreter, and the
        # kernel's locks of the folders, from each other at every call. Four batches at a time took
        # longer than one after the other, and twice as much of the processor.
        self._batches = Threads(1, listings.forbid)
        self.turns, self.decodings = LoopTurns(), LoopTurns()
        self._huge: asyncio.Lock = asyncio.Lock()
        self._commits = Commits(syncer, self.turns)
        self.patience = Patience()
        self._groups = SendGroups(
            sends, syncer, self._commits, self.listings, self.patience, self.turns
        )

    def close(self) -> None:
        """Wait for running work."""
        self._commits.close()
        self.threads.close()
        self._batches.close()
        self.listings.close()

    async def in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        """Run something that takes long in a thread."""
        return await self.threads.run(function, *arguments)

    async def listing(self, function: Callable[..., T], *arguments: object) -> T:
        """Run something whose time grows with the size of the tree, in a thread for listings."""
        return await self.listings.run(function, *arguments)

    async def count(self, queue: str) -> None:
        """Count the messages of a queue, once for all callers that wait for it."""
        await self.listings.share(self._learn, queue)

    async def beside(self, size: int, function: Callable[..., T], *arguments: object) -> T:
        """Run something that works on ``size`` bytes; in a thread if they are many.

        What is huge takes its turn: it needs as much memory again, which nobody has reserved, and
        several at a time would be no faster, as they share the interpreter.
        """
        if size <= LARGE_BYTES:
            return function(*arguments)
        if size < _HUGE_BYTES:
            return await self.in_thread(function, *arguments)
        async with self._huge:
            return await self.in_thread(function, *arguments)

    async def run(self, steps: Steps[T]) -> T:
        """Run a verb in steps; the steps after the first run in a thread."""
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        return await self.threads.run_once(finish, steps)

    async def gently(self, things: Iterable[T], do: Callable[[T], object]) -> None:
        """Do something short with each of many things, with turns for other work in between."""
        for number, portion in enumerate(portions(things, _AT_ONCE)):
            if number:
                await asyncio.sleep(0)
            for thing in portion:
                do(thing)

    async def do(
        self, begin: Callable[[], Prepared[T]], *, light: bool, in_turn: bool = False
    ) -> T:
        """Do a verb and make it durable: on the loop if it is light, else in a thread. If messages
        have to be counted first, it runs in a thread that may count. Raises what the verb raises.

        in_turn: after others of this kind, which take less time each than all of them together.
        """
        threads = self._batches if in_turn else self.threads
        try:
            prepared = begin() if light else await threads.run(begin)
        except listings.Unlisted as error:
            await self.count(error.queue)
            prepared = await self.listing(begin)
        return await self.complete(prepared, light=light, threads=threads)

    async def complete(
        self, prepared: Prepared[T], *, light: bool = True, threads: Threads | None = None
    ) -> T:
        """Make a verb durable together with all others that wait; ``light``: its end is short.

        threads: those for a long end. Raises Unavailable.
        """
        if prepared.sends:
            return await self._groups.complete(prepared, light=light)
        if light:
            return await self._commits.complete(prepared)
        await self._commits.sync(prepared)
        return await (threads or self.threads).run_once(prepared.commit)

    def then(
        self,
        prepared: Prepared[T],
        done: Callable[[T], None],
        failed: Callable[[FsmqError], None],
    ) -> None:
        """The same with callbacks instead of an await, for verbs whose end is short."""
        if prepared.sends:
            self._groups.join(prepared, end_of(prepared, done, failed))
        else:
            self._commits.then(prepared, done, failed)
