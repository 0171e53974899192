"""Claimed messages, and what queues make of their verbs, for coroutines."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Protocol

from ..claimed import Bury, Of, Retry, acked, single
from ..errors import ClaimEnded, FsmqError, InvalidValue, NoSuchMessage
from ..given import JSON_TYPE, Body, Delay, json_of
from ..layout.dead_letter import reason_of
from ..layout.message import Message
from ..verbs.remove_if import Acked

log = logging.getLogger(__name__)
# The claim is over.
_OVER = (NoSuchMessage, ClaimEnded)
_BURIED = "message %s goes to the dead-letter queue: %s"


class AsyncKeeper(Protocol):
    """The queue of a claimed message, for coroutines."""

    name: str

    async def put(
        self,
        body: Body,
        *,
        delay: Delay | None = None,
        priority: int = 0,
        ttl: float | None = None,
        id: str | None = None,
        content_type: str | None = None,
        attributes: Mapping[str, str] | None = None,
        group: str | None = None,
        dedup_id: str | None = None,
    ) -> str: ...
    async def claim(
        self, count: int = 1, visibility: float | None = None, wait: float = 0.0
    ) -> list[AsyncClaimed]: ...
    async def remove(self, *messages: Message | str) -> int: ...
    async def remove_each(self, messages: Iterable[Message | str]) -> list[bool]: ...
    async def ack_each(
        self, messages: Iterable[Message | str], claims: Sequence[str | None] | None = None
    ) -> list[Acked]: ...


class AsyncClaimed(Of):
    """A message that was claimed, for coroutines.

    In a ``with`` it is acknowledged at the end, and released when the end is an exception; unless
    one of its methods has settled before what is to become of it. :class:`Retry` releases it with a
    delay and :class:`Bury` buries it; these two end with the ``with``.
    """

    __slots__ = ()

    async def ack(self) -> bool:
        """Acknowledge it: the work is done. Whether it was there. Raises ClaimEnded."""
        self._settle()
        return bool(await self._keeper.ack(self.id, claim=self.claim))

    async def renew(self, visibility: float | None = None) -> float:
        """Hold it for ``visibility`` seconds from now; the new deadline.

        Raises NoSuchMessage, ClaimEnded.
        """
        deadline: float = await self._keeper.renew(self.id, visibility, claim=self.claim)
        return deadline

    async def release(self, delay: Delay = 0.0) -> None:
        """Make it ready again, at once or after ``delay``. Raises NoSuchMessage, ClaimEnded."""
        self._settle()
        await self._keeper.release(self.id, delay, claim=self.claim)

    async def bury(self, reason: str | None = None) -> None:
        """Move it to the dead-letter queue. Raises NoSuchMessage, ClaimEnded, InvalidValue.

        reason: what its ``dead_letter`` tells from then on, at most 1024 bytes in UTF-8.
        """
        await self._keeper.bury(self.id, reason, claim=self.claim)
        self._settle()

    async def __aenter__(self) -> AsyncClaimed:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if self._settled:
            return False
        if error is None:
            await self.ack()
        elif isinstance(error, Retry):
            with suppress(*_OVER):  # another consumer tries again
                await self.release(error.delay)
            return True
        elif isinstance(error, Bury):
            log.info(_BURIED, self.id, error)
            try:
                with suppress(*_OVER):
                    await self.bury(reason_of(error))
            except InvalidValue:  # without a dead-letter queue it must not be lost
                await self.release()
                raise
            return True
        else:
            with suppress(FsmqError):  # it comes back at its deadline, and the error is to be seen
                await self.release()
        return False


class AsyncQueueVerbs:
    """Verbs of the library's queues and of the client's, made of their other verbs."""

    async def put_json(
        self: AsyncKeeper,
        value: Any,
        *,
        delay: Delay | None = None,
        priority: int = 0,
        ttl: float | None = None,
        id: str | None = None,
        attributes: Mapping[str, str] | None = None,
        group: str | None = None,
        dedup_id: str | None = None,
    ) -> str:
        """Put one message whose body is the JSON of ``value``; its id.

        Its content type is ``application/json``. Otherwise as ``put``.
        """
        return await self.put(
            json_of(value),
            delay=delay,
            priority=priority,
            ttl=ttl,
            id=id,
            content_type=JSON_TYPE,
            attributes=attributes,
            group=group,
            dedup_id=dedup_id,
        )

    async def ack(self: AsyncKeeper, *messages: Message | str, claim: str | None = None) -> int:
        """Acknowledge claimed messages, or ids of them: the work is done; how many were there.

        claim: the ``claim`` of a single message. Raises ClaimEnded if that is over; without it a
        message is removed whoever has claimed it.
        """
        if claim is None:
            return await self.remove(*messages)
        return acked(self.name, messages, await self.ack_each(single(messages), [claim]))

    async def remove(self: AsyncKeeper, *messages: Message | str) -> int:
        """Remove messages, or ids of them, in whatever state they are; how many were there."""
        return sum(await self.remove_each(messages))

    def claim_one(
        self: AsyncKeeper, visibility: float | None = None, wait: float = 0.0
    ) -> AbstractAsyncContextManager[AsyncClaimed | None]:
        """Claim one message for the length of a ``with``; it gives None if there is none.

        The message is acknowledged at the end, and released when the end is an exception.
        """
        return _one(self, visibility, wait)


@asynccontextmanager
async def _one(
    queue: AsyncKeeper, visibility: float | None, wait: float
) -> AsyncIterator[AsyncClaimed | None]:
    messages = await queue.claim(1, visibility, wait)
    if not messages:
        yield None
        return
    async with messages[0] as message:
        yield message
