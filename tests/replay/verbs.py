"""Verbs on a spool, each with what it promises from its beginning and from its answer on."""

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
from tests.replay.dead import DEAD_VERBS, DeadPromise, DoesDead
from tests.replay.given import ID_VERBS, DoesIds, GivenPromise
from tests.replay.recorder import Recorder
from tests.spool.helpers import Clock

HOLD_S = 600.0
# The scenarios' clock runs ahead of the kernel's, so that no file looks freshly made: by more than
# the longest soak takes, since it stands still.
AHEAD_S = 20_000.0
JOBS, SIDE = "jobs", "side"
DEPTH = 70  # the setting max_depth that the queue jobs has at first
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
# What stands there before a scenario begins: ready, in flight, new, and hidden by its own delay.
READY, HELD, NEW, LATER = b"ready at first", b"held at first", b"new at first", b"later at first"
FIRST = {"ready": READY, "held": HELD, "new": NEW, "later": LATER}
# A dedup queue, in which one message waits, one was shown, and one is claimed.
DUPS = "dups"
WAITS, SHOWN, CLAIMED = b"waits at first", b"shown at first", b"claimed at first"
# A queue to be moved to another: with a message that is ready, one that is held, and a new one.
HERE, THERE = "here", "there"
MOVING = {name: name.encode() + b" to be moved" for name in ("ready", "held", "new")}
_IDS = {body: name for name, body in FIRST.items()}


@dataclass
class Promised:
    """What must hold if everything ended now."""

    must: set[bytes] = field(default_factory=set)  # bodies that come out
    may: set[bytes] = field(default_factory=set)  # bodies that may come out
    held: dict[bytes, float] = field(default_factory=dict)  # not before so many Unix seconds
    free: set[bytes] = field(default_factory=set)  # not hidden
    queue: bool | None = True  # whether jobs exists; None: it may
    fresh: bool | None = False  # the same of the queue "fresh"
    # The setting max_depth; of a queue that is gone: None.
    depths: set[int | None] = field(default_factory=lambda: {DEPTH})
    # What must, and what may, come out of the queue "side".
    side_must: set[bytes] = field(default_factory=set)
    side_may: set[bytes] = field(default_factory=set)
    # The bodies of the consumer's batch, and whether it is given again; None: all of it or nothing.
    batch: frozenset[bytes] = frozenset()
    given: bool | None = False
    # Whether the batch is one file, so that its commit is one rename; whether it may be more.
    is_whole: bool = True
    is_taking: bool = False
    is_begun: bool = False  # its stream is noted
    # How often bodies have been claimed at least.
    least: dict[bytes, int] = field(default_factory=dict)
    # Bodies of which a burial has begun: they come out of jobs or of "side".
    dying: set[bytes] = field(default_factory=set)
    # What must come out of the dedup queue, how many copies may, and what not before when.
    dups_must: set[bytes] = field(default_factory=lambda: {WAITS, SHOWN, CLAIMED})
    dups_may: Counter[bytes] = field(default_factory=lambda: Counter((WAITS, SHOWN, CLAIMED)))
    dups_held: dict[bytes, float] = field(default_factory=dict)
    moved: bool | None = False  # whether all of "here" is in "there"; None: a part may be
    # Whether a topic, or a subscription (topic/queue), exists; None: it may.
    topics: dict[str, bool | None] = field(default_factory=lambda: dict(TOPICS))
    # The body that each job put, or is about to; those jobs of which the user knows; and the bodies
    # of which a removal has begun.
    jobs: dict[int, bytes] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    doomed: set[bytes] = field(default_factory=set)
    by_id: GivenPromise = field(default_factory=GivenPromise)
    dead: DeadPromise = field(default_factory=DeadPromise)


Effect = Callable[[Promised], None]


class Doer(DoesIds, DoesDead):
    """Does verbs on a spool, and marks before and after each what it changes.

    posted: the number of the message before its first.
    """

    def __init__(self, spool: Spool, recorder: Recorder, clock: Clock, posted: int = 0) -> None:
        self.spool = spool
        self.clock = clock
        self.is_told = True
        self._recorder = recorder
        self._posted = posted

    @property
    def jobs(self) -> Queue:
        return Queue(self.spool, JOBS)

    def begin(self, effect: Effect) -> None:
        """Mark what may be from here on."""
        self._recorder.mark(effect)

    def end(self, effect: Effect) -> None:
        """Mark what must be from here on, since the user was told so."""
        if self.is_told:
            self._recorder.mark(effect)

    # Each verb: what may be from its beginning on, the verb, what must be from its answer on.

    def put(self, **more: object) -> None:
        self._posted += 1
        body = b"put in the scenario, number %d" % self._posted
        self.begin(lambda p: p.may.add(body))
        self.jobs.put(body, **more)  # type: ignore[arg-type]

        def stored(p: Promised) -> None:
            p.must.add(body)

        self.end(stored)

    def put_promoted(self) -> None:
        """A mover that starts in the middle of a put promotes it before it is synced."""
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
        """Put again, with its own id, what a writer has left that died before it synced."""
        self._retry(lambda: None)

    def retry_promoted(self) -> None:
        """The same after a mover has found it."""
        self._retry(lambda: recover(self.spool.tree, self.clock(), at_start=True))

    def retry_changed(self) -> None:
        """The same with another attribute; what the writer had reserved is left as well."""
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
        """Two own ids are behind one lock."""
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
        """A late renewal claims again what went back to its queue."""
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
        """In a queue with ``retry_backoff`` a release without a delay waits."""
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
                else:  # it has waited already
                    p.free.add(HELD)

            self.end(end)

    def retry_lapsed(self) -> None:
        """There the mover lets a message wait whose claim has ended; its count is kept."""
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
        """To the queue "side"; what is buried is no more in "jobs"."""
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
        """A claim of another name removes nothing."""
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
        with suppress(NoSuchQueue):  # that it was gone is an answer, too
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
        """A change that depends on what was seen, as that of a client with If-Match."""

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
        """A consumer learns of a batch only when that is stored; what it has by then."""

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
        """What a batch has claimed is released if the batch cannot be stored."""
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
        """A batch of two that was not done comes back in two parts."""
        self.deliver()
        bodies = self.take_batch()
        self._divide(bodies)

    def retry_batch(self) -> None:
        """What was not done, and is alone, is delivered once more."""
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
            # A burial begins by ending the claim, and setting the count back.
            kept = alone.keys() - p.dying
            p.held.update(dict.fromkeys(kept, deadline))
            p.least.update({body: alone[body] for body in kept})

        self.end(done)

    def bury_batch(self) -> None:
        """What is alone, and whose deliveries are used up, is buried."""
        self.jobs.configure(max_deliveries=9, dead_letter_queue=SIDE)
        bodies = self.take_batch()
        self.begin(partial(_doom, bodies))
        with mock.patch.object(retry_module, "is_used_up", return_value=True):
            self._divide(bodies)
        buried = bodies & {message.body for message in self.spool.queue(SIDE).peek(9)}
        self.end(partial(_bury, buried))

    def _dividing(self) -> Consumer:
        """The consumer, as a program has it that divides what fails."""
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
        """A job of one message is written and committed."""
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
        """What came by a job is removed at once, and stays so."""
        body = b"staged and removed, number %d" % (self._posted + 1)
        message_id = self._stage(body)

        self.begin(lambda p: _forget(p, {body}))
        if self.jobs.remove(message_id):
            self.end(lambda p: p.may.discard(body))

    def dedup_send(self) -> None:
        self._posted += 1
        self._dedup_send(b"sent to the dedup queue, number %d" % self._posted)

    def dedup_send_again(self) -> None:
        """Send what is equal to one that waits."""
        self._dedup_send(WAITS)

    def _dedup_send(self, body: bytes) -> None:
        self.begin(lambda p: p.dups_may.update([body]))
        self.spool.complete(prepare.dedup_send(self.spool.context, DUPS, [body]))
        self.end(lambda p: p.dups_must.add(body))

    def dedup_poll(self) -> None:
        """Claim all that was shown already, and what waits."""
        messages = self.spool.complete(dedup.poll(self.spool.context, DUPS, 2, HOLD_S))
        deadline = self.clock() + HOLD_S

        def claimed(p: Promised) -> None:
            # Of two that are equal one may be free.
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
)  # verbs that need a dedup queue, or queues to be moved
VERBS = (*VERBS, *sorted(WIDE), *ID_VERBS, *DEAD_VERBS)


def _at_once() -> AbstractContextManager[object]:
    """Let ready messages go at once, as many do: by one rename of their folder."""
    return mock.patch.object(deletion, "_FEW", 0)


def run_job(spool: Spool, number: int, body: bytes) -> str:
    """Put one message by a staged job; its id, or "" if the job was done before."""
    job = Job("scenario", number)
    if is_committed(spool, job):
        commit(spool, job, [])
        return ""
    part = Part(spool.context, spool.syncer.sync, job)
    message_id = part.write(JOBS, NewMessage(body))
    commit(spool, job, [part.finish()])
    return message_id


def _forget(promised: Promised, bodies: set[bytes]) -> None:
    """A removal has begun: nothing is promised of these any more."""
    promised.must -= bodies
    promised.free -= bodies
    promised.dying -= bodies
    for body in bodies:
        promised.held.pop(body, None)
    promised.doomed |= bodies


def _begin_stream(p: Promised) -> None:
    p.is_begun = True


def _doom(bodies: Set[bytes], promised: Promised) -> None:
    """A burial has begun: these come out of jobs, or of the queue of the dead letters.

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
