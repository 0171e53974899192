"""A limit of claims, and a backoff: neither is broken by what a claim has left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from fsmq.spool import Spool
from tests.stories import fifo, plain
from tests.stories.plays import LONG_S
from tests.stories.story import UNKNOWN, Asking, Story, Verb

JOBS = plain.JOBS
MOST = 1
# Longer than a play: nobody may take for over what is not.
HOLD_S = 3 * LONG_S
_WAIT_S = 5 * HOLD_S


class Stands(NamedTuple):
    """The messages, those that somebody has claimed, and those that wait for their backoff."""

    there: frozenset[str]
    held: frozenset[str] = frozenset()
    waits: frozenset[str] = frozenset()

    def without(self, body: str) -> Stands:
        return Stands(*(some - {body} for some in self))


def put(spool: Spool, body: str) -> None:
    spool.queue(JOBS).put(body)


def means_put(stands: Stands, answer: Any, body: str) -> Iterator[Stands]:
    if answer is UNKNOWN:
        yield stands
    yield stands._replace(there=stands.there | {body})


def take(spool: Spool) -> tuple[str, str, str] | None:
    found = spool.queue(JOBS).claim(2, visibility=HOLD_S)
    assert len(found) <= MOST
    return (found[0].body.decode(), found[0].id, found[0].claim or "") if found else None


def means_take(stands: Stands, answer: Any) -> Iterator[Stands]:
    if answer is UNKNOWN or answer is None:
        yield stands
    if answer is not None and len(stands.held) < MOST:
        for body in stands.there - stands.held - stands.waits:
            if answer is UNKNOWN or answer[0] == body:
                yield stands._replace(held=stands.held | {body})


def acknowledge(spool: Spool, body: str, message_id: str, claim: str) -> bool:
    return plain.acknowledge(spool, JOBS, body, message_id, claim)


def means_acknowledge(stands: Stands, answer: Any, body: str, *of: str) -> Iterator[Stands]:
    if answer is UNKNOWN:
        yield stands
    if answer is not False and body in stands.held:
        yield stands.without(body)


def release(spool: Spool, body: str, message_id: str, claim: str) -> bool:
    return plain.release(spool, message_id, claim)


def means_release(stands: Stands, answer: Any, body: str, *of: str) -> Iterator[Stands]:
    if answer is UNKNOWN:
        yield stands
    if answer is not False and body in stands.held:
        yield stands._replace(held=stands.held - {body}, waits=stands.waits | {body})


def renew(spool: Spool, message_id: str, claim: str) -> bool:
    return plain.renew(spool, message_id, claim, HOLD_S)


def drain(spool: Spool) -> tuple[str, ...]:
    return tuple(sorted(fifo.drain(spool, JOBS)))


def means_drain(stands: Stands, answer: Any) -> Iterator[Stands]:
    """All claims and backoffs are over by then."""
    if answer is UNKNOWN or answer == tuple(sorted(stands.there)):
        yield stands


def _consume(program: Asking) -> None:
    if (found := program.ask("take")) is not None:
        program.ask("renew", *found[1:])
        program.ask("acknowledge", *found)


def _release(program: Asking) -> None:
    if (found := program.ask("take")) is not None:
        program.ask("release", *found)


def lay(spool: Spool) -> None:
    jobs = spool.queue(JOBS, create=True)
    jobs.configure(max_in_flight=MOST, retry_backoff=_WAIT_S, retry_most=_WAIT_S, retry_jitter=0.0)
    jobs.put_many(["first", "second"])
    plain.show(spool)


LIMITS = Story(
    name="limits and backoff",
    first=Stands(frozenset({"first", "second"})),
    verbs={
        "put": Verb(put, means_put),
        "take": Verb(take, means_take),
        "acknowledge": Verb(acknowledge, means_acknowledge),
        "release": Verb(release, means_release),
        "renew": Verb(renew, lambda stands, answer, *of: [stands] if answer else []),
        "drain": Verb(drain, means_drain),
    },
    deeds={
        "put": lambda p: p.ask("put", p.new()),
        "take": lambda p: p.ask("take"),
        "consume": _consume,
        "release": _release,
    },
    acts=("take", "consume", "release"),
    behind=("put", "take"),
    others=("put", "consume", "release"),
    passes_s=(2 * HOLD_S, 2 * _WAIT_S, HOLD_S),  # a claim may last a little longer than asked for
    lay=lay,
    look=lambda program: program.ask("drain"),
)
