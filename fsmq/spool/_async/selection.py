"""Several queues to claim from together, for coroutines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ..claimed import Claim
from ..layout.messages.message import Message
from ..verbs.choice import Choice
from ..verbs.several import Turns
from .claimed_message import AsyncClaimed
from .consumed import AsyncConsumed, W_co


class AsyncPlace(Protocol[W_co]):
    """What a selection needs from the spool or server of its queues, for coroutines."""

    def queue(self, name: str) -> Any: ...
    async def _claim_several(
        self, turns: Turns, count: int, visibility: float | None, wait: float
    ) -> list[Message]: ...
    def _selection_worker(self, selection: AsyncSelection[Any], *of: Any) -> W_co: ...


class AsyncSelection(AsyncConsumed[AsyncClaimed, W_co]):
    """Several queues to claim from together: by order, by weight and by pattern.

    ``queue`` of each message names its queue, where it is acknowledged, renewed and released. Keep
    the object: it remembers whose turn it is.
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

        visibility: seconds until an unacknowledged message comes back; None: its queue's setting.
        wait: seconds to wait for a first message.

        Raises NoSuchQueue if a named queue is missing, InvalidValue if there are too many.
        """
        messages = await self._place._claim_several(self._turns, count, visibility, wait)
        queues = {name: self._place.queue(name) for name in {m.queue for m in messages}}
        return [AsyncClaimed.all(queues[m.queue], [m])[0] for m in messages]

    def _worker(
        self, handler: Callable[[AsyncClaimed, Claim], Awaitable[object]], *pace: Any
    ) -> W_co:
        return self._place._selection_worker(self, handler, *pace)
