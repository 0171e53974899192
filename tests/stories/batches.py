"""Batches of consumers beside workers of the same queue, and staged jobs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import combinations
from typing import Any, TypeVar

from fsmq.spool import NewMessage, Spool
from fsmq.spool.consumers.consumer import Consumer
from fsmq.spool.consumers.manifest import Batch
from fsmq.spool.errors import Unavailable
from fsmq.spool.staging.commit import commit as commit_job
from fsmq.spool.staging.part import Job, Part
from tests.stories import plain
from tests.stories.plain import DEAD, HOLD_S, JOBS, MORE, State
from tests.stories.story import UNKNOWN, Actor, Story, Verb

T = TypeVar("T")
CONSUMER, STREAM, DONE = "spark", "s", "done"  # DONE marks jobs in place of a queue


class Reading:
    """A program that works as a consumer and retries a refused call once."""

    def __init__(self, spool: Spool, name: str = CONSUMER) -> None:
        self.consumer = Consumer(spool, name, visibility=HOLD_S)

    def batch(self) -> Batch | None:
        with suppress(Unavailable):
            return self._batch()
        return self._batch()

    def _batch(self) -> Batch | None:
        for batch in self.consumer.batches(STREAM, 0):
            return self.consumer.renew_batch(batch)
        return self.consumer.claim(STREAM, 0, [JOBS], 1)

    def commit(self, upto: int) -> int:
        with suppress(Unavailable):
            return self.consumer.commit(STREAM, upto)
        return self.consumer.commit(STREAM, upto)


def bodies_of(spool: Spool, batch: Batch) -> tuple[str, ...]:
    """The bodies of a batch that still exist."""
    found = [spool.queue(JOBS).find(claim.id) for claim in batch.claims.get(JOBS, [])]
    return tuple(message.body.decode() for message in found if message is not None)


Done = tuple[tuple[str, ...], int]
_living: dict[int, Reading] = {}  # by spool, in a program


def do_batch(spool: Spool) -> Done:
    """Take a batch and commit it; its bodies, and how many were removed."""
    reading = Reading(spool)
    with reading.consumer:
        return _do(spool, reading)


def live_on(spool: Spool, name: str) -> Done:
    """The same as a consumer that the program keeps."""
    if id(spool) not in _living:
        _living[id(spool)] = Reading(spool, name)
    return _do(spool, _living[id(spool)])


def _do(spool: Spool, reading: Reading) -> Done:
    batch = reading.batch()
    if batch is None:
        return (), 0
    found = bodies_of(spool, batch)
    return found, reading.commit(batch.number)


def after_do(state: State, answer: Any, *name: str) -> Iterator[State]:
    """The messages of a committed batch are removed: by it, or by others after its claim."""
    if answer is UNKNOWN:
        yield state
        for queue, body in state:
            if queue == JOBS:
                yield state - {(JOBS, body)}
    elif len(there := state & {(JOBS, body) for body in answer[0]}) >= answer[1]:
        yield state - there  # the first try may have removed some


def take_batch(spool: Spool) -> tuple[str, ...]:
    """Take a batch and end before the commit."""
    reading = Reading(spool)
    with reading.consumer:
        batch = reading.batch()
        return () if batch is None else bodies_of(spool, batch)


def after_take(state: State, answer: Any) -> Iterator[State]:
    """The messages of the batch exist."""
    if answer is UNKNOWN or all((JOBS, body) in state for body in answer):
        yield state


def run_job(spool: Spool, number: int) -> bool:
    """Put two messages by a job; whether they were put now."""
    job = Job("load", number)
    part = Part(spool.context, spool.syncer.sync, job)
    try:
        for body in _bodies(number):
            part.write(JOBS, NewMessage(body.encode()))
        written = part.finish()
    except BaseException:
        part.abandon()
        raise
    return not commit_job(spool, job, [written]).again


def after_run(state: State, answer: Any, number: int) -> Iterator[State]:
    is_done = (DONE, str(number)) in state
    if answer is not True and (answer is UNKNOWN or is_done):
        yield state
    if answer is not False and not is_done:
        come = {(JOBS, body) for body in _bodies(number)}
        yield state | come | {(DONE, str(number))}


def _bodies(number: int) -> tuple[str, ...]:
    return f"row{number}a", f"row{number}b"


def after_drain(state: State, answer: Any) -> Iterator[State]:
    messages = frozenset(one for one in state if one[0] in (JOBS, MORE, DEAD))
    for _ in plain.after_drain(messages, answer):
        yield state


def redrive(spool: Spool) -> int:
    return spool.queue(DEAD).redrive().moved


def after_redrive(state: State, answer: Any) -> Iterator[State]:
    dead = [body for queue, body in state if queue == DEAD]
    for number in range(len(dead) + 1):
        for some in combinations(dead, number):
            if answer is UNKNOWN or number <= answer:
                yield state - {(DEAD, b) for b in some} | {(JOBS, b) for b in some}


def _consume(program: Actor) -> None:
    if (found := program.ask("take", JOBS)) is not None:
        program.ask("acknowledge", JOBS, found[2], *found[:2])


def _bury_and_redrive(program: Actor) -> None:
    """Bury and redrive a message, which resets its count."""
    if (found := program.ask("take", JOBS)) is not None:
        program.ask("bury", found[2], *found[:2])
    program.ask("redrive")


def set_up(spool: Spool) -> None:
    jobs = spool.queue(JOBS, create=True)
    spool.create_queue(MORE)
    jobs.configure(max_deliveries=50, dead_letter_queue=DEAD)
    spool.create_queue(DEAD)
    jobs.put_many(["first", "second"])
    plain.show(spool)


BATCHES = Story(
    name="consumers and jobs",
    first=frozenset({(JOBS, "first"), (JOBS, "second")}),
    verbs={
        "do batch": Verb(do_batch, after_do),
        "live on": Verb(live_on, after_do),
        "take batch": Verb(take_batch, after_take),
        "run job": Verb(run_job, after_run),
        "take": Verb(plain.take, plain.after_take),
        "acknowledge": Verb(plain.acknowledge, plain.after_acknowledge),
        "bury": Verb(plain.bury, plain.after_bury),
        "redrive": Verb(redrive, after_redrive),
        "drain": Verb(plain.drain, after_drain),
    },
    actions={
        "do batch": lambda p: p.ask("do batch"),
        "live on": lambda p: p.ask("live on", f"of-{p.name}"),
        "take batch": lambda p: p.ask("take batch"),
        "take and do": lambda p: (p.ask("take batch"), p.ask("do batch")),
        "run job": lambda p: p.ask("run job", 1),
        "consume": _consume,
        "bury and redrive": _bury_and_redrive,
    },
    acts=("do batch", "live on", "take batch", "take and do", "run job"),
    others=("live on", "consume", "bury and redrive", "run job"),
    behind=("consume",),
    returns=("run job", "consume", "a library starts", "run job"),
    set_up=set_up,
    inspect=lambda program: program.ask("drain"),
)
