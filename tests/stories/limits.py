"""A limit of claims and a backoff hold whatever an interrupted claim has left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from fsmq.spool import Spool
from tests.stories import fifo, plain
from tests.stories.plays import LONG_S
from tests.stories.story import UNKNOWN, Actor, Story, Verb

JOBS = plain.JOBS
MOST = 1
# Longer than a play, so that no claim ends during it.
HOLD_S = 3 * LONG_S
_WAIT_S = 5 * HOLD_S


class State(NamedTuple):
    """All messages, the claimed ones, and those that wait for their backoff."""

    there: frozenset[str]
    held: frozenset[str] = frozenset()
    waits: frozenset[str] = frozenset()

    def without(self, body: str) -> State:
        return State(*(some - {body} for some in self))


def put(spool: Spool, body: str) -> None:
    spool.queue(JOBS).put(body)


def after_put(state: State, answer: Any, body: str) -> Iterator[State]:
    if answer is UNKNOWN:
        yield state
    yield state._replace(there=state.there | {body})


def take(spool: Spool) -> tuple[str, str, str] | None:
    found = spool.queue(JOBS).claim(2, visibility=HOLD_S)
    assert len(found) <= MOST
    return (found[0].body.decode(), found[0].id, found[0].claim or "") if found else None


def after_take(state: State, answer: Any) -> Iterator[State]:
    if answer is UNKNOWN or answer is None:
        yield state
    if answer is not None and len(state.held) < MOST:
        for body in state.there - state.held - state.waits:
            if answer is UNKNOWN or answer[0] == body:
                yield state._replace(held=state.held | {body})


def acknowledge(spool: Spool, body: str, message_id: str, claim: str) -> bool:
    return plain.acknowledge(spool, JOBS, body, message_id, claim)


def after_acknowledge(state: State, answer: Any, body: str, *of: str) -> Iterator[State]:
    if answer is UNKNOWN:
        yield state
    if answer is not False and body in state.held:
        yield state.without(body)


def release(spool: Spool, body: str, message_id: str, claim: str) -> bool:
    return plain.release(spool, message_id, claim)


def after_release(state: State, answer: Any, body: str, *of: str) -> Iterator[State]:
    if answer is UNKNOWN:
        yield state
    if answer is not False and body in state.held:
        yield state._replace(held=state.held - {body}, waits=state.waits | {body})


def renew(spool: Spool, message_id: str, claim: str) -> bool:
    return plain.renew(spool, message_id, claim, HOLD_S)


def drain(spool: Spool) -> tuple[str, ...]:
    return tuple(sorted(fifo.drain(spool, JOBS)))


def after_drain(state: State, answer: Any) -> Iterator[State]:
    """All claims and backoffs have ended by then."""
    if answer is UNKNOWN or answer == tuple(sorted(state.there)):
        yield state


def _consume(program: Actor) -> None:
    if (found := program.ask("take")) is not None:
        program.ask("renew", *found[1:])
        program.ask("acknowledge", *found)


def _release(program: Actor) -> None:
    if (found := program.ask("take")) is not None:
        program.ask("release", *found)


def set_up(spool: Spool) -> None:
    jobs = spool.queue(JOBS, create=True)
    jobs.configure(max_in_flight=MOST, retry_backoff=_WAIT_S, retry_most=_WAIT_S, retry_jitter=0.0)
    jobs.put_many(["first", "second"])
    plain.show(spool)


LIMITS = Story(
    name="limits and backoff",
    first=State(frozenset({"first", "second"})),
    verbs={
        "put": Verb(put, after_put),
        "take": Verb(take, after_take),
        "acknowledge": Verb(acknowledge, after_acknowledge),
        "release": Verb(release, after_release),
        "renew": Verb(renew, lambda state, answer, *of: [state] if answer else []),
        "drain": Verb(drain, after_drain),
    },
    actions={
        "put": lambda p: p.ask("put", p.new()),
        "take": lambda p: p.ask("take"),
        "consume": _consume,
        "release": _release,
    },
    acts=("take", "consume", "release"),
    behind=("put", "take"),
    others=("put", "consume", "release"),
    passes_s=(2 * HOLD_S, 2 * _WAIT_S, HOLD_S),  # a claim may last a little longer than requested
    set_up=set_up,
    inspect=lambda program: program.ask("drain"),
)
