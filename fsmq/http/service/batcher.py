"""Groups calls about one thing: those that come while a group is in progress form the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

from fsmq.spool.errors import Unavailable

K = TypeVar("K", bound=Hashable)
A = TypeVar("A")
R = TypeVar("R")
# The most calls in a group.
_MOST = 1000


class Batcher(Generic[K, A, R]):
    """One hand-off between threads, and one sync, for all calls of the same moment.

    do: gets the arguments of all calls; returns a result or an error for each.
    unwanted: gets the result of a caller that does not wait for it any more.
    """

    def __init__(
        self,
        do: Callable[[K, list[A]], Awaitable[Sequence[R | Exception]]],
        unwanted: Callable[[K, R], None] = lambda of, answer: None,
    ) -> None:
        self._do = do
        self._unwanted = unwanted
        self._lines: dict[K, list[tuple[A, Callable[[R | Exception], None]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, of: K, what: A) -> R:
        """The result of this call. Raises the error that ``do`` returns for it, or raises."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()

        def answered(outcome: R | Exception) -> None:
            if isinstance(outcome, Exception):
                if not answer.done():
                    answer.set_exception(outcome)
            elif answer.done():
                self._unwanted(of, outcome)
            else:
                answer.set_result(outcome)

        self.begin(of, what, answered)
        return await answer

    def begin(self, of: K, what: A, answered: Callable[[R | Exception], None]) -> None:
        """The same with a callback: ``answered`` is called once, and must not raise."""
        line = self._lines.get(of)
        if line is not None:
            line.append((what, answered))
            return
        self._lines[of] = [(what, answered)]
        task = asyncio.create_task(self._run(of))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, of: K) -> None:
        line = self._lines[of]
        try:
            while line:
                group = line[:_MOST]
                del line[:_MOST]
                outcomes = await self._outcomes(of, [what for what, _ in group])
                for (_, answered), outcome in zip(group, outcomes, strict=True):
                    answered(outcome)
        finally:
            del self._lines[of]
            for _, answered in line:
                answered(Unavailable("mq is stopping"))

    async def _outcomes(self, of: K, asked: list[A]) -> Sequence[R | Exception]:
        try:
            return await self._do(of, asked)
        except Exception as error:
            return [error] * len(asked)
