"""Verbs of queues that are built on their other verbs, for coroutines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from ..arguments import JSON_TYPE, Body, Delay, json_of, new_message
from ..claimed import acked, single
from ..layout.messages.message import Message, NewMessage
from ..verbs.remove_if import Acked


class AsyncQueueProtocol(Protocol):
    """What these verbs need from a queue, for coroutines."""

    @property
    def name(self) -> str: ...
    async def _put(self, message: NewMessage) -> str: ...
    async def remove(self, *messages: Message | str) -> int: ...
    async def remove_each(self, messages: Iterable[Message | str]) -> list[bool]: ...
    async def ack_each(
        self, messages: Iterable[Message | str], claims: Sequence[str | None] | None = None
    ) -> list[Acked]: ...


class AsyncQueueVerbs:
    """Verbs of the queues of library and client, built on their other verbs."""

    async def put(
        self: AsyncQueueProtocol,
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
    ) -> str:
        """Put one message; returns its id. See :class:`~fsmq.NewMessage` for the arguments.

        A ``str`` is encoded in UTF-8; ``delay`` is in seconds, or a timedelta, or a datetime.

        Raises DuplicateMessage if there is a message of this ``id``, MessageTooLarge, QueueFull.
        """
        message = new_message(
            body, delay, priority, ttl, id, content_type, attributes, group, dedup_id
        )
        return await self._put(message)

    async def put_json(
        self: AsyncQueueProtocol,
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
        """Put one message whose body is the JSON of ``value``; returns its id.

        Its content type is ``application/json``. Otherwise as ``put``.
        """
        message = new_message(
            json_of(value), delay, priority, ttl, id, JSON_TYPE, attributes, group, dedup_id
        )
        return await self._put(message)

    async def ack(
        self: AsyncQueueProtocol, *messages: Message | str, claim: str | None = None
    ) -> int:
        """Acknowledge claimed messages, given as messages or ids; returns how many were there.

        claim: the ``claim`` of a single message. Raises ClaimEnded if that is over; without it
        messages are removed whoever has claimed them.
        """
        if claim is None:
            return await self.remove(*messages)
        return acked(self.name, messages, await self.ack_each(single(messages), [claim]))

    async def remove(self: AsyncQueueProtocol, *messages: Message | str) -> int:
        """Remove messages, given as messages or ids, in any state; returns how many were there."""
        return sum(await self.remove_each(messages))
