"""The messages of a queue with an index, by the ids that their producers gave them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from . import prepare
from .context import Prepared
from .layout.messages.message import Message, NewMessage
from .verbs.by_id import by_id
from .verbs.by_id.upsert import Stored
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
        return self._complete(prepare.upsert(self.spool.context, self.name, messages)).names

    def _complete(self, storing: Prepared[Stored]) -> Stored:
        stored = self.spool.complete(storing)
        while stored.rest is not None:
            stored = self.spool.complete(stored.rest)
        return stored

    def ensure(self, message: NewMessage, *, among: Sequence[str] = ()) -> bool:
        """Put a message unless one has its ``id``; of many callers at once one is told True.

        among: other queues with an index, in which it must not be either.

        Raises MessageTooLarge, QueueFull.
        """
        ensuring = prepare.ensure(self.spool.context, self.name, [message], among)
        return self.spool.complete(ensuring)[0]

    def find(self, given_id: str) -> Message | None:
        """Look at the message of an id, in whatever state; None if there is none."""
        return by_id.find_id(self.spool.context, self.name, given_id)

    def claim(self, given_id: str, visibility: float | None = None) -> Message | None:
        """Claim the message of an id, also if it is delayed; None if none, or if it is claimed."""
        claiming = prepare.claim_id(self.spool.context, self.name, given_id, visibility)
        return self.spool.complete(claiming)

    def ack(self, *given_ids: str, names: Mapping[str, str] | None = None) -> list[bool]:
        """Acknowledge messages; for each id whether its message was in flight. No others go.

        names: which messages of some ids are meant, by their names in the queue, as claims show
        them; a newer one of the id stays.
        """
        return self.spool.complete(prepare.ack_ids(self.spool.context, self.name, given_ids, names))

    def remove(self, *given_ids: str) -> list[bool]:
        """Remove messages in whatever state they are; for each id whether there was one."""
        return self.spool.complete(prepare.remove_ids(self.spool.context, self.name, given_ids))

    def renew(self, given_id: str, visibility: float) -> bool:
        """Let a claim end so many seconds from now, 0 releases it; False if there is no claim."""
        return self.spool.complete(
            prepare.renew_id(self.spool.context, self.name, given_id, visibility)
        )

    def postpone(
        self, given_id: str, delay: float, attributes: Mapping[str, str] | None = None
    ) -> bool:
        """Let a message that nobody has claimed be ready ``delay`` seconds from now.

        False if there is none, or if it is claimed. It is put anew, so that it has its place among
        those that are due then, and its count of deliveries starts again.
        attributes: what is changed of its attributes.
        """
        storing = prepare.postpone(self.spool.context, self.name, given_id, delay, attributes or {})
        if storing is None:
            return False
        self._complete(storing)
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
