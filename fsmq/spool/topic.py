"""One topic of a spool, as programs use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import prepare
from .arguments import Body, Delay, new_message
from .layout.topics.filters import Filter

if TYPE_CHECKING:
    from .spool import Spool


class Topic:
    """One topic of a spool: a message published to it goes to every subscribed queue.

    All methods raise :class:`~fsmq.spool.errors.FsmqError`: InvalidValue for a bad argument,
    NoSuchTopic if there is no such topic, Unavailable if the disk fails or is full.
    """

    def __init__(self, spool: Spool, name: str) -> None:
        self.spool = spool
        self.name = name

    def __repr__(self) -> str:
        return f"<Topic {self.name!r} of {self.spool.tree.root}>"

    def create(self) -> bool:
        """Create the topic durably; False if it exists."""
        return self.spool.create_topic(self.name)

    def subscribe(self, queue: str, filter: Mapping[str, Any] | None = None) -> bool:
        """Subscribe a queue, or replace its filter; False if it was subscribed already.

        queue: a queue, or ``logs/<log>``.
        filter: which messages it gets, by their attributes, as in docs/topics.md; None: all.

        Raises NoSuchTopic, NoSuchQueue, NoSuchLog.
        """
        checked = None if filter is None else Filter(dict(filter))
        return self.spool.subscribe(self.name, queue, checked)

    def unsubscribe(self, queue: str) -> bool:
        """End a queue's subscription; False if it had none. Raises NoSuchTopic."""
        return self.spool.unsubscribe(self.name, queue)

    def subscriptions(self) -> dict[str, dict[str, list[Any]] | None]:
        """The subscribed queues, sorted, each with its filter or None. Raises NoSuchTopic."""
        found = self.spool.subscriptions(self.name)
        return {queue: None if filter is None else filter.policy for queue, filter in found.items()}

    def publish(
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
        return self.spool.complete(prepare.publish(self.spool.context, self.name, message))

    def delete(self) -> None:
        """Delete the topic and its subscriptions; the queues and their messages stay.

        Raises NoSuchTopic.
        """
        self.spool.delete_topic(self.name)
