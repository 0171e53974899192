"""A client of a spool, which logs its operations and their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from errno import ENOSPC
from functools import partial
from typing import TypeVar
from unittest import mock

from fsmq.spool import (
    ClaimEnded,
    FsmqError,
    Message,
    NewMessage,
    NoSuchMessage,
    Queue,
    Spool,
    prepare,
)
from fsmq.spool.consumers import open_batches
from fsmq.spool.consumers.batches import finish_abandoned
from fsmq.spool.consumers.consumer import Consumer
from fsmq.spool.consumers.manifest import Batch
from fsmq.spool.context import Prepared
from fsmq.spool.layout.settings import QueueSettings
from fsmq.spool.layout.steps import finish
from fsmq.spool.verbs import dedup
from fsmq.spool.verbs.choice import Choice
from fsmq.spool.verbs.queues.purge import purge
from fsmq.spool.verbs.several import Turns, claim_several_in
from tests.interleave import model
from tests.interleave.judge import Log
from tests.interleave.model import Clearing, Operation, Publishing

T = TypeVar("T")
Op = TypeVar("Op", bound=Operation)
Q, OTHER, DEAD, TOPIC, DUPS = "q", "other", model.DEAD, "topic", "dups"
READ, WRITE = dedup.read_side(DUPS), dedup.write_side(DUPS)
SHORT_S, LONG_S, WAIT_S = 10.0, 60.0, 20.0
_SHORT_MS = round(SHORT_S * 1000)
CONSUMER, STREAM = "consumer", "stream"


def known(settings: QueueSettings) -> model.Known:
    """The settings of a queue in the model."""
    return model.Known(settings.max_depth, settings.retry_backoff)


def lets_wait(log: Log) -> bool:
    """Whether the queue had a retry backoff."""
    return any("retry_backoff" in op.text for op in log.operations)


def may_bury(log: Log) -> bool:
    """Whether the queue had a dead-letter queue."""
    return any("dead_letter" in op.text for op in log.operations)


class Unrenewed(Consumer):
    """A consumer that renews its claims only on request."""

    def _tasks(self) -> Iterator[Callable[[], object]]:
        return iter(())


@dataclass
class Taken:
    """The batch of a consumer, and the number of the operation that claimed it."""

    claim: int
    batch: Batch


class Client:
    """A client with its own `Spool`, like a process."""

    def __init__(self, name: str, spool: Spool, log: Log) -> None:
        self.name = name
        self.spool = spool
        self.claims: dict[str, int] = {}  # the number of its last claim, by id
        self.names: dict[str, str] = {}  # the name of that claim
        self.taken: Taken | None = None
        self.consumer: Consumer | None = None
        self._log = log
        self._written = 0

    def close(self) -> None:
        if self.consumer is not None:
            self.consumer.close()
        self.spool.close()

    @contextmanager
    def asking(self, text: str, kind: type[Op] = Operation) -> Iterator[Op]:  # type: ignore[assignment]
        """Log an operation from request to answer; an error of fsmq is an answer."""
        op = kind(len(self._log.entries) + 1, f"{self.name}: {text}")
        for entry in self.spool.context.ready._entries.values():
            if not entry.watched:
                entry.stale_at = 0.0
        self._log.ask(op)
        try:
            yield op
        except FsmqError as error:
            op.error = f"{type(error).__name__}: {error}"[:120]
        self._log.answer(op)

    def complete(self, prepared: Prepared[T]) -> T:
        return self.spool.complete(prepared)

    def body(self) -> bytes:
        self._written += 1
        return f"{self.name}{self._written}".encode()

    def put(self, *ids: str | None, delay: float = 0.0, queue: str = Q) -> list[str]:
        """Put a message for each id; None for a generated id."""
        bodies = [self.body() for _ in ids]
        with self.asking(f"put {' '.join(b.decode() for b in bodies)} as {ids} in {queue}") as op:
            messages = [
                NewMessage(body, delay or None, id=i) for body, i in zip(bodies, ids, strict=True)
            ]
            found = self.complete(prepare.put(self.spool.context, queue, messages))
            op.answer = "stored"
            op.must = [
                model.stores(op, queue, i, body, round(delay * 1000))
                for i, body in zip(found, bodies, strict=True)
            ]
            return found
        # A generated id is unknown after an error.
        own = [(i or "", body) for i, body in zip(ids, bodies, strict=True)]
        self._put_refused(op, queue, own, delay)
        return []

    def _put_refused(
        self, op: Operation, queue: str, own: list[tuple[str, bytes]], delay: float
    ) -> None:
        if op.error.startswith("DuplicateMessage"):
            op.must = [model.either(*(model.stands(queue, i) for i, _ in own))]
            return
        # It may have been stored, for a moment or, with an unknown result, for good.
        op.once = [
            model.either(
                model.stores(op, queue, i, b), model.stores(op, queue, i, b, round(delay * 1000))
            )
            for i, b in own
        ]
        op.often = [model.taken_back(op)]
        if op.error.startswith("NoSuchQueue"):
            op.must = [model.no_queue(queue)]
            op.at_end = model.is_taken_back(op)
        else:
            op.lingers = True

    def claim(self, count: int = 1, seconds: float = LONG_S, queue: str = Q) -> list[Message]:
        with self.asking(f"claim {count} of {queue} for {seconds:g} s") as op:
            return self._claimed(
                op, self.complete(prepare.claim(self.spool.context, queue, count, seconds))
            )
        return []

    def claim_several(self, count: int, *queues: str) -> list[Message]:
        with self.asking(f"claim {count} of {', '.join(queues)}") as op:
            choice, context = Choice(queues), self.spool.context
            claiming = claim_several_in(context, Turns(choice), choice.find(context), count, LONG_S)
            return self._claimed(op, self.complete(finish(claiming)))
        return []

    def _claimed(self, op: Operation, messages: list[Message]) -> list[Message]:
        op.answer = " ".join(f"{m.body.decode()}({m.deliveries})" for m in messages) or "nothing"
        for m in messages:
            until = round((m.deadline or 0) * 1000)
            op.must.append(model.takes(op, m.queue, m.id, m.body, m.deliveries or 0, until))
            self.claims[m.id] = op.number
            self.names[m.id] = m.claim or ""
        return messages

    def hang_up(self, seconds: float = SHORT_S) -> None:
        """Claim and hang up before the answer."""
        for message in self.claim(seconds=seconds):
            self.give_back(message)

    def give_back(self, message: Message) -> None:
        back = model.gives_back
        with self.asking(f"give back {message.id}") as op:
            self.complete(prepare.release_unseen(self.spool.context, message))
            op.must = [back(op, self.claims[message.id], message.id)]
            return
        op.once = [back(op, self.claims[message.id], message.id)]

    def fail_to_sync(self, seconds: float = SHORT_S) -> None:
        """Claim, and abort the claim after a failed sync."""
        prepared = None
        with self.asking(f"claim for {seconds:g} s, whose sync fails") as op:
            prepared = prepare.claim(self.spool.context, Q, 1, seconds)
            self.spool.syncer.sync(prepared.dirty)
            messages = self._claimed(op, prepared.commit())
        if prepared is not None:
            with self.asking("abandon the claim") as op:
                prepared.abort()
                op.once = [model.gives_back(op, self.claims[m.id], m.id) for m in messages]

    def renew(self, message_id: str, seconds: float = LONG_S) -> None:
        with self.asking(f"renew {message_id} for {seconds:g} s") as op:
            renewed = self.complete(prepare.renew(self.spool.context, Q, message_id, seconds))
            op.must = [model.renews(op, Q, message_id, round(renewed.deadline * 1000))]

    def extend(self, *ids: str, seconds: float = LONG_S) -> None:
        with self.asking(f"extend {ids} to {seconds:g} s") as op:
            op.often = [model.delivers_early(op)]
            held = self.complete(prepare.renew_at_least(self.spool.context, Q, ids, seconds))
            op.answer = str(held)
            op.must = [
                model.extends(op, Q, i, round(seconds * 1000))
                for i, is_held in zip(ids, held, strict=True)
                if is_held
            ]

    def release(self, message_id: str, delay: float = 0.0) -> None:
        with self.asking(f"release {message_id} after {delay:g} s") as op:
            self.complete(prepare.release(self.spool.context, Q, message_id, delay))
            op.must = [self._releases(op, message_id, delay)]

    def _releases(self, op: Operation, message_id: str, delay: float) -> model.Effect:
        wait_ms = round(WAIT_S * 1000) if lets_wait(self._log) else 0
        effect = model.releases(op, Q, message_id, round(delay * 1000), wait_ms)
        if delay or not may_bury(self._log):
            return effect
        return model.either(effect, model.buries(Q, message_id))

    def release_all(self, *ids: str) -> None:
        with self.asking(f"release {ids or 'all'}") as op:
            op.often = [model.frees_any(Q)]
            self.complete(prepare.release_many(self.spool.context, Q, ids or None))

    def bury(self, message_id: str) -> None:
        with self.asking(f"bury {message_id}") as op:
            self.complete(prepare.bury(self.spool.context, Q, message_id))
            op.must = [model.buries(Q, message_id)]

    def renew_if(self, message_id: str, seconds: float = LONG_S) -> None:
        with self._in_claim(f"renew for {seconds:g} s", message_id) as op:
            verb = partial(prepare.renew, self.spool.context)
            renewed = self.complete(verb(Q, message_id, seconds, self.names[message_id]))
            assert renewed.claim == self.names[message_id]
            until = round(renewed.deadline * 1000)
            self._must(op, message_id, model.renews(op, Q, message_id, until))

    def renew_though_over(self, message_id: str, seconds: float = LONG_S) -> None:
        """Continue the claim though it has ended, if it is the last one of the message."""
        with self._in_claim(f"renew for {seconds:g} s, though over,", message_id) as op:
            name = self.names[message_id]
            verb = partial(prepare.renew, self.spool.context)
            renewed = self.complete(verb(Q, message_id, seconds, name, though_over=True))
            assert renewed.claim == name
            until, claim = round(renewed.deadline * 1000), self.claims[message_id]
            count = int(name[1:].partition("-")[0])
            op.must = [model.goes_on(Q, message_id, claim, count, until)]

    def release_if(self, message_id: str, delay: float = 0.0) -> None:
        with self._in_claim(f"release after {delay:g} s", message_id) as op:
            verb = partial(prepare.release, self.spool.context)
            self.complete(verb(Q, message_id, delay, self.names[message_id]))
            self._must(op, message_id, self._releases(op, message_id, delay))

    def bury_if(self, message_id: str) -> None:
        with self._in_claim("bury", message_id) as op:
            verb = partial(prepare.bury, self.spool.context)
            self.complete(verb(Q, message_id, claim=self.names[message_id]))
            self._must(op, message_id, model.buries(Q, message_id))

    def remove_if(self, message_id: str) -> None:
        with self._in_claim("remove", message_id) as op:
            verb = partial(prepare.remove_if, self.spool.context)
            [op.answer] = self.complete(verb(Q, [message_id], [self.names[message_id]]))
            if op.answer == "removed":
                self._must(op, message_id, model.goes(Q, message_id))
            else:
                self._not_held(op, message_id, is_gone=op.answer == "missing")

    @contextmanager
    def _in_claim(self, what: str, message_id: str) -> Iterator[Operation]:
        with self.asking(f"{what} {message_id} in {self.names[message_id]}") as op:
            try:
                yield op
            except (ClaimEnded, NoSuchMessage) as error:
                op.answer = str(error)
                self._not_held(op, message_id, is_gone=isinstance(error, NoSuchMessage))

    def _must(self, op: Operation, message_id: str, effect: model.Effect) -> None:
        op.must = [model.if_held(Q, message_id, self.claims[message_id], effect)]

    def _not_held(self, op: Operation, message_id: str, *, is_gone: bool) -> None:
        if is_gone:
            op.must = [model.absent(Q, message_id)]
        else:
            op.must = [model.ended(Q, message_id, self.claims[message_id])]

    def remove(self, *ids: str, queue: str = Q) -> None:
        with self.asking(f"remove {ids} from {queue}") as op:
            found = self.complete(prepare.remove(self.spool.context, queue, ids))
            op.answer = str(found)
            op.must = [
                model.goes(queue, i) if was_there else model.absent(queue, i)
                for i, was_there in zip(ids, found, strict=True)
            ]

    def purge(self, queue: str = Q) -> None:
        with self.asking(f"purge {queue}", Clearing) as op:
            op.queue = queue
            self.complete(purge(self.spool.context, queue))

    def delete_queue(self, queue: str = Q) -> None:
        with self.asking(f"delete {queue}", Clearing) as op:
            op.queue, op.drops = queue, True
            self.spool.delete_queue(queue)

    def create_queue(self, queue: str = Q) -> None:
        with self.asking(f"create {queue}") as op:
            is_new = self.spool.create_queue(queue)
            op.answer = str(is_new)
            op.must = [model.makes_queue(queue) if is_new else model.is_queue(queue)]

    def configure(self, **changes: object) -> None:
        with self.asking(f"configure {changes}") as op:
            settings = self.spool.configure(Q, changes)
            op.must = [model.sets(Q, known(settings))]
            if settings.dead_letter_queue is not None:
                op.must.append(model.has_queue(settings.dead_letter_queue))

    def bury_used_up(self, most: int = 1) -> None:
        self.configure(max_deliveries=most, dead_letter_queue=DEAD)

    def let_wait(self) -> None:
        """Set a retry backoff."""
        self.configure(retry_backoff=WAIT_S, retry_factor=1, retry_jitter=0)

    def deliver(self) -> None:
        """Deliver in this process."""
        with self.asking("deliver") as op:
            op.often = [model.delivers_early(op)]
            self.spool.deliver()

    def count(self) -> None:
        """Begin a census, which is checked at the end."""
        with self.asking("count") as op:
            op.answer = str(self.spool.census.size(Q))

    def move(self, source: str = Q, target: str = OTHER, *, hidden: bool = True) -> None:
        with self.asking(f"move {source} to {target}, hidden ones: {hidden}") as op:
            op.often = [model.moves_any(op, source, target, hidden)]
            Queue(self.spool, source).move_to(target, in_flight=hidden)

    def order_move(self, source: str = Q, target: str = OTHER, *, dedup: bool = False) -> None:
        self.spool.begin_move(source, target, dedup=dedup)

    def make_moves(self, source: str = Q, target: str = OTHER) -> None:
        with self.asking("make moves") as op:
            op.once = [model.makes_queue(target)]
            op.often = [model.moves_any(op, source, target, True)]
            self.spool.make_moves()

    def set_priority(self, message_id: str, priority: int) -> None:
        with self.asking(f"give {message_id} the priority {priority}") as op:
            op.often = [model.delivers_early(op)]
            prepared = prepare.set_priority(self.spool.context, Q, message_id, priority)
            new_id = self.complete(prepared)
            op.answer = new_id
            op.must = [model.renames(Q, message_id, new_id)]

    def redrive(self, *ids: str) -> None:
        with self.asking(f"redrive {ids or 'all'}") as op:
            op.often = [model.redrives(op, Q)]
            Queue(self.spool, DEAD).redrive(only=ids or None)

    def subscribe(self, queue: str = Q) -> None:
        with self.asking(f"subscribe {queue}") as op:
            self.spool.subscribe(TOPIC, queue)
            op.must = [model.subscribes(TOPIC, queue)]
            return
        if op.error.startswith("NoSuchQueue"):
            op.once = [model.subscribes(TOPIC, queue)]
            op.often = [model.unsubscribes(TOPIC, queue)]
            op.at_end = lambda world: (TOPIC, queue) not in world.subscribed

    def unsubscribe(self, queue: str = Q) -> None:
        with self.asking(f"unsubscribe {queue}") as op:
            self.spool.unsubscribe(TOPIC, queue)
            op.must = [model.unsubscribes(TOPIC, queue)]

    def delete_topic(self) -> None:
        with self.asking("delete the topic") as op:
            self.spool.delete_topic(TOPIC)
            op.must = [model.ends_topic(TOPIC)]

    def publish(self) -> None:
        body = self.body()
        with self.asking(f"publish {body.decode()}", Publishing) as op:
            op.topic = TOPIC
            copies = self.complete(prepare.publish(self.spool.context, TOPIC, NewMessage(body)))
            op.answer = str(sorted(copies))
            op.copied = frozenset(copies)
            op.must = [model.stores(op, queue, i, body) for queue, i in copies.items()]
            return
        # Some queues may have it, with unknown ids.
        op.once = [model.stores(op, queue, "", body) for queue in (Q, OTHER)]
        op.often = [model.taken_back(op)]
        op.lingers = True

    def dedup_send(self, body: bytes) -> None:
        content = dedup.content_id(body)
        with self.asking(f"send {body.decode()}") as op:
            self.complete(prepare.dedup_send(self.spool.context, DUPS, [body]))
            store = model.stores(op, WRITE, content, body)
            op.must = [model.either(store, model.stands(WRITE, content))]
            return
        self._put_refused(op, WRITE, [(content, body)], 0.0)

    def dedup_poll(self, count: int = 1, seconds: float = LONG_S) -> list[Message]:
        with self.asking(f"poll {count} for {seconds:g} s") as op:
            op.often = [model.pulls_any(WRITE, READ)]
            prepared = dedup.poll(self.spool.context, DUPS, count, seconds)
            return self._claimed(op, self.complete(prepared))
        return []

    def dedup_peek(self) -> None:
        with self.asking("peek") as op:
            op.often = [model.pulls_any(WRITE, READ)]
            self.complete(dedup.peek(self.spool.context, DUPS, 9))

    def open_consumer(self, name: str = CONSUMER) -> None:
        self.consumer = Unrenewed(self.spool, name, visibility=SHORT_S)

    def take_batch(self, count: int = 1) -> None:
        with self.asking(f"take a batch of {count}") as op:
            assert self.consumer is not None
            batch = self.consumer.claim(STREAM, 0, [Q], count)
            for claim in batch.claims[Q] if batch is not None else ():
                op.must.append(model.takes_for(op, Q, claim.id, claim.deliveries, _SHORT_MS))
            op.answer = str(batch)
            if batch is not None:
                self.taken = Taken(op.number, batch)

    def keep_batch(self) -> None:
        assert self.consumer is not None
        taken = self.taken
        if taken is None:
            return
        with self.asking("keep the batch") as op:
            kept = self.consumer.renew_batch(taken.batch)
            for claim in kept.claims[Q]:
                message = Q, claim.id
                op.must.append(model.keeps(op, taken.claim, message, claim.deliveries, _SHORT_MS))
            op.answer = str(kept.claims[Q])

    def fail_to_store(self) -> None:
        """Claim a batch that cannot be stored: its claims are released and not counted."""
        assert self.consumer is not None
        refuses = mock.patch.object(open_batches, "save", side_effect=OSError(ENOSPC, "full"))
        with self.asking("take a batch that cannot be stored") as op, refuses:
            op.once = [model.takes_any(op, Q, _SHORT_MS), model.gives_back_any(op)]
            self.consumer.claim(STREAM, 0, [Q], 1)

    def divide_batch(self) -> None:
        """Divide a failed batch into parts; a single message is redelivered or buried."""
        assert self.consumer is not None
        taken = self.taken
        if taken is None:
            return
        with self.asking("divide the batch") as op:
            op.once = [model.buries_own(Q, taken.claim)]
            before = {claim.id: claim.deliveries for claim in taken.batch.claims[Q]}
            divided = self.consumer.divide(taken.batch, 2)
            for claim in (claim for part in divided for claim in part.claims[Q]):
                if claim.deliveries > before[claim.id]:
                    op.must.append(model.counts(op, taken.claim, (Q, claim.id), _SHORT_MS))
            op.answer = str(divided)
            self.taken = Taken(taken.claim, divided[-1])

    def commit_batch(self) -> None:
        assert self.consumer is not None
        if self.taken is None:
            return
        committed = model.commits(Q, self.taken.claim)
        with self.asking("commit the batch") as op:
            self.consumer.commit(STREAM, self.taken.batch.number)
            op.must = [committed]
            return
        op.once = [committed]
        op.lingers = True

    def finish_abandoned(self) -> None:
        """Finish the client's interrupted commit."""
        assert self.taken is not None
        with self.asking("finish the commit") as op:
            op.once = [model.commits(Q, self.taken.claim)]
            finish_abandoned(self.spool.context)
