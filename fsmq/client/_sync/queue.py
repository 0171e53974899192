# Made from ../_async/queue.py by `make sync`: change that one.
"""One queue of a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fsmq.spool._sync.claimed_message import Claimed
from fsmq.spool._sync.consumed import Consumed
from fsmq.spool._sync.queue_verbs import QueueVerbs
from fsmq.spool.arguments import Body, Delay, as_new_messages, seconds_of, untold
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

    docs/client.md says what a retry of each verb finds after a lost answer.
    """

    def __init__(self, client: Session, name: str) -> None:
        self.client = client
        self.name = name
        self._run = client.run
        self._verbs = client.verbs

    def __repr__(self) -> str:
        return f"<ClientQueue {self.name!r} of {self.client.options.origin}>"

    def create(self) -> bool:
        """Create the queue durably; False if it exists."""
        return self._run(self._verbs.create_queue(self.name))

    def settings(self) -> QueueSettings:
        """The settings of the queue."""
        return self._run(self._verbs.settings(self.name))

    def configure(self, **changes: Any) -> QueueSettings:
        """Change settings, as in ``configure(visibility_timeout=60)``; returns all settings.

        The dead-letter queue is created if it is missing.
        """
        return self._run(self._verbs.configure(self.name, changes))

    def _put(self, message: NewMessage) -> str:
        return self._run(self._verbs.put(self.name, message))

    def put_many(self, messages: Iterable[Body | NewMessage]) -> list[str]:
        """Put many messages; returns their ids in order. Durable in parts of at most 250.

        Each part is stored wholly or not at all: on an error the earlier parts are stored, and the
        error's ``index`` is the position of the message it concerns. Raises the same as ``put``.
        """
        return self._run(self._verbs.put_many(self.name, as_new_messages(messages)))

    def claim(
        self, count: int = 1, visibility: float | None = None, wait: float = 0.0
    ) -> list[Claimed]:
        """Claim up to ``count`` (1 to 1000) messages; an empty list if there are none.

        visibility: seconds until an unacknowledged message is ready again; None: its setting.
        wait: seconds to wait for a first message.
        """
        messages = self._run(self._verbs.claim(self.name, count, visibility, wait))
        return Claimed.all(self, messages)

    def renew(
        self, message: Message | str, visibility: float | None = None, *, claim: str | None = None
    ) -> float:
        """Hold a message for ``visibility`` seconds from now; returns the deadline in Unix seconds.

        claim: the ``claim`` of the message; if given, no other claim is renewed.

        Raises NoSuchMessage; ClaimEnded if the given claim has ended.
        """
        verb = self._verbs.renew(self.name, id_of(message), visibility, claim)
        return self._run(verb)

    def release(
        self,
        message: Message | str,
        delay: Delay = 0.0,
        *,
        claim: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Make a claimed message ready again, at once or after ``delay``.

        If its deliveries are used up it goes to the dead-letter queue instead.

        claim: as in :meth:`renew`. reason: why its consumer failed: kept in the ``dead_letter``, at
        most 1024 bytes in UTF-8.

        Raises NoSuchMessage, ClaimEnded.
        """
        verb = self._verbs.release(self.name, id_of(message), seconds_of(delay), claim, reason)
        self._run(verb)

    def bury(
        self, message: Message | str, reason: str | None = None, *, claim: str | None = None
    ) -> None:
        """Move a claimed message to the dead-letter queue now; its deliveries count from 0.

        reason: the reason in its ``dead_letter``, at most 1024 bytes in UTF-8.
        claim: as in :meth:`renew`.

        Raises NoSuchMessage if it is not in flight, ClaimEnded, InvalidValue if the queue has no
        dead-letter queue. If that has another message of the id, this one gets a new id there.
        """
        self._run(self._verbs.bury(self.name, id_of(message), reason, claim))

    def ack_each(
        self, messages: Iterable[Message | str], claims: Sequence[str | None] | None = None
    ) -> list[Acked]:
        """Acknowledge messages whose claims still hold; returns the outcome of each.

        claims: the claim of each message; None: those in the messages. A message or an id without a
        claim is removed whoever has claimed it.

        An outcome is "removed", "missing", or "ended": the claim has ended, and nothing was done.
        """
        return self._run(self._verbs.remove_if(self.name, *with_claims(messages, claims)))

    def set_priority(self, message: Message | str, priority: int) -> str:
        """Give a ready message another priority, 0 (first) to 99; returns its new id.

        Raises NoSuchMessage if it is not ready, InvalidValue if its id has no priority (a
        file's name that no put made) or the queue has an index, DuplicateMessage.
        """
        return self._run(self._verbs.set_priority(self.name, id_of(message), priority))

    def remove_each(self, messages: Iterable[Message | str]) -> list[bool]:
        """Remove messages, given as such or by id; for each, whether it was there."""
        ids = [id_of(message) for message in messages]
        return self._run(self._verbs.remove_each(self.name, ids))

    def purge(self, *, progress: Callable[[int], None] = untold) -> None:
        """Remove all messages.

        progress: called now and then with the number removed; a client never calls it.
        """
        self._run(self._verbs.purge(self.name))

    def peek(self, count: int = 10, *, state: str = "ready", after: str = "") -> list[Message]:
        """Look at up to ``count`` messages in one state, without claiming them.

        state: "new", "ready", "in_flight" or "delayed", as the ``state`` of a message.
        after: an id; only messages after it are shown.
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
        """Search for up to ``count`` messages in one state, without claiming them.

        attributes: names with values. contains: a part of the body. older_than: seconds since it
            was put; matches only messages whose id has the time.
        budget: seconds after which it stops; ``next`` of the result is the ``after`` with which
            to go on, and None when all have been looked at.
        """
        looking = InspectionVerbs(self._verbs).search(
            self.name, count, state, after, attributes, contains, older_than, budget
        )
        return self._run(looking)

    def life(self, message_id: str, *, after: str = "", budget: float = 5.0) -> Life:
        """The life of a message, even one that is gone, from the journal.

        budget: seconds after which it stops; ``next`` of the result is the ``after`` with which
            to go on, and None when there is no more.
        """
        looking = InspectionVerbs(self._verbs).life(self.name, message_id, after, budget)
        return self._run(looking)

    def find(self, message_id: str) -> Message | None:
        """Look at one message in any state; None if there is none."""
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
        """Move the messages, or only those of some ids, to another queue; returns how many.

        in_flight: claimed and delayed messages are moved too, and become ready.
        rate: the most messages a second, 0.01 to 1000000.
        progress: called now and then with the number moved.

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
        """Move the dead letters of this queue back to where they were buried; returns how many.

        Moves the ready ones; their deliveries count from 0. After a kill it is resumed; with
        ``only`` just if it has a rate, and just for the current 1000 ids.

        only: the ids of those to move; None: all.
        to: the queue for all of them; None: each to the queue from which it was buried.
        rate: the most messages a second, 0.01 to 1000000.
        progress: called now and then with the number moved.

        Raises NoSuchQueue, also of ``to``.
        """
        ids = None if only is None else [id_of(one) for one in only]
        redrive = MoveVerbs(self._verbs).redrive(self.name, ids, to, rate, progress)
        return self._run(redrive)

    def counts(self) -> Counts:
        """The numbers of new, ready, in-flight and delayed messages."""
        return self._run(self._verbs.counts(self.name))

    def delete(self) -> None:
        """Delete the queue and all its messages. Raises NoSuchQueue."""
        self._run(self._verbs.delete_queue(self.name))

    def _worker(self, handler: Callable[[Claimed, Claim], object], *pace: Any) -> Worker:
        def claim(verbs: Verbs, *by: Any) -> Verb[list[Claimed]]:
            return Claimed.all(self, (yield from verbs.claim(self.name, *by)))

        return worker_of(self.client, self.name, claim, handler, *pace)
