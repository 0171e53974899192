"""The common part of all that can be claimed from, for coroutines: queues, selections, channels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

from ..claimed import Claim
from .claimed_message import AsyncClaimedVerbs

M_co = TypeVar("M_co", bound=AsyncClaimedVerbs, covariant=True)
# The workers, which are in a higher layer.
W_co = TypeVar("W_co", covariant=True)


class AsyncConsumed(ABC, Generic[M_co, W_co]):
    """Something to claim messages from, for coroutines."""

    @abstractmethod
    async def claim(
        self, count: int = 1, visibility: float | None = None, wait: float = 0.0
    ) -> list[M_co]:
        """Claim messages that are ready, ``count`` at most."""

    @abstractmethod
    def _worker(self, handler: Callable[[M_co, Claim], Awaitable[object]], *pace: Any) -> W_co:
        """The worker that ``worker`` returns. pace: the `WorkerOptions`."""

    @asynccontextmanager
    async def claim_one(
        self, visibility: float | None = None, wait: float = 0.0
    ) -> AsyncIterator[M_co | None]:
        """Claim one message for the duration of a ``with``; yields None if there is none.

        The message is acknowledged at the end, and released on an exception.
        """
        messages = await self.claim(1, visibility, wait)
        if not messages:
            yield None
            return
        async with messages[0] as message:
            yield message

    def worker(
        self,
        handler: Callable[[M_co, Claim], Awaitable[object]],
        *,
        concurrency: int = 4,
        visibility: float = 60.0,
        backoff: float = 1.0,
        backoff_max: float = 300.0,
        stop_timeout: float = 30.0,
    ) -> W_co:
        """A worker that calls ``handler(message, claim)`` for each message; call its ``run()``.

        The handler of an async client is a coroutine function; others run in threads. A channel's
        ``order`` also limits how many messages are in work: with strict it is one.

        concurrency: messages in work at a time, 1 to 1000.
        visibility: seconds of a claim, which is renewed while the handler runs.
        backoff: seconds after a first failure; doubled with each delivery, up to ``backoff_max``.
        stop_timeout: seconds that handlers may take when the worker stops.
        """
        return self._worker(handler, concurrency, visibility, backoff, backoff_max, stop_timeout)
