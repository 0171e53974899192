"""What a worker needs of a queue, and a queue of the library as that."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from .. import prepare
from ..errors import ClaimEnded, FsmqError, Unavailable
from ..layout.messages.message import Message
from .handlers import Dirty
from .patience import backoff
from .removals import Removals

if TYPE_CHECKING:
    from .._sync.queue_verbs import Claims
    from ..queue import Queue
    from ..spool import Spool

T = TypeVar("T")
# How long a claim waits in its thread: a worker ends so late at most where nothing comes.
_WAIT_S = 1.0
# Verbs side by side: they wait for the disk, and share its syncs.
_THREADS = 32
_FOR_EVER_S = float("inf")


class Source(Protocol):
    """A queue as a worker uses it: each verb acts on a message in the claim that it came with.

    ``patience``: seconds for which a verb is tried again.
    """

    name: str

    async def claim(self, count: int, visibility: float) -> Sequence[Dirty]:
        """Claim up to ``count`` messages; waits for a first one, for a while.

        One that is cancelled takes no message with it. Tries once.
        """

    async def renew(self, message: Any, visibility: float, patience: float) -> object:
        """Hold a message for ``visibility`` seconds from now."""

    async def release(self, message: Any, delay: float, patience: float) -> object:
        """Make a message ready again after ``delay`` seconds."""

    async def bury(self, message: Any, reason: str | None, patience: float) -> object:
        """Move a message to the dead-letter queue, which is told the reason."""

    async def remove(self, message: Any) -> object:
        """Remove a message. Tries until it is answered: work that is done is not done again.

        Raises ClaimEnded where another consumer may have it.
        """

    async def close(self) -> None:
        """Give back what the source itself has opened."""


class ThreadedSource(ABC):
    """What sources of the library share: threads, since verbs wait for the disk."""

    def __init__(self, concurrency: int) -> None:
        self._threads = ThreadPoolExecutor(min(concurrency, _THREADS) + 1, "fsmq-verbs")
        self._removals: Removals[Any] = Removals(self._remove, queue_of)

    async def remove(self, message: Any) -> object:
        """See :meth:`Source.remove`."""
        return await self._removals.remove(message)

    async def close(self) -> None:
        """Wait for the threads."""
        await self._removals.close()
        await asyncio.to_thread(self._threads.shutdown)

    @abstractmethod
    async def _remove(self, messages: list[Any]) -> Sequence[object] | None:
        """Remove what was worked on; what became of each; None: all are removed."""

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


def queue_of(message: Dirty) -> str | None:
    """The queue in which a message is removed, renewed and released."""
    return message.queue if isinstance(message, Message) else None


class QueueSource(ThreadedSource):
    """A queue of a spool, or what else messages are claimed from that name their queues.

    queue: from which it claims.
    """

    def __init__(self, spool: Spool, queue: Claims, concurrency: int) -> None:
        super().__init__(concurrency)
        self.name = queue.name
        self._spool = spool
        self._queue = queue

    async def claim(self, count: int, visibility: float) -> list[Message]:
        """See :meth:`Source.claim`."""
        claimed = self._threads.submit(self._claim, count, visibility)
        try:
            return await asyncio.wrap_future(claimed)
        except asyncio.CancelledError:
            claimed.add_done_callback(self._release_claimed)  # the thread goes on
            raise

    async def renew(self, message: Message, visibility: float, patience: float) -> object:
        """See :meth:`Source.renew`."""
        verb = partial(self._of(message).renew, message, visibility, claim=message.claim)
        return await self._persist(patience, verb)

    async def release(self, message: Message, delay: float, patience: float) -> object:
        """See :meth:`Source.release`."""
        verb = partial(self._of(message).release, message, delay, claim=message.claim)
        return await self._persist(patience, verb)

    async def bury(self, message: Message, reason: str | None, patience: float) -> object:
        """See :meth:`Source.bury`."""
        verb = partial(self._of(message).bury, message, reason, claim=message.claim)
        return await self._persist(patience, verb)

    async def remove(self, message: Message) -> object:
        """See :meth:`Source.remove`."""
        if await super().remove(message) == "ended":
            raise ClaimEnded(message.queue, message.id)
        return None

    async def _remove(self, messages: list[Message]) -> Sequence[object]:
        return await self._persist(_FOR_EVER_S, self._of(messages[0]).ack_each, messages)

    def _of(self, message: Message) -> Queue:
        return self._spool.queue(message.queue)

    def _claim(self, count: int, visibility: float) -> list[Message]:
        return list(self._queue.claim(count, visibility, _WAIT_S))

    def _release_claimed(self, claimed: Future[list[Message]]) -> None:
        if claimed.cancelled() or claimed.exception() is not None:
            return
        spool = self._spool
        for message in claimed.result():
            with suppress(FsmqError):  # it comes back when its claim ends
                spool.complete(prepare.release_unseen(spool.context, message))
