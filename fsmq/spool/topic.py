"""One topic of a spool, as programs use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .given import Body, Delay, new_message
from .layout.filters import Filter

if TYPE_CHECKING:
    from .spool import Spool


class Topic:
    """One topic of a spool: what is published to it goes to every subscribed queue.

    All methods raise :class:`~fsmq.spool.errors.FsmqError`: InvalidValue for a bad argument,
    NoSuchTopic when the topic was deleted, Unavailable when the disk refuses.
    """

    def __init__(self, spool: Spool, name: str) -> None:
        self.spool = spool
        self.name = name

    def __repr__(self) -> str:
        return f"<Topic {self.name!r} of {self.spool.tree.root}>"

    def subscribe(self, queue: str, filter: Mapping[str, Any] | None = None) -> bool:
        """Subscribe a queue, or replace its filter; False if it was subscribed already.

        filter: which messages it takes by their attributes, see
            :mod:`fsmq.spool.layout.filters`; None takes all.

        Raises NoSuchQueue.
        """
        checked = None if filter is None else Filter(dict(filter))
        return self.spool.subscribe(self.name, queue, checked)

    def unsubscribe(self, queue: str) -> bool:
        """End a queue's subscription; False if it had none."""
        return self.spool.unsubscribe(self.name, queue)

    def subscriptions(self) -> dict[str, dict[str, list[Any]] | None]:
        """The subscribed queues, sorted, each with its filter or None."""
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
    ) -> dict[str, str]:
        """Put a copy into every subscribed queue; the id of each copy by queue. All or none.

        See :class:`~fsmq.spool.layout.message.NewMessage` for the arguments.

        Raises MessageTooLarge or QueueFull if one of the queues does not take it.
        """
        message = new_message(body, delay, priority, ttl, None, content_type, attributes)
        return self.spool.complete(self.spool.unsynced.publish(self.name, message))

    def delete(self) -> None:
        """Delete the topic and its subscriptions; the queues and their messages stay."""
        self.spool.delete_topic(self.name)
