"""Verbs on a spool, each with its promises from its start and from its answer on."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Set
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from errno import ENOSPC
from functools import partial
from unittest import mock

from fsmq.spool import (
    ClaimEnded,
    DuplicateMessage,
    Message,
    NewMessage,
    NoSuchMessage,
    NoSuchQueue,
    Queue,
    Spool,
    Unavailable,
    prepare,
)
from fsmq.spool.consumers import open_batches
from fsmq.spool.consumers import retry as retry_module
from fsmq.spool.consumers.consumer import Consumer
from fsmq.spool.durability.dotnames import recover
from fsmq.spool.layout.claim_names import claim_name
from fsmq.spool.layout.names import reservation, seal_of, staged_entry
from fsmq.spool.layout.settings import QueueSettings
from fsmq.spool.layout.steps import finish
from fsmq.spool.layout.topics.filters import Filter
from fsmq.spool.layout.uuids import uuid7
from fsmq.spool.staging.commit import commit, is_committed
from fsmq.spool.staging.part import Job, Part
from fsmq.spool.verbs import dedup
from fsmq.spool.verbs.choice import Choice
from fsmq.spool.verbs.queues import creation, deletion, subscribing
from fsmq.spool.verbs.several import Turns, claim_several_in
from tests.replay.dead import DEAD_VERBS, DeadPromise, DeadVerbs
from tests.replay.given import ID_VERBS, GivenPromise, IdVerbs
from tests.replay.recorder import Recorder
from tests.spool.helpers import Clock

HOLD_S = 600.0
# The clock of scenarios stands still, ahead of the kernel's by more than the longest soak takes, so
# that no file looks new.
AHEAD_S = 20_000.0
JOBS, SIDE = "jobs", "side"
DEPTH = 70  # the setting max_depth of the queue jobs at the start
CONSUMER = "spark"
FILTER = Filter({"type": ["refund"]})
ABOUT = {"tags": {"team": "a"}}
TOPICS: dict[str, bool | None] = {
    "news": True,
    "news/jobs": True,
    "news/side": True,
    "quiet": True,
    "quiet/jobs": False,
    "quiet/_about.json": False,
    "fresh": False,
}
STREAM = "01977420-dc00-7abc-8def-0123456789ab"
# The messages at the start of scenarios: ready, in flight, new, and delayed.
READY, HELD, NEW, LATER = b"ready at first", b"held at first", b"new at first", b"later at first"
FIRST = {"ready": READY, "held": HELD, "new": NEW, "later": LATER}
# A dedup queue with a message on its write side, a peeked one and a claimed one.
DUPS = "dups"
WAITS, SHOWN, CLAIMED = b"waits at first", b"shown at first", b"claimed at first"
# A queue that is moved to another, with a ready, a held and a new message.
HERE, THERE = "here", "there"
MOVING = {name: name.encode() + b" to be moved" for name in ("ready", "held", "new")}
_IDS = {body: name for name, body in FIRST.items()}


@dataclass
class Promised:
    """The promises that hold after a crash now."""

    must: set[bytes] = field(default_factory=set)  # bodies that must be delivered
    may: set[bytes] = field(default_factory=set)  # bodies that may be delivered
    held: dict[bytes, float] = field(default_factory=dict)  # the earliest delivery, in Unix seconds
    free: set[bytes] = field(default_factory=set)  # not hidden
    queue: bool | None = True  # whether jobs exists; None: unknown
    fresh: bool | None = False  # the same for the queue "fresh"
    # The setting max_depth; None: the queue is deleted.
    depths: set[int | None] = field(default_factory=lambda: {DEPTH})
    # Bodies that must and may be in the queue "side".
    side_must: set[bytes] = field(default_factory=set)
    side_may: set[bytes] = field(default_factory=set)
    # The bodies of the consumer's batch, and whether it is given again; None: all or nothing.
    batch: frozenset[bytes] = frozenset()
    given: bool | None = False
    # Whether the batch is one file, which one rename commits; whether it may be several.
    is_whole: bool = True
    is_taking: bool = False
    is_begun: bool = False  # its stream is stored
    # The least numbers of claims of bodies.
    least: dict[bytes, int] = field(default_factory=dict)
    # Bodies whose burial has begun: they are in jobs or in "side".
    dying: set[bytes] = field(default_factory=set)
    # Dedup queue: bodies that must be delivered, possible copies, and earliest deliveries.
    dups_must: set[bytes] = field(default_factory=lambda: {WAITS, SHOWN, CLAIMED})
    dups_may: Counter[bytes] = field(default_factory=lambda: Counter((WAITS, SHOWN, CLAIMED)))
    dups_held: dict[bytes, float] = field(default_factory=dict)
    moved: bool | None = False  # whether all messages of "here" are in "there"; None: unknown
    # Whether a topic or a subscription (topic/queue) exists; None: unknown.
    topics: dict[str, bool | None] = field(default_factory=lambda: dict(TOPICS))
    # The bodies of begun jobs; acknowledged jobs; bodies whose removal has begun.
    jobs: dict[int, bytes] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    doomed: set[bytes] = field(default_factory=set)
    by_id: GivenPromise = field(default_factory=GivenPromise)
    dead: DeadPromise = field(default_factory=DeadPromise)


Effect = Callable[[Promised], None]


class Actor(IdVerbs, DeadVerbs):
    """Runs verbs on a spool, and marks the promises that each changes before and after it.

    posted: the number of the last message before.
    """

    def __init__(self, spool: Spool, recorder: Recorder, clock: Clock, posted: int = 0) -> None:
        self.spool = spool
        self.clock = clock
        self.is_acknowledged = True
        self._recorder = recorder
        self._posted = posted

    @property
    def jobs(self) -> Queue:
        return Queue(self.spool, JOBS)

    def begin(self, effect: Effect) -> None:
        """Mark the effect of a begun verb."""
        self._recorder.mark(effect)

    def end(self, effect: Effect) -> None:
        """Mark the effect of an answer."""
        if self.is_acknowledged:
            self._recorder.mark(effect)

    # Each verb: the effect of its start, the verb, the effect of its answer.

    def put(self, **more: object) -> None:
        self._posted += 1
        body = b"put in the scenario, number %d" % self._posted
        self.begin(lambda p: p.may.add(body))
        self.jobs.put(body, **more)  # type: ignore[arg-type]

        def stored(p: Promised) -> None:
            p.must.add(body)

        self.end(stored)

    def put_promoted(self) -> None:
        """A mover that starts during a put promotes the message before it is synced."""
        self._posted += 1
        body = b"put in the scenario, number %d" % self._posted
        self.begin(lambda p: p.may.add(body))
        prepared = prepare.put(self.spool.context, JOBS, [NewMessage(body)])
        recover(self.spool.tree, self.clock(), at_start=True)
        self.spool.complete(prepared)
        self.end(lambda p: p.must.add(body))

    def put_batch(self) -> None:
        bodies = {b"in a batch, number %d" % (self._posted + n) for n in range(2)}
        self._posted += 2
        self.begin(lambda p: p.may.update(bodies))
        self.jobs.put_many(sorted(bodies))
        self.end(lambda p: p.must.update(bodies))

    def put_delayed(self) -> None:
        self.put(delay=HOLD_S, content_type="text/plain")

    def put_own(self) -> None:
        self.put(id=f"own-{self._posted}")

    def retry_left(self) -> None:
        """Retry a put with an own id whose writer died before its sync."""
        self._retry(lambda: None)

    def retry_promoted(self) -> None:
        """The same after a mover has promoted the message."""
        self._retry(lambda: recover(self.spool.tree, self.clock(), at_start=True))

    def retry_changed(self) -> None:
        """The same with another attribute, and with the reservation of the writer."""
        self._retry(lambda: None, attempt="2")

    def retry_changed_promoted(self) -> None:
        self._retry(lambda: recover(self.spool.tree, self.clock()), attempt="2")

    def _retry(self, meanwhile: Callable[[], object], **changed: str) -> None:
        self._posted += 1
        body = b"put again, number %d" % self._posted
        own = f"again-{self._posted}" if changed else uuid7()
        self.begin(lambda p: p.may.add(body))
        if changed:
            self._leave(reservation(JOBS, own), b"")
        self._leave(staged_entry(JOBS, own, seal_of(body)), body)
        meanwhile()
        with suppress(DuplicateMessage):
            self.jobs.put(body, id=own, attributes=changed)
        self.end(lambda p: p.must.add(body))

    def _leave(self, name: str, content: bytes) -> None:
        left = os.open(self.spool.tree.root / "new" / name, os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(left, content)
        os.close(left)

    def put_own_batch(self) -> None:
        """Put two own ids under one lock."""
        bodies = [b"of its own in a batch, number %d" % (self._posted + n) for n in range(2)]
        self._posted += 2
        self.begin(lambda p: p.may.update(bodies))
        messages = [NewMessage(body, id=f"own-{n}-{self._posted}") for n, body in enumerate(bodies)]
        self.spool.complete(prepare.put(self.spool.context, JOBS, messages))
        self.end(lambda p: p.must.update(bodies))

    def deliver(self) -> None:
        self.spool.deliver()

    def claim(self) -> None:
        self.begin(lambda p: p.free.clear())
        messages = self.spool.complete(prepare.claim(self.spool.context, JOBS, 1, HOLD_S))
        self._claimed(messages)

    def claim_several(self) -> None:
        self.begin(lambda p: p.free.clear())
        choice, context = Choice(f"{SIDE}:1,{JOBS}:1"), self.spool.context
        claiming = claim_several_in(context, Turns(choice), choice.find(context), 2, HOLD_S)
        self._claimed(self.spool.complete(finish(claiming)))

    def _claimed(self, messages: list[Message]) -> None:
        deadline = self.clock() + HOLD_S

        def claimed(p: Promised) -> None:
            p.held.update({message.body: deadline for message in messages})

        self.end(claimed)

    def renew(self) -> None:
        def begin(p: Promised) -> None:
            p.held.pop(HELD, None)
            p.free.discard(HELD)

        self.begin(begin)
        with suppress(NoSuchMessage):
            deadline = self.jobs.renew("held", 2 * HOLD_S)
            self.end(lambda p: p.held.update({HELD: deadline}))

    def renew_ready(self) -> None:
        """A late renewal claims a message again that is ready."""
        self.begin(lambda p: p.free.discard(READY))
        with suppress(NoSuchMessage):
            deadline = self.jobs.renew("ready", 2 * HOLD_S)
            self.end(lambda p: p.held.update({READY: deadline}))

    def release(self) -> None:
        self.begin(lambda p: p.held.pop(HELD, None))
        with suppress(NoSuchMessage):
            self.jobs.release("held")
            self.end(lambda p: p.free.add(HELD))

    def back_off(self) -> None:
        self.begin(lambda p: p.held.pop(HELD, None))
        with suppress(NoSuchMessage):
            self.jobs.release("held", 1.5 * HOLD_S)
            deadline = self.clock() + 1.5 * HOLD_S
            self.end(lambda p: p.held.update({HELD: deadline}))

    def renew_if(self) -> None:
        def begin(p: Promised) -> None:
            p.held.pop(HELD, None)
            p.free.discard(HELD)

        claim = self._claim_of("held")
        self.begin(begin)
        with suppress(NoSuchMessage, ClaimEnded):
            deadline = self.jobs.renew("held", 2 * HOLD_S, claim=claim)
            self.end(lambda p: p.held.update({HELD: deadline}))

    def release_if(self) -> None:
        claim = self._claim_of("held")
        self.begin(lambda p: p.held.pop(HELD, None))
        with suppress(NoSuchMessage, ClaimEnded):
            self.jobs.release("held", claim=claim)
            self.end(lambda p: p.free.add(HELD))

    def back_off_if(self) -> None:
        claim = self._claim_of("held")
        self.begin(lambda p: p.held.pop(HELD, None))
        with suppress(NoSuchMessage, ClaimEnded):
            self.jobs.release("held", 1.5 * HOLD_S, claim=claim)
            deadline = self.clock() + 1.5 * HOLD_S
            self.end(lambda p: p.held.update({HELD: deadline}))

    def release_retried(self) -> None:
        """In a queue with ``retry_backoff`` a released message waits."""
        self._let_wait()
        found = self.jobs.find("held")
        waits = found is not None and found.state == "in_flight"
        self.begin(lambda p: p.held.pop(HELD, None))
        with suppress(NoSuchMessage):
            self.jobs.release("held")
            until = self.clock() + 1.5 * HOLD_S

            def end(p: Promised) -> None:
                if waits:
                    p.held[HELD] = until
                else:  # it has waited before
                    p.free.add(HELD)

            self.end(end)

    def retry_lapsed(self) -> None:
        """The mover makes a message wait after the end of its claim, and keeps its count."""
        self._let_wait()

        def begin(p: Promised) -> None:
            p.held.pop(HELD, None)
            p.held.pop(LATER, None)
            if HELD in p.must:
                p.least[HELD] = 1

        self.begin(begin)
        self.clock.advance(HOLD_S + 1)
        self.spool.deliver()

    def _let_wait(self) -> None:
        self.jobs.configure(retry_backoff=1.5 * HOLD_S, retry_jitter=0.0)

    def bury_if(self) -> None:
        """Bury to the queue "side"."""
        claim = self._claim_of("held")

        def begin(p: Promised) -> None:
            _forget(p, {HELD})
            p.side_may.add(HELD)

        self.jobs.configure(dead_letter_queue=SIDE, max_deliveries=99)
        self.begin(begin)
        with suppress(NoSuchMessage, ClaimEnded):
            self.jobs.bury("held", claim=claim)

            def end(p: Promised) -> None:
                p.may.discard(HELD)
                p.side_must.add(HELD)

            self.end(end)

    def remove_if(self) -> None:
        claim = self._claim_of("held")
        self.begin(lambda p: _forget(p, {HELD}))
        if self.jobs.ack_each(["held"], [claim]) != ["ended"]:
            self.end(lambda p: p.may.discard(HELD))

    def remove_if_ended(self) -> None:
        """A removal in another claim has no effect."""
        assert self.jobs.ack_each(["held"], ["c9-99"]) != ["removed"]

    def _claim_of(self, message_id: str) -> str:
        found = self.jobs.find(message_id)
        if found is None or not found.deliveries or found.deadline is None:
            return "c9-99"
        stamps = self.spool.context.stamps
        return claim_name(stamps, found.deliveries, round(found.deadline * 1000))

    def remove_held(self) -> None:
        self._remove(HELD)

    def remove_ready(self) -> None:
        self._remove(READY)

    def remove_new(self) -> None:
        self._remove(NEW)

    def _remove(self, body: bytes) -> None:
        self.begin(lambda p: _forget(p, {body}))
        self.jobs.remove(_IDS[body])
        self.end(lambda p: p.may.discard(body))

    def purge(self) -> None:
        self.begin(lambda p: _forget(p, set(p.may)))
        self.jobs.purge()
        self.end(lambda p: p.may.clear())

    def purge_at_once(self) -> None:
        with _at_once():
            self.purge()

    def delete_queue_at_once(self) -> None:
        with _at_once():
            self.delete_queue()

    def dedup_purge_at_once(self) -> None:
        with _at_once():
            self.dedup_purge()

    def delete_queue(self) -> None:
        def begin(p: Promised) -> None:
            _forget(p, set(p.may))
            _undecide(p, "news/jobs", "quiet/jobs")
            p.queue = None
            p.depths = {None, *p.depths}

        def end(p: Promised) -> None:
            p.may.clear()
            p.topics.update({"news/jobs": False, "quiet/jobs": False})
            p.queue = False
            p.depths = {None}

        self.begin(begin)
        with suppress(NoSuchQueue):  # this error is an answer as well
            self.spool.delete_queue(JOBS)
        self.end(end)

    def create_queue(self) -> None:
        self.begin(lambda p: setattr(p, "fresh", None))
        self.spool.create_queue("fresh")
        self.end(lambda p: setattr(p, "fresh", True))

    def configure(self) -> None:
        self.begin(lambda p: p.depths.add(77))
        self.jobs.configure(max_depth=77)
        self.end(lambda p: setattr(p, "depths", {77}))

    def configure_if_seen(self) -> None:
        """A conditional change, like that of a client with If-Match."""

        def one_more(seen: QueueSettings, _: object) -> dict[str, int]:
            depth = (seen.max_depth or 0) + 1
            self.begin(lambda p: p.depths.add(depth))
            return {"max_depth": depth}

        with suppress(NoSuchQueue):
            depth = creation.change(self.spool.context, JOBS, one_more).max_depth
            self.end(lambda p: setattr(p, "depths", {depth}))

    def create_topic(self) -> None:
        self.begin(lambda p: _undecide(p, "fresh"))
        self.spool.create_topic("fresh")
        self.end(lambda p: p.topics.update({"fresh": True}))

    def describe_topic(self) -> None:
        self.begin(lambda p: _undecide(p, "quiet/_about.json"))
        subscribing.describe_topic(self.spool.context, "quiet", lambda _: ABOUT)
        self.end(lambda p: p.topics.update({"quiet/_about.json": True}))

    def delete_topic(self) -> None:
        news = ("news", "news/jobs", "news/side")
        self.begin(lambda p: _undecide(p, *news))
        self.spool.delete_topic("news")
        self.end(lambda p: p.topics.update(dict.fromkeys(news, False)))

    def subscribe_kept(self) -> None:
        self.begin(lambda p: _undecide(p, "quiet/jobs"))
        self.spool.subscribe("quiet", JOBS, FILTER, keep=True)
        self.end(lambda p: p.topics.update({"quiet/jobs": True}))

    def subscribe(self) -> None:
        self.begin(lambda p: _undecide(p, "quiet/jobs"))
        self.spool.subscribe("quiet", JOBS, FILTER)
        self.end(lambda p: p.topics.update({"quiet/jobs": True}))

    def unsubscribe(self) -> None:
        self._unsubscribe(SIDE)

    def unsubscribe_jobs(self) -> None:
        self._unsubscribe(JOBS)

    def _unsubscribe(self, queue: str) -> None:
        self.begin(lambda p: _undecide(p, f"news/{queue}"))
        self.spool.unsubscribe("news", queue)
        self.end(lambda p: p.topics.update({f"news/{queue}": False}))

    def publish(self) -> None:
        self._posted += 1
        body = b"published, number %d" % self._posted

        def begin(p: Promised) -> None:
            p.may.add(body)
            p.side_may.add(body)

        self.begin(begin)
        copies = self.spool.complete(prepare.publish(self.spool.context, "news", NewMessage(body)))

        def end(p: Promised) -> None:
            if JOBS in copies:
                p.must.add(body)
            if SIDE in copies:
                p.side_must.add(body)

        self.end(end)

    def take_batch(self) -> frozenset[bytes]:
        """Claim a batch, which a consumer gets only when it is stored; the batch."""

        def begin(p: Promised) -> None:
            p.free.clear()
            p.is_taking = True
            p.batch = p.batch if p.given is not False else frozenset()

        self.begin(begin)
        with Consumer(self.spool, CONSUMER, visibility=HOLD_S) as consumer:
            consumer.claim(STREAM, 0, [JOBS], 9)
            claims = [claim for b in consumer.batches(STREAM, 0) for claim in b.claims[JOBS]]
            is_whole = len(consumer.batches(STREAM, 0)) < 2
        bodies = frozenset(FIRST[claim.id] for claim in claims if claim.id in FIRST)
        deadline = self.clock() + HOLD_S

        def taken(p: Promised) -> None:
            p.held.update(dict.fromkeys(bodies, deadline))
            p.batch, p.given, p.is_whole = bodies, bool(bodies), is_whole
            p.is_taking = False

        self.end(taken)
        return bodies

    def fail_to_store(self) -> None:
        """The claims of a batch are released if the batch cannot be stored."""
        self.begin(lambda p: p.free.clear())
        refuses = mock.patch.object(open_batches, "save", side_effect=OSError(ENOSPC, "full"))
        with (
            Consumer(self.spool, CONSUMER, visibility=HOLD_S) as consumer,
            refuses,
            suppress(Unavailable),
        ):
            consumer.claim(STREAM, 0, [JOBS], 9)
        free = {m.body for m in self.jobs.peek(9) if m.body in FIRST.values()}
        self.end(lambda p: p.free.update(free))

    def divide_batch(self) -> None:
        """Divide a failed batch of two."""
        self.deliver()
        bodies = self.take_batch()
        self._divide(bodies)

    def retry_batch(self) -> None:
        """A single failed message is redelivered."""
        self._divide(self.take_batch())

    def _divide(self, bodies: frozenset[bytes]) -> None:
        def begin(p: Promised) -> None:
            p.given, p.is_whole = None, False

        self.begin(begin)
        with self._dividing() as consumer:
            divided = [
                part for batch in consumer.batches(STREAM, 0) for part in consumer.divide(batch, 2)
            ]
            alone = {
                FIRST[claim.id]: claim.deliveries
                for part in divided
                for claim in part.claims[JOBS]
                if len(divided) == 1 and claim.id in FIRST
            }
        deadline = self.clock() + 2 * HOLD_S

        def done(p: Promised) -> None:
            p.given = bool(bodies)
            # A burial begins with the end of the claim and a reset of the count.
            kept = alone.keys() - p.dying
            p.held.update(dict.fromkeys(kept, deadline))
            p.least.update({body: alone[body] for body in kept})

        self.end(done)

    def bury_batch(self) -> None:
        """A single message without deliveries left is buried."""
        self.jobs.configure(max_deliveries=9, dead_letter_queue=SIDE)
        bodies = self.take_batch()
        self.begin(partial(_doom, bodies))
        with mock.patch.object(retry_module, "dead_letters_for", return_value=SIDE):
            self._divide(bodies)
        buried = bodies & {message.body for message in self.spool.queue(SIDE).peek(9)}
        self.end(partial(_bury, buried))

    def _dividing(self) -> Consumer:
        """The consumer of a program that divides failed batches."""
        return Consumer(self.spool, CONSUMER, visibility=2 * HOLD_S, counts_again=False)

    def commit_batch(self) -> None:
        bodies = self.take_batch()

        def begin(p: Promised) -> None:
            _forget(p, set(bodies))
            p.given = None

        def end(p: Promised) -> None:
            p.may -= bodies
            p.given = False

        self.begin(begin)
        with Consumer(self.spool, CONSUMER, visibility=HOLD_S) as consumer:
            consumer.begin(STREAM, 0)
            self.end(_begin_stream)
            consumer.commit(STREAM, 9)
        self.end(end)

    def stage(self) -> None:
        """Write and commit a job of one message."""
        self._stage(b"staged, number %d" % (self._posted + 1))

    def _stage(self, body: bytes) -> str:
        self._posted += 1
        number = self._posted

        def begin(p: Promised) -> None:
            p.may.add(body)
            p.jobs[number] = body

        self.begin(begin)
        message_id = run_job(self.spool, number, body)

        def end(p: Promised) -> None:
            p.must.add(body)
            p.done.add(number)

        self.end(end)
        return message_id

    def stage_and_remove(self) -> None:
        """Remove the message of a job at once."""
        body = b"staged and removed, number %d" % (self._posted + 1)
        message_id = self._stage(body)

        self.begin(lambda p: _forget(p, {body}))
        if self.jobs.remove(message_id):
            self.end(lambda p: p.may.discard(body))

    def dedup_send(self) -> None:
        self._posted += 1
        self._dedup_send(b"sent to the dedup queue, number %d" % self._posted)

    def dedup_send_again(self) -> None:
        """Send a message that is equal to a waiting one."""
        self._dedup_send(WAITS)

    def _dedup_send(self, body: bytes) -> None:
        self.begin(lambda p: p.dups_may.update([body]))
        self.spool.complete(prepare.dedup_send(self.spool.context, DUPS, [body]))
        self.end(lambda p: p.dups_must.add(body))

    def dedup_poll(self) -> None:
        """Claim all messages."""
        messages = self.spool.complete(dedup.poll(self.spool.context, DUPS, 2, HOLD_S))
        deadline = self.clock() + HOLD_S

        def claimed(p: Promised) -> None:
            # One of two equal messages may be free.
            p.dups_held.update({m.body: deadline for m in messages if p.dups_may[m.body] == 1})

        self.end(claimed)

    def dedup_peek(self) -> None:
        self.spool.complete(dedup.peek(self.spool.context, DUPS, 9))

    def dedup_ack(self) -> None:
        self._dedup_ack(CLAIMED)

    def dedup_ack_shown(self) -> None:
        self._dedup_ack(SHOWN)

    def _dedup_ack(self, body: bytes) -> None:
        def begin(p: Promised) -> None:
            p.dups_must.discard(body)
            p.dups_held.pop(body, None)

        found = dedup.peek(self.spool.context, DUPS, 9).commit()
        self.begin(begin)
        ids = [message.id for message in found if message.body == body]
        Queue(self.spool, dedup.read_side(DUPS)).remove(*ids)
        self.end(lambda p: p.dups_may.subtract([body] * len(ids)))

    def dedup_purge(self) -> None:
        def begin(p: Promised) -> None:
            p.dups_must.clear()
            p.dups_held.clear()

        self.begin(begin)
        for side in (dedup.write_side(DUPS), dedup.read_side(DUPS)):
            Queue(self.spool, side).purge()
        self.end(lambda p: p.dups_may.clear())

    def order_move(self) -> None:
        self.begin(lambda p: setattr(p, "moved", None))
        self.spool.begin_move(HERE, THERE)
        self.end(lambda p: setattr(p, "moved", True))

    def make_moves(self) -> None:
        self.spool.make_moves()

    def move(self) -> None:
        self.order_move()
        self.make_moves()

    def reap(self) -> None:
        self.spool.reap()


VERBS = (
    "put",
    "put_promoted",
    "put_batch",
    "put_delayed",
    "put_own",
    "retry_left",
    "retry_promoted",
    "retry_changed",
    "retry_changed_promoted",
    "put_own_batch",
    "deliver",
    "claim",
    "claim_several",
    "renew",
    "renew_ready",
    "release",
    "back_off",
    "renew_if",
    "release_if",
    "back_off_if",
    "bury_if",
    "release_retried",
    "retry_lapsed",
    "remove_if",
    "remove_if_ended",
    "remove_held",
    "remove_ready",
    "remove_new",
    "purge",
    "purge_at_once",
    "delete_queue",
    "delete_queue_at_once",
    "create_queue",
    "configure",
    "configure_if_seen",
    "create_topic",
    "describe_topic",
    "delete_topic",
    "subscribe",
    "subscribe_kept",
    "unsubscribe",
    "unsubscribe_jobs",
    "publish",
    "take_batch",
    "commit_batch",
    "fail_to_store",
    "divide_batch",
    "retry_batch",
    "bury_batch",
    "stage",
    "stage_and_remove",
    "reap",
)

WIDE = frozenset(
    (
        "dedup_send",
        "dedup_send_again",
        "dedup_poll",
        "dedup_peek",
        "dedup_ack",
        "dedup_ack_shown",
        "dedup_purge",
        "dedup_purge_at_once",
        "order_move",
        "move",
    )
)  # verbs that need a dedup queue or queues for moves
VERBS = (*VERBS, *sorted(WIDE), *ID_VERBS, *DEAD_VERBS)


def _at_once() -> AbstractContextManager[object]:
    """Make purges rename the folder, as they do for many messages."""
    return mock.patch.object(deletion, "_FEW", 0)


def run_job(spool: Spool, number: int, body: bytes) -> str:
    """Put a message by a staged job; its id, or "" if the job was done before."""
    job = Job("scenario", number)
    if is_committed(spool, job):
        commit(spool, job, [])
        return ""
    part = Part(spool.context, spool.syncer.sync, job)
    message_id = part.write(JOBS, NewMessage(body))
    commit(spool, job, [part.finish()])
    return message_id


def _forget(promised: Promised, bodies: set[bytes]) -> None:
    """Drop the promises of messages whose removal has begun."""
    promised.must -= bodies
    promised.free -= bodies
    promised.dying -= bodies
    for body in bodies:
        promised.held.pop(body, None)
    promised.doomed |= bodies


def _begin_stream(p: Promised) -> None:
    p.is_begun = True


def _doom(bodies: Set[bytes], promised: Promised) -> None:
    """Record that the burial of messages has begun: they are in jobs or in "side".

    It begins by setting the count back, so that none is promised any more.
    """
    doomed = bodies & promised.must
    promised.must -= bodies
    promised.dying |= doomed
    promised.side_may |= bodies
    promised.doomed |= bodies
    for body in bodies:
        promised.held.pop(body, None)
        promised.least.pop(body, None)


def _bury(bodies: Set[bytes], promised: Promised) -> None:
    promised.side_must |= bodies
    promised.may -= bodies
    promised.dying -= bodies


def _undecide(promised: Promised, *names: str) -> None:
    promised.topics.update(dict.fromkeys(names))
