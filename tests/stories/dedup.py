"""Dedup queues: equal waiting messages are one, and none is lost with a polled one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from fsmq.spool import Spool, prepare
from fsmq.spool.verbs import dedup
from tests.stories import plain
from tests.stories.plain import HOLD_S
from tests.stories.story import UNKNOWN, Actor, Story, Verb

NAME = "refresh"
READ, WRITE = dedup.read_side(NAME), dedup.write_side(NAME)
_ALL = 100


class State(NamedTuple):
    """Messages on the write side and on the read side, where equal ones may be."""

    waits: frozenset[str]
    shown: tuple[str, ...] = ()

    def pulled(self, most: int) -> Iterator[State]:
        """The states after a poll or peek of at most some waiting messages."""
        for some in plain.some_of(self.waits):
            if len(some) <= most:
                yield State(self.waits - set(some), tuple(sorted((*self.shown, *some))))


def send(spool: Spool, *bodies: str) -> None:
    spool.complete(prepare.dedup_send(spool.context, NAME, [body.encode() for body in bodies]))


def after_send(state: State, answer: Any, body: str) -> Iterator[State]:
    if answer is UNKNOWN:
        yield state
    yield state._replace(waits=state.waits | {body})


def take(spool: Spool) -> tuple[str, str, str] | None:
    spool.deliver()
    found = spool.complete(dedup.poll(spool.context, NAME, 1, HOLD_S))
    return (found[0].body.decode(), found[0].id, found[0].claim or "") if found else None


def after_take(state: State, answer: Any) -> Iterator[State]:
    for after in state.pulled(1):
        if answer is UNKNOWN or answer is None or answer[0] in after.shown:
            yield after


def acknowledge(spool: Spool, body: str, message_id: str, claim: str) -> bool:
    return plain.acknowledge(spool, READ, body, message_id, claim)


def after_acknowledge(state: State, answer: Any, body: str, *of: str) -> Iterator[State]:
    if answer is not True:
        yield state
    if answer is not False and body in state.shown:
        left = list(state.shown)
        left.remove(body)
        yield state._replace(shown=tuple(left))


def peek(spool: Spool) -> tuple[str, ...]:
    found = spool.complete(dedup.peek(spool.context, NAME, _ALL))
    return tuple(message.body.decode() for message in found)


def after_peek(state: State, answer: Any) -> Iterator[State]:
    """A peek may see a part of concurrent changes."""
    yield from state.pulled(_ALL)


def purge(spool: Spool) -> None:
    for side in (WRITE, READ):
        spool.queue(side).purge()


def after_purge(state: State, answer: Any) -> Iterator[State]:
    if answer is not UNKNOWN:
        yield State(frozenset())
        return
    for after in state.pulled(_ALL):
        for waits in plain.some_of(after.waits):
            for shown in set(plain.some_of(after.shown)):
                yield State(frozenset(waits), shown)


def drain(spool: Spool) -> tuple[str, ...]:
    found = []
    for _ in range(3):
        spool.deliver()
        for message in spool.complete(dedup.poll(spool.context, NAME, _ALL, HOLD_S)):
            found.append(message.body.decode())
    return tuple(sorted(found))


def after_drain(state: State, answer: Any) -> Iterator[State]:
    if answer is UNKNOWN or answer == tuple(sorted((*state.waits, *state.shown))):
        yield State(frozenset(), tuple(sorted((*state.waits, *state.shown))))


def _consume(program: Actor) -> None:
    if (found := program.ask("take")) is not None:
        program.ask("acknowledge", *found)


def set_up(spool: Spool) -> None:
    for side in (READ, WRITE):
        spool.create_queue(side)
    send(spool, "x")
    assert take(spool) is not None
    send(spool, "x", "equal")
    plain.show(spool)


DEDUP = Story(
    name="dedup queues",
    first=State(frozenset({"x", "equal"}), ("x",)),
    verbs={
        "send": Verb(send, after_send, apart=True),
        "take": Verb(take, after_take),
        "acknowledge": Verb(acknowledge, after_acknowledge),
        "peek": Verb(peek, after_peek),
        "purge": Verb(purge, after_purge),
        "drain": Verb(drain, after_drain),
    },
    actions={
        "send": lambda p: p.ask("send", "equal"),
        "send two": lambda p: p.ask("send", "equal", p.new()),
        "consume": _consume,
        "peek": lambda p: p.ask("peek"),
        "purge": lambda p: p.ask("purge"),
    },
    acts=("send", "send two", "consume", "peek", "purge"),
    behind=("send",),
    returns=("consume", "a library starts", "send"),
    others=("send", "send two", "consume", "peek", "purge"),
    clocks=("send", "send two", "consume", "peek", "purge"),
    set_up=set_up,
    inspect=lambda program: program.ask("drain"),
)
