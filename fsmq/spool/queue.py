"""One queue of a spool, as programs use it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from operator import add
from typing import TYPE_CHECKING, Any

from . import prepare
from ._sync.claimed_message import Claimed
from ._sync.consumed import Consumed
from ._sync.queue_verbs import QueueVerbs
from .arguments import PART, Body, Delay, as_new_messages, seconds_of, untold
from .claimed import Claim, id_of, with_claims
from .errors import FsmqError, NoSuchQueue, as_unavailable
from .index.counting import Counts
from .layout.messages.message import Message, NewMessage
from .layout.names import check_id, check_queue
from .layout.settings import LONGEST_WAIT_S, QueueSettings, check_seconds
from .layout.steps import portions
from .moves.order import MAX_CHOSEN, moved_and
from .records.life import Life, read_life
from .verbs.moves.move import Moved, move_messages
from .verbs.moves.redrive import Redriven, redrive_messages
from .verbs.queues.purge import purge
from .verbs.remove_if import Acked
from .views import browse
from .views.wanted import Found, wanted

if TYPE_CHECKING:
    from .spool import Spool
    from .worker.blocking_worker import Worker


class Queue(QueueVerbs, Consumed[Claimed, "Worker"]):
    """One queue of a spool; every verb is durable when it returns.

    All methods raise :class:`~fsmq.spool.errors.FsmqError`: InvalidValue for a bad argument,
    NoSuchQueue if there is no such queue, Unavailable if the disk fails or is full.
    """

    def __init__(self, spool: Spool, name: str) -> None:
        self.spool = spool
        self.name = name

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} of {self.spool.tree.root}>"

    def create(self) -> bool:
        """Create the queue durably; False if it exists."""
        return self.spool.create_queue(self.name)

    def settings(self) -> QueueSettings:
        """The settings of the queue."""
        return self.spool.settings(self.name)

    def configure(self, **changes: Any) -> QueueSettings:
        """Change settings, as in ``configure(visibility_timeout=60)``; returns all settings.

        The dead-letter queue is created if it is missing.
        """
        return self.spool.configure(self.name, changes)

    def _put(self, message: NewMessage) -> str:
        [message_id] = self.spool.complete(prepare.put(self.spool.context, self.name, [message]))
        return message_id

    def put_many(self, messages: Iterable[Body | NewMessage]) -> list[str]:
        """Put many messages; returns their ids in order. Durable in parts of at most 250.

        Each part is stored wholly or not at all: on an error the earlier parts are stored, and the
        error's ``index`` is the position of the message it concerns. Raises the same as ``put``.
        """
        waiting = as_new_messages(messages)
        ids: list[str] = []
        while part := list(islice(waiting, PART)):
            try:
                stored = self.spool.complete(prepare.put(self.spool.context, self.name, part))
            except FsmqError as error:
                if error.index is not None:
                    error.index += len(ids)
                raise
            ids.extend(stored)
        return ids

    def claim(
        self, count: int = 1, visibility: float | None = None, wait: float = 0.0
    ) -> list[Claimed]:
        """Claim up to ``count`` (1 to 1000) messages; an empty list if there are none.

        visibility: seconds until an unacknowledged message is ready again; None: its setting.
        wait: seconds to wait for a first message.
        """
        check_seconds("wait", wait, LONGEST_WAIT_S)
        end = time.monotonic() + wait
        while True:
            since = self.spool.context.ready.waits.taken
            self.spool.deliver()
            messages = self.spool.complete(
                prepare.claim(self.spool.context, self.name, count, visibility)
            )
            left = end - time.monotonic()
            if messages or left <= 0:
                return Claimed.all(self, messages)
            self.spool.wait(self.spool.context.pause_of(self.name, left), since)

    def renew(
        self, message: Message | str, visibility: float | None = None, *, claim: str | None = None
    ) -> float:
        """Hold a message for ``visibility`` seconds from now; returns the deadline in Unix seconds.

        claim: the ``claim`` of the message; if given, no other claim is renewed.

        Raises NoSuchMessage; ClaimEnded if the given claim has ended.
        """
        renewal = prepare.renew(self.spool.context, self.name, id_of(message), visibility, claim)
        return self.spool.complete(renewal).deadline

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
        context, seconds = self.spool.context, seconds_of(delay)
        self.spool.complete(
            prepare.release(context, self.name, id_of(message), seconds, claim, reason)
        )

    def bury(
        self, message: Message | str, reason: str | None = None, *, claim: str | None = None
    ) -> None:
        """Move a claimed message to the dead-letter queue now; its deliveries count from 0.

        reason: the reason in its ``dead_letter``, at most 1024 bytes in UTF-8.
        claim: as in :meth:`renew`.

        Raises NoSuchMessage if it is not in flight, ClaimEnded, InvalidValue if the queue has no
        dead-letter queue. If that has another message of the id, this one gets a new id there.
        """
        burial = prepare.bury(self.spool.context, self.name, id_of(message), reason, claim)
        self.spool.complete(burial)

    def ack_each(
        self, messages: Iterable[Message | str], claims: Sequence[str | None] | None = None
    ) -> list[Acked]:
        """Acknowledge messages whose claims still hold; returns the outcome of each.

        claims: the claim of each message; None: those in the messages. A message or an id without a
        claim is removed whoever has claimed it.

        An outcome is "removed", "missing", or "ended": the claim has ended, and nothing was done.
        """
        ids, named = with_claims(messages, claims)
        outcomes = self.spool.complete(prepare.remove_if(self.spool.context, self.name, ids, named))
        if ids and set(outcomes) == {"missing"}:
            self.settings()  # raises NoSuchQueue if that is why
        return outcomes

    def set_priority(self, message: Message | str, priority: int) -> str:
        """Give a ready message another priority, 0 (first) to 99; returns its new id.

        Raises NoSuchMessage if it is not ready, InvalidValue if its id has no priority (a
        file's name that no put made) or the queue has an index, DuplicateMessage.
        """
        changing = prepare.set_priority(self.spool.context, self.name, id_of(message), priority)
        return self.spool.complete(changing)

    def remove_each(self, messages: Iterable[Message | str]) -> list[bool]:
        """Remove messages, given as such or by id; for each, whether it was there."""
        ids = [id_of(message) for message in messages]
        found = self.spool.complete(prepare.remove(self.spool.context, self.name, ids))
        if ids and not any(found):
            self.settings()  # raises NoSuchQueue if that is why
        return found

    def purge(self, *, progress: Callable[[int], None] = untold) -> None:
        """Remove all messages.

        progress: called now and then with the number removed; a client never calls it.
        """
        self.spool.complete(purge(self.spool.context, self.name, progress))

    def peek(self, count: int = 10, *, state: str = "ready", after: str = "") -> list[Message]:
        """Look at up to ``count`` messages in one state, without claiming them.

        state: "new", "ready", "in_flight" or "delayed", as the ``state`` of a message.
        after: an id; only messages after it are shown.
        """
        return browse.peek(self.spool.context, self.name, state, count, after)

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
        fitting = wanted(self.spool.context.clock(), attributes, contains, older_than)
        return browse.search(self.spool.context, self.name, state, count, after, fitting, budget)

    def life(self, message_id: str, *, after: str = "", budget: float = 5.0) -> Life:
        """The life of a message, even one that is gone, from the journal.

        budget: seconds after which it stops; ``next`` of the result is the ``after`` with which
            to go on, and None when there is no more.
        """
        check_id(self.name, message_id)
        with as_unavailable("cannot read the journal"):
            return read_life(self.spool.tree, self.name, message_id, after, budget)

    def find(self, message_id: str) -> Message | None:
        """Look at one message in any state; None if there is none."""
        found = browse.find(self.spool.context, self.name, message_id)
        if found is None:
            self.settings()  # raises NoSuchQueue if that is why
        return found

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
        moving = move_messages(
            self.spool.context,
            self.name,
            target,
            only=only,
            in_flight=in_flight,
            rate=rate,
            progress=progress,
        )
        return self.spool.complete(moving)

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
        spool = self.spool
        if to is not None:
            check_queue(to, "to")
        ids = None if only is None else [id_of(one) for one in only]
        if ids is not None and rate is None:
            return spool.complete(redrive_messages(spool.context, self.name, ids, to, progress))
        for queue in (self.name, to):
            if queue is not None and not spool.has_queue(queue):
                raise NoSuchQueue(queue)
        done = Redriven()
        for portion in [None] if ids is None else portions(dict.fromkeys(ids), MAX_CHOSEN):
            order = spool.begin_redrive(self.name, to=to, rate=rate, only=portion)
            report = moved_and(done.moved, progress)
            made = spool.make_move(order.ref, report) or order
            if made.error is not None and to is not None and not spool.has_queue(to):
                raise NoSuchQueue(to)
            done = Redriven(*map(add, done, (made.moved, made.conflicts, made.no_origin)))
        return done

    def counts(self) -> Counts:
        """The numbers of new, ready, in-flight and delayed messages."""
        return self.spool.counts(self.name)

    def delete(self) -> None:
        """Delete the queue and all its messages. Raises NoSuchQueue."""
        self.spool.delete_queue(self.name)

    def _worker(self, handler: Callable[[Claimed, Claim], object], *pace: Any) -> Worker:
        from .worker.blocking_worker import queue_worker

        return queue_worker(self.spool, self, handler, *pace)
