"""The messages of a queue with an index, accessed by the ids that producers gave them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from . import prepare
from .context import OpenSpool, Prepared
from .layout.messages.message import Message, NewMessage
from .verbs.by_id import by_id
from .verbs.by_id.upsert import Stored
from .views import scan


class Indexed:
    """The messages of one queue that has an index; every verb is durable when it returns.

    An id is any text of 1 to 1024 bytes. Finding one takes equally long among ten messages and a
    million, on any host. All methods raise InvalidValue without an index, NoSuchQueue, Unavailable.
    """

    def __init__(self, spool: OpenSpool, name: str) -> None:
        self.spool = spool
        self.name = name

    def __repr__(self) -> str:
        return f"<Indexed {self.name!r} of {self.spool.context.tree.root}>"

    def upsert(self, messages: Sequence[NewMessage]) -> list[str]:
        """Put messages, all or none; each replaces the one that has its ``id``.

        Returns their names in the queue, which claims show as ``id``. If several have the same
        ``id``, the last one counts. Raises MessageTooLarge, QueueFull.
        """
        return self._complete(prepare.upsert(self.spool.context, self.name, messages)).names

    def _complete(self, storing: Prepared[Stored]) -> Stored:
        stored = self.spool.complete(storing)
        while stored.rest is not None:
            stored = self.spool.complete(stored.rest)
        return stored

    def ensure(self, message: NewMessage, *, among: Sequence[str] = ()) -> bool:
        """Put a message unless one has its ``id``; of concurrent callers only one gets True.

        among: other queues with an index, in which the id must not be either.

        Raises MessageTooLarge, QueueFull.
        """
        ensuring = prepare.ensure(self.spool.context, self.name, [message], among)
        return self.spool.complete(ensuring)[0]

    def find(self, given_id: str) -> Message | None:
        """Look at the message of an id, in any state; None if there is none."""
        return by_id.find_id(self.spool.context, self.name, given_id)

    def claim(self, given_id: str, visibility: float | None = None) -> Message | None:
        """Claim the message of an id, even if delayed; None if there is none or it is claimed."""
        claiming = prepare.claim_id(self.spool.context, self.name, given_id, visibility)
        return self.spool.complete(claiming)

    def ack(self, *given_ids: str, names: Mapping[str, str] | None = None) -> list[bool]:
        """Remove messages in flight; for each id, whether its message was one.

        names: for some ids, the name in the queue of the message that is meant, as claims show it;
        a newer message of that id stays.
        """
        return self.spool.complete(prepare.ack_ids(self.spool.context, self.name, given_ids, names))

    def remove(self, *given_ids: str) -> list[bool]:
        """Remove messages in any state; for each id, whether there was one."""
        return self.spool.complete(prepare.remove_ids(self.spool.context, self.name, given_ids))

    def renew(self, given_id: str, visibility: float) -> bool:
        """Let a claim end in ``visibility`` seconds, or release it if 0; False if there is none."""
        return self.spool.complete(
            prepare.renew_id(self.spool.context, self.name, given_id, visibility)
        )

    def postpone(
        self, given_id: str, delay: float, attributes: Mapping[str, str] | None = None
    ) -> bool:
        """Delay a message that is not claimed: it is ready ``delay`` seconds from now.

        False if there is none, or if it is claimed. The message is put again, so that it is sorted
        by its new time, and its deliveries count from 0.
        attributes: attributes to change.
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
        """Iterate over the messages; each is read when it is needed.

        states: of "new", "ready", "in_flight", "delayed"; without any, all. sorted_by_name: in the
        order of claims. is_over: called before each message; True ends the iteration.
        """
        return scan.scan(
            self.spool.context,
            self.name,
            states or scan.STATES,
            sorted_by_name=sorted_by_name,
            is_over=is_over,
        )
