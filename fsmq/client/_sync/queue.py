# Made from ../_async/queue.py by `make sync`: change that one.
"""One queue of a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fsmq.spool._sync.claimed_message import Claimed
from fsmq.spool._sync.consumed import Consumed
from fsmq.spool._sync.queue_verbs import QueueVerbs
from fsmq.spool.arguments import Body, Delay, as_new_message, seconds_of, untold
from fsmq.spool.claimed import Claim, id_of, with_claims
from fsmq.spool.index.counting import Counts
from fsmq.spool.layout.messages.message import Message, NewMessage
from fsmq.spool.layout.settings import QueueSettings
from fsmq.spool.records.life import Life
from fsmq.spool.verbs.moves.move import Moved
from fsmq.spool.verbs.moves.redrive import Redriven
from fsmq.spool.verbs.remove_if import Acked
from fsmq.spool.views.wanted import Found

from ..exchange import Verb
from ..session._sync.session import Session
from ..verbs.inspection_verbs import InspectionVerbs
from ..verbs.moves import MoveVerbs
from ..verbs.queue_verbs import Verbs
from ..workers.workers import worker_of

if TYPE_CHECKING:
    from fsmq.spool.worker.blocking_worker import Worker


class ClientQueue(QueueVerbs, Consumed[Claimed, "Worker"]):
    """One queue of a server; every verb is durable when it returns.

    What a verb finds whose answer was lost and that is tried again: docs/client.md.
    """

    def __init__(self, client: Session, name: str) -> None:
        self.client = client
        self.name = name
        self._run = client.run
        self._verbs = client.verbs

    def __repr__(self) -> str:
        return f"<ClientQueue {self.name!r} of {self.client.options.origin}>"

    def create(self) -> bool:
        """Create the queue durably; False if it was there."""
        return self._run(self._verbs.create_queue(self.name))

    def settings(self) -> QueueSettings:
        """The settings of the queue."""
        return self._run(self._verbs.settings(self.name))

    def configure(self, **changes: Any) -> QueueSettings:
        """Change settings, such as ``configure(visibility_timeout=60)``; all settings then.

        The dead-letter queue is created if it is missing.
        """
        return self._run(self._verbs.configure(self.name, changes))

    def _put(self, message: NewMessage) -> str:
        return self._run(self._verbs.put(self.name, message))

    def put_many(self, messages: Iterable[Body | NewMessage]) -> list[str]:
        """Put many messages; their ids in the same order. Durable in parts of at most 250.

        Within a part it is all or none: when it raises, the parts before are stored, and ``index``
        of the error is the position of the message that it is about. Raises as ``put``.
        """
        return self._run(self._verbs.put_many(self.name, map(as_new_message, messages)))

    def claim(
        self, count: int = 1, visibility: float | None = None, wait: float = 0.0
    ) -> list[Claimed]:
        """Claim up to ``count`` (1 to 1000) messages; an empty list if there are none.

        visibility: seconds until an unacknowledged message comes back; None: the queue's setting.
        wait: seconds to wait for a first message.
        """
        messages = self._run(self._verbs.claim(self.name, count, visibility, wait))
        return Claimed.all(self, messages)

    def renew(
        self, message: Message | str, visibility: float | None = None, *, claim: str | None = None
    ) -> float:
        """Hold a message for ``visibility`` seconds from now; the new deadline in Unix seconds.

        claim: the ``claim`` of the message, if no other may be renewed.

        Raises NoSuchMessage; ClaimEnded if the claim that was named is over.
        """
        verb = self._verbs.renew(self.name, id_of(message), visibility, claim)
        return self._run(verb)

    def release(
        self, message: Message | str, delay: Delay = 0.0, *, claim: str | None = None
    ) -> None:
        """Make a claimed message ready again, at once or after ``delay``.

        claim: as of :meth:`renew`. Raises NoSuchMessage, ClaimEnded.
        """
        verb = self._verbs.release(self.name, id_of(message), seconds_of(delay), claim)
        self._run(verb)

    def bury(
        self, message: Message | str, reason: str | None = None, *, claim: str | None = None
    ) -> None:
        """Move a claimed message to the dead-letter queue now, with its count started again.

        reason: what its ``dead_letter`` tells from then on, at most 1024 bytes in UTF-8.
        claim: as of :meth:`renew`.

        Raises NoSuchMessage if it is not in flight, ClaimEnded, InvalidValue if the queue has no
        such queue.
        """
        self._run(self._verbs.bury(self.name, id_of(message), reason, claim))

    def ack_each(
        self, messages: Iterable[Message | str], claims: Sequence[str | None] | None = None
    ) -> list[Acked]:
        """Acknowledge messages whose claims still hold; for each what became of it.

        claims: for each message the name of its claim; without them its own. A message or an id
        without a claim is removed whoever has claimed it.

        Each is "removed", or "missing", or "ended": its claim had, and it stays as it is.
        """
        return self._run(self._verbs.remove_if(self.name, *with_claims(messages, claims)))

    def set_priority(self, message: Message | str, priority: int) -> str:
        """Give a message that is ready another priority, 0 (first) to 99; its id, which changes.

        Raises NoSuchMessage if it is not ready, InvalidValue if its id carries no priority (an own
        id that is no UUIDv7) or the queue has an index, DuplicateMessage.
        """
        return self._run(self._verbs.set_priority(self.name, id_of(message), priority))

    def remove_each(self, messages: Iterable[Message | str]) -> list[bool]:
        """Remove messages, or ids of them; for each whether it was there."""
        ids = [id_of(message) for message in messages]
        return self._run(self._verbs.remove_each(self.name, ids))

    def purge(self, *, progress: Callable[[int], None] = untold) -> None:
        """Remove all messages.

        progress: called with the number of those removed, now and then; by a client never.
        """
        self._run(self._verbs.purge(self.name))

    def peek(self, count: int = 10, *, state: str = "ready", after: str = "") -> list[Message]:
        """Look at up to ``count`` messages in one state, without claiming them.

        state: "new", "ready", "in_flight" or "delayed", as the ``state`` of a message.
        after: an id; only messages behind it are shown.
        """
        return self._run(self._verbs.peek(self.name, count, state, after))

    def search(
        self,
        count: int = 10,
        *,
        state: str = "ready",
        after: str = "",
        attributes: Mapping[str, str] | None = None,
        contains: str | bytes | None = None,
        older_than: float | None = None,
        budget: float = 2.0,
    ) -> Found:
        """Look for up to ``count`` messages in one state, without claiming them.

        attributes: each with its value. contains: a part of the body. older_than: seconds since
            it was put; the id of a message must say when that was.
        budget: seconds after which it stops; ``next`` of the result is the ``after`` with which
            to go on, and None when all have been looked at.
        """
        looking = InspectionVerbs(self._verbs).search(
            self.name, count, state, after, attributes, contains, older_than, budget
        )
        return self._run(looking)

    def life(self, message_id: str, *, after: str = "", budget: float = 5.0) -> Life:
        """What happened to a message, by the journal: also to one that has gone.

        budget: seconds after which it stops; ``next`` of the result is the ``after`` with which
            to go on, and None when there is no more.
        """
        looking = InspectionVerbs(self._verbs).life(self.name, message_id, after, budget)
        return self._run(looking)

    def find(self, message_id: str) -> Message | None:
        """Look at one message in whatever state; None if there is none."""
        return self._run(self._verbs.find(self.name, message_id))

    def move_to(
        self,
        target: str,
        *,
        only: Sequence[str] | None = None,
        in_flight: bool = False,
        rate: float | None = None,
        progress: Callable[[int], None] = untold,
    ) -> Moved:
        """Move the messages, or only those of some ids, to another queue; how many it moved.

        in_flight: claimed and delayed messages move too, and are ready then.
        rate: at most so many messages a second, 0.01 to 1000000.
        progress: called with the number of those moved, now and then.

        Raises NoSuchQueue; what has not moved by then stays.
        """
        move = MoveVerbs(self._verbs).move(self.name, target, only, in_flight, progress, rate=rate)
        return self._run(move)

    def redrive(
        self,
        *,
        only: Sequence[str] | None = None,
        to: str | None = None,
        rate: float | None = None,
        progress: Callable[[int], None] = untold,
    ) -> Redriven:
        """Bring the dead letters of this queue back to where they were buried; how many moved.

        Those that are ready go, with their deliveries counted from 0 again. It goes on after a
        kill; if it is of some ids, only at a rate, and with the 1000 that it was at.

        only: the ids of those that go; None is all.
        to: the queue to which all go; None: each to the queue from which it was buried.
        rate: at most so many messages a second, 0.01 to 1000000.
        progress: called with the number of those moved, now and then.

        Raises NoSuchQueue, also of ``to``.
        """
        ids = None if only is None else [id_of(one) for one in only]
        redrive = MoveVerbs(self._verbs).redrive(self.name, ids, to, rate, progress)
        return self._run(redrive)

    def counts(self) -> Counts:
        """How many messages are new, ready, in flight and delayed."""
        return self._run(self._verbs.counts(self.name))

    def delete(self) -> None:
        """Delete the queue and all its messages. Raises NoSuchQueue."""
        self._run(self._verbs.delete_queue(self.name))

    def _worker(self, handler: Callable[[Claimed, Claim], object], *pace: Any) -> Worker:
        def claim(verbs: Verbs, *by: Any) -> Verb[list[Claimed]]:
            return Claimed.all(self, (yield from verbs.claim(self.name, *by)))

        return worker_of(self.client, self.name, claim, handler, *pace)
