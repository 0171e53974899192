"""One topic of a server, for coroutines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsmq.spool.arguments import Body, Delay, new_message

from ..session._async.session import AsyncSession
from ..verbs.topic_verbs import TopicVerbs


class AsyncClientTopic:
    """One topic of a server; every verb is durable when it returns."""

    def __init__(self, client: AsyncSession, name: str) -> None:
        self.client = client
        self.name = name
        self._run = client.run
        self._verbs = TopicVerbs(client.verbs)

    def __repr__(self) -> str:
        return f"<AsyncClientTopic {self.name!r} of {self.client.options.origin}>"

    async def create(self) -> bool:
        """Create the topic durably; False if it exists."""
        return await self._run(self._verbs.create(self.name))

    async def subscribe(self, queue: str, filter: Mapping[str, Any] | None = None) -> bool:
        """Subscribe a queue, or replace its filter; False if it was subscribed already.

        queue: a queue, or ``logs/<log>``.
        filter: which messages it gets, by their attributes, as in docs/topics.md; None: all.

        Raises NoSuchTopic, NoSuchQueue, NoSuchLog.
        """
        return await self._run(self._verbs.subscribe(self.name, queue, filter))

    async def unsubscribe(self, queue: str) -> bool:
        """End a queue's subscription; False if it had none. Raises NoSuchTopic."""
        return await self._run(self._verbs.unsubscribe(self.name, queue))

    async def subscriptions(self) -> dict[str, dict[str, list[Any]] | None]:
        """The subscribed queues, sorted, each with its filter or None. Raises NoSuchTopic."""
        return await self._run(self._verbs.subscriptions(self.name))

    async def publish(
        self,
        body: Body,
        *,
        delay: Delay | None = None,
        priority: int = 0,
        ttl: float | None = None,
        content_type: str | None = None,
        attributes: Mapping[str, str] | None = None,
        group: str | None = None,
        dedup_id: str | None = None,
    ) -> dict[str, str]:
        """Put a copy into every subscribed queue, all or none; returns the copies' ids by queue.

        For a log, ``logs/<log>``, it is the offset. See :class:`~fsmq.NewMessage` for the
        arguments. A queue that has had the ``dedup_id`` stores nothing; the id is the first's.

        Raises NoSuchTopic; MessageTooLarge, QueueFull, LogFull or OtherWriter if a queue or log
        does not take it; InvalidValue if it does not fit one: a ``dedup_id`` is for fifo queues,
        which need a ``group``.
        """
        message = new_message(
            body, delay, priority, ttl, None, content_type, attributes, group, dedup_id
        )
        return await self._run(self._verbs.publish(self.name, message))

    async def delete(self) -> None:
        """Delete the topic and its subscriptions; the queues and their messages stay.

        Raises NoSuchTopic.
        """
        await self._run(self._verbs.delete(self.name))
