"""Where things are done: on the event loop if they are small, and else in threads beside it.

What runs on the loop holds all others up, and a hand-off to a thread costs as much as a small
request in all. So it is the size that decides, which is told, or found out on the way: see
:mod:`fsmq.spool.layout.steps`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from fsmq.spool.durability.sync import Syncer
from fsmq.spool.errors import FsmqError
from fsmq.spool.index import listings
from fsmq.spool.limits.sequencer import Sequencer
from fsmq.spool.prepare import LARGE_BYTES, Prepared, Steps, finish, portions

from .group_commit import Commits, end_of
from .patience import Patience
from .send_groups import SendGroups
from .threads import Threads
from .turns import LoopTurns

T = TypeVar("T")
# So many listings go on at a time. They take as long as there are messages, whatever a request
# asks for, so they have threads of their own: all others would wait behind them.
_LISTINGS = 4
_AT_ONCE = 256


class Runner:
    """Threads of one service, and its group commit.

    workers: threads for requests that take long. turns: in which the loop does the others.
    """

    def __init__(self, syncer: Syncer, sends: Sequencer, workers: int) -> None:
        self.threads = Threads(workers, listings.forbid)
        self.listings = Threads(min(workers, _LISTINGS))
        self.turns = LoopTurns()
        self._commits = Commits(syncer, self.turns)
        self.patience = Patience()
        self._groups = SendGroups(
            sends, syncer, self._commits, self.listings, self.patience, self.turns
        )

    def close(self) -> None:
        """Wait for what runs."""
        self._commits.close()
        self.threads.close()
        self.listings.close()

    async def in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        """Run something that takes long beside the loop."""
        return await self.threads.run(function, *arguments)

    async def listing(self, function: Callable[..., T], *arguments: object) -> T:
        """Run something that takes the longer the more there is in the tree."""
        return await self.listings.run(function, *arguments)

    async def beside(self, size: int, function: Callable[..., T], *arguments: object) -> T:
        """Run something that takes the longer the more bytes it works on; in a thread if many."""
        if size <= LARGE_BYTES:
            return function(*arguments)
        return await self.in_thread(function, *arguments)

    async def run(self, steps: Steps[T]) -> T:
        """Run a verb in steps; in a thread from where it takes long."""
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        return await self.threads.run_once(finish, steps)

    async def gently(self, things: Iterable[T], do: Callable[[T], object]) -> None:
        """Do something short with each of many things; the others get their turn in between."""
        for number, portion in enumerate(portions(things, _AT_ONCE)):
            if number:
                await asyncio.sleep(0)
            for thing in portion:
                do(thing)

    async def complete(self, prepared: Prepared[T], *, light: bool = True) -> T:
        """Make a verb durable together with all others that wait; ``light`` if its end is short.

        Raises Unavailable.
        """
        if prepared.sends:
            return await self._groups.complete(prepared, light=light)
        if light:
            return await self._commits.complete(prepared)
        await self._commits.sync(prepared)
        return await self.threads.run_once(prepared.commit)

    def then(
        self,
        prepared: Prepared[T],
        done: Callable[[T], None],
        failed: Callable[[FsmqError], None],
    ) -> None:
        """The same with callbacks, for verbs whose end is short; it need not be awaited."""
        if prepared.sends:
            self._groups.join(prepared, end_of(prepared, done, failed))
        else:
            self._commits.then(prepared, done, failed)
