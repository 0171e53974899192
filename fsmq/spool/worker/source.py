"""The interface to a queue that a worker needs, for local queues and channels."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from .. import prepare
from ..context import OpenSpool
from ..errors import FsmqError, Unavailable
from ..layout.messages.message import Message
from ..verbs.remove_if import Acked
from .handlers import Claimed
from .patience import backoff

if TYPE_CHECKING:
    from ..log.channel import Channel

T = TypeVar("T")
_WAIT_S = 1.0
_THREADS = 32
_FOR_EVER_S = float("inf")


class Source(Protocol):
    """A queue as a worker uses it. Each verb acts on a message only in its own claim.

    patience: seconds for which a verb is retried.
    """

    name: str

    async def claim(self, count: int, visibility: float) -> Sequence[Claimed]:
        """Claim up to ``count`` messages; waits a while for a first one.

        A cancelled call releases what it claims. Tries only once.
        """

    async def renew(self, message: Any, visibility: float, patience: float) -> object:
        """Hold a message for ``visibility`` seconds from now."""

    async def release(
        self, message: Any, delay: float, patience: float, reason: str | None = None
    ) -> object:
        """Make a message ready again after ``delay`` seconds. reason: why its handler failed."""

    async def bury(self, message: Any, reason: str | None, patience: float) -> object:
        """Move a message to the dead-letter queue, with the reason."""

    async def ack_each(self, messages: list[Any]) -> Sequence[Acked]:
        """Acknowledge messages that were claimed from one queue; the outcome of each.

        Retries until answered, so that finished work is not done again.
        """

    async def close(self) -> None:
        """Close what the source itself has opened."""


ClaimCall: TypeAlias = "Callable[[int, float, float], Sequence[Any]]"


class LocalSource:
    """A channel or one or several queues of a spool. Verbs wait for the disk, so run in threads.

    name: of what it claims from. claim: claims messages, which know where they came from.
    give_back: releases messages that no handler has seen.
    """

    def __init__(
        self,
        name: str,
        claim: ClaimCall,
        give_back: Callable[[Sequence[Any]], object],
        concurrency: int,
    ) -> None:
        self.name = name
        self._claim = claim
        self._give_back = give_back
        self._threads = ThreadPoolExecutor(min(concurrency, _THREADS) + 1, "fsmq-verbs")

    async def claim(self, count: int, visibility: float) -> Sequence[Any]:
        """See :meth:`Source.claim`."""
        claimed = self._threads.submit(self._claim, count, visibility, _WAIT_S)
        try:
            return await asyncio.wrap_future(claimed)
        except asyncio.CancelledError:
            claimed.add_done_callback(self._release_claimed)  # the thread continues
            raise

    async def renew(self, message: Any, visibility: float, patience: float) -> object:
        """See :meth:`Source.renew`."""
        return await self._persist(patience, message.renew, visibility)

    async def release(
        self, message: Any, delay: float, patience: float, reason: str | None = None
    ) -> object:
        """See :meth:`Source.release`."""
        return await self._persist(patience, message.release, delay, reason)

    async def bury(self, message: Any, reason: str | None, patience: float) -> object:
        """See :meth:`Source.bury`."""
        return await self._persist(patience, message.bury, reason)

    async def ack_each(self, messages: list[Any]) -> Sequence[Acked]:
        """See :meth:`Source.ack_each`."""
        acked: Sequence[Acked] = await self._persist(
            _FOR_EVER_S, messages[0]._bound_to.ack_each, messages
        )
        return acked

    async def close(self) -> None:
        """Wait for its threads."""
        await asyncio.to_thread(self._threads.shutdown)

    async def _persist(self, patience: float, verb: Callable[..., T], *of: Any) -> T:
        end = time.monotonic() + patience
        tries = 0
        while True:
            try:
                return await asyncio.get_running_loop().run_in_executor(self._threads, verb, *of)
            except Unavailable as error:
                pause = backoff(tries, error.retry_after)
                if time.monotonic() + pause >= end:
                    raise
            await asyncio.sleep(pause)
            tries += 1

    def _release_claimed(self, claimed: Future[Sequence[Any]]) -> None:
        if claimed.cancelled() or claimed.exception() is not None:
            return
        with suppress(FsmqError):  # they become ready when their claims end
            self._give_back(claimed.result())


def queue_source(spool: OpenSpool, queue: Any, concurrency: int) -> LocalSource:
    """The source for one queue or a selection of queues."""

    def give_back(messages: Sequence[Message]) -> None:
        for message in messages:
            with suppress(FsmqError):
                spool.complete(prepare.release_unseen(spool.context, message))

    return LocalSource(queue.name, queue.claim, give_back, concurrency)


def channel_source(channel: Channel, concurrency: int) -> LocalSource:
    """The source for a channel of a log."""

    def claim(count: int, visibility: float, wait: float) -> Sequence[Any]:
        most = count if channel.settings().order == "none" else 1
        return channel.claim(most, visibility, wait)

    name = f"{channel.log.name}/{channel.name}"
    return LocalSource(name, claim, channel.release_unseen, concurrency)
