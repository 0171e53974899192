"""The messages of a queue with an index, by the ids that their producers gave them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from .context import Pending
from .errors import NoSuchMessage
from .layout.given_ids import check_given
from .layout.message import Message, NewMessage
from .verbs import by_id, postpone
from .verbs.among import reserved_among
from .views import scan

if TYPE_CHECKING:
    from .spool import Spool


class Indexed:
    """The messages of one queue that has an index; every verb is durable when it returns.

    An id is any text of 1 to 1024 bytes that a producer gave. It is found as fast among a million
    messages as among ten, on any host. All methods raise InvalidValue if the queue has no index,
    NoSuchQueue, Unavailable.
    """

    def __init__(self, spool: Spool, name: str) -> None:
        self.spool = spool
        self.name = name

    def __repr__(self) -> str:
        return f"<Indexed {self.name!r} of {self.spool.tree.root}>"

    def upsert(self, messages: Sequence[NewMessage]) -> list[str]:
        """Put messages, all or none; each takes the place of the one that has its ``id``.

        Returns their names in the queue, which claims show as ``id``. Of an ``id`` that comes
        twice the last message counts. Raises MessageTooLarge, QueueFull.
        """
        return self._upsert(messages)

    def _upsert(self, messages: Sequence[NewMessage], instead_of: str | None = None) -> list[str]:
        stored = self.spool.complete(self.spool.unsynced.upsert(self.name, messages, instead_of))
        while stored.rest is not None:
            stored = self.spool.complete(stored.rest)
        return stored.names

    def ensure(self, message: NewMessage, *, among: Sequence[str] = ()) -> bool:
        """Put a message unless one has its ``id``; of many callers at once one is told True.

        among: other queues with an index, in which it must not be either.
        """
        others = [queue for queue in among if queue != self.name]
        if not others:
            [is_put] = self.spool.complete(self.spool.unsynced.ensure(self.name, [message]))
            return is_put
        context = self.spool.context
        with reserved_among(context, [self.name, *others], check_given(message.id or "")):
            standing = by_id.standing_among(context, others, message.id or "")
            if standing is None:
                [is_put] = self.spool.complete(self.spool.unsynced.ensure(self.name, [message]))
                return is_put
            # What is said to be there must be there after a crash.
            self.spool.complete(Pending(standing, lambda: None))
            return False

    def find(self, given_id: str) -> Message | None:
        """Look at the message of an id, in whatever state; None if there is none."""
        return by_id.find_id(self.spool.context, self.name, given_id)

    def claim(self, given_id: str, visibility: float | None = None) -> Message | None:
        """Claim the message of an id, also if it is delayed; None if none, or if it is claimed."""
        claiming = self.spool.unsynced.claim_id(self.name, given_id, visibility)
        return self.spool.complete(claiming)

    def ack(self, *given_ids: str, names: Mapping[str, str] | None = None) -> list[bool]:
        """Acknowledge messages; for each id whether its message was in flight. No others go.

        names: what some of them are called in the queue, which saves a look for each.
        """
        return self.spool.complete(self.spool.unsynced.ack_ids(self.name, given_ids, names))

    def remove(self, *given_ids: str) -> list[bool]:
        """Remove messages in whatever state they are; for each id whether there was one."""
        return self.spool.complete(self.spool.unsynced.remove_ids(self.name, given_ids))

    def renew(self, given_id: str, visibility: float) -> bool:
        """Let a claim end so many seconds from now, 0 releases it; False if there is no claim."""
        return self.spool.complete(self.spool.unsynced.renew_id(self.name, given_id, visibility))

    def postpone(
        self, given_id: str, delay: float, attributes: Mapping[str, str] | None = None
    ) -> bool:
        """Let a message that nobody has claimed be ready ``delay`` seconds from now.

        False if there is none, or if it is claimed. It is put anew, so that it has its place among
        those that are due then, and its count of deliveries starts again.
        attributes: what is changed of its attributes.
        """
        found = postpone.hide_id(self.spool.context, self.name, given_id, delay)
        if found is None:
            return False
        message = _again(found, given_id, delay, {**found.attributes, **(attributes or {})})
        try:
            self._upsert([message], instead_of=found.id)
        except NoSuchMessage:
            return False  # it was claimed, or removed, just now
        return True

    def scan(
        self,
        *states: str,
        sorted_by_name: bool = False,
        is_over: Callable[[], bool] = lambda: False,
    ) -> Iterator[Message]:
        """The messages one after the other, each read when it is asked for.

        states: "new", "ready", "in_flight", "delayed"; none of them are all. sorted_by_name: as
        they would be claimed. is_over: asked before each; True ends it.
        """
        return scan.scan(
            self.spool.context,
            self.name,
            states or scan.STATES,
            sorted_by_name=sorted_by_name,
            is_over=is_over,
        )


def _again(
    found: Message, given_id: str, delay: float, attributes: Mapping[str, str]
) -> NewMessage:
    ttl = None if found.expires_at is None else max(0.0, found.expires_at - time.time())
    return NewMessage(
        found.body, delay, found.priority, ttl, given_id, found.content_type, attributes
    )
