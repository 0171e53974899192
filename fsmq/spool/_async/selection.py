"""Several queues from which one claims together, for coroutines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, Protocol, TypeVar

from ..layout.messages.message import Message
from ..verbs.several import Choice, Turns
from .claimed_message import AsyncClaimed
from .queue_verbs import one_of

# The workers of the place. They stand on a higher floor.
W_co = TypeVar("W_co", covariant=True)


class AsyncPlace(Protocol[W_co]):
    """What a selection needs of the spool or the server where its queues are, for coroutines."""

    def queue(self, name: str) -> Any: ...
    async def _claim_several(
        self, turns: Turns, count: int, visibility: float | None, wait: float
    ) -> list[Message]: ...
    def _selection_worker(self, selection: AsyncSelection[Any], *of: Any) -> W_co: ...


class AsyncSelection(Generic[W_co]):
    """Several queues from which one claims together: by order, by weight and by pattern.

    Each message says in ``queue`` of which it is, and is acknowledged, renewed and released there.
    Keep the object: it knows whose turn it is.
    """

    def __init__(self, place: AsyncPlace[W_co], choice: Choice) -> None:
        self.name = str(choice)
        self._place = place
        self._turns = Turns(choice)

    def __repr__(self) -> str:
        return f"<AsyncSelection {self.name!r} of {self._place!r}>"

    async def claim(
        self, count: int = 1, visibility: float | None = None, wait: float = 0.0
    ) -> list[AsyncClaimed]:
        """Claim up to ``count`` (1 to 1000) messages; an empty list if there are none.

        visibility: seconds until an unacknowledged message comes back; None: as its queue has it.
        wait: seconds to wait for a first message.

        Raises NoSuchQueue if there is none of a name, InvalidValue if there are too many.
        """
        messages = await self._place._claim_several(self._turns, count, visibility, wait)
        queues = {name: self._place.queue(name) for name in {m.queue for m in messages}}
        return [AsyncClaimed.all(queues[m.queue], [m])[0] for m in messages]

    def claim_one(
        self, visibility: float | None = None, wait: float = 0.0
    ) -> AbstractAsyncContextManager[AsyncClaimed | None]:
        """Claim one message for the length of a ``with``; it gives None if there is none.

        The message is acknowledged at the end, and released when the end is an exception.
        """
        return one_of(self, visibility, wait)

    def worker(
        self,
        handler: Callable[[Message, Any], Awaitable[object]],
        *,
        concurrency: int = 4,
        visibility: float = 60.0,
        backoff: float = 1.0,
        backoff_max: float = 300.0,
        stop_timeout: float = 30.0,
    ) -> W_co:
        """A worker that calls ``handler(message, claim)`` for each message; its ``run()`` works.

        Its arguments are those of the ``worker`` of a queue.
        """
        pace = (concurrency, visibility, backoff, backoff_max, stop_timeout)
        return self._place._selection_worker(self, handler, *pace)
