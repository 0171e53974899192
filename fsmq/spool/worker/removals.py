"""Removals of a worker in groups: those requested during one removal form the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

M = TypeVar("M")
_MOST = 1000


class Removals(Generic[M]):
    """Removes messages in groups, as a server's group commit syncs them.

    A single removal is sent at once. Removals requested before its answer are sent together.

    remove: removes a group, retrying until answered; it returns the outcome of each message, or
    None, and an error it raises is that of all. of: messages with equal results form a group.
    """

    def __init__(
        self,
        remove: Callable[[list[M]], Awaitable[Sequence[object] | None]],
        of: Callable[[M], object] = lambda message: None,
    ) -> None:
        self._remove = remove
        self._of = of
        self._asked: list[tuple[M, asyncio.Future[object]]] = []
        self._task: asyncio.Task[None] | None = None

    async def remove(self, message: M) -> object:
        """Remove one message. Cancelling the wait does not cancel the removal of the others."""
        removed: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._asked.append((message, removed))
        if self._task is None:
            self._task = asyncio.create_task(self._remove_all())
        return await removed

    async def close(self) -> None:
        """Cancel the removals that have not been answered."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _remove_all(self) -> None:
        group: list[tuple[M, asyncio.Future[object]]] = []
        try:
            while self._asked:
                of = self._of(self._asked[0][0])
                group = [one for one in self._asked if self._of(one[0]) == of][:_MOST]
                taken = set(map(id, group))
                self._asked = [one for one in self._asked if id(one) not in taken]
                outcomes: Sequence[object] = [None] * len(group)
                error: Exception | None = None
                try:
                    outcomes = await self._remove([message for message, _ in group]) or outcomes
                except Exception as raised:
                    error = raised
                for (_, removed), outcome in zip(group, outcomes, strict=True):
                    if removed.done():
                        continue  # its caller was cancelled
                    if error is None:
                        removed.set_result(outcome)
                    else:
                        removed.set_exception(error)
        finally:
            self._task = None
            for _, removed in (*group, *self._asked):
                removed.cancel()  # only after a close; all others are done
            self._asked = []
