"""Dedup queues: of equal messages that wait one stands, and none is lost with one that is shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from fsmq.spool import Spool, prepare
from fsmq.spool.verbs import dedup
from tests.stories import plain
from tests.stories.plain import HOLD_S
from tests.stories.story import UNKNOWN, Asking, Story, Verb

NAME = "refresh"
READ, WRITE = dedup.read_side(NAME), dedup.write_side(NAME)
_ALL = 100


class Stands(NamedTuple):
    """What waits, and what was shown; of that there may be equal ones, in order."""

    waits: frozenset[str]
    shown: tuple[str, ...] = ()

    def pulled(self, most: int) -> Iterator[Stands]:
        """When some of what waits is shown, at most so many."""
        for some in plain.some_of(self.waits):
            if len(some) <= most:
                yield Stands(self.waits - set(some), tuple(sorted((*self.shown, *some))))


def send(spool: Spool, *bodies: str) -> None:
    spool.complete(prepare.dedup_send(spool.context, NAME, [body.encode() for body in bodies]))


def means_send(stands: Stands, answer: Any, body: str) -> Iterator[Stands]:
    if answer is UNKNOWN:
        yield stands
    yield stands._replace(waits=stands.waits | {body})


def take(spool: Spool) -> tuple[str, str, str] | None:
    spool.deliver()
    found = spool.complete(dedup.poll(spool.context, NAME, 1, HOLD_S))
    return (found[0].body.decode(), found[0].id, found[0].claim or "") if found else None


def means_take(stands: Stands, answer: Any) -> Iterator[Stands]:
    for after in stands.pulled(1):
        if answer is UNKNOWN or answer is None or answer[0] in after.shown:
            yield after


def acknowledge(spool: Spool, body: str, message_id: str, claim: str) -> bool:
    return plain.acknowledge(spool, READ, body, message_id, claim)


def means_acknowledge(stands: Stands, answer: Any, body: str, *of: str) -> Iterator[Stands]:
    if answer is not True:
        yield stands
    if answer is not False and body in stands.shown:
        left = list(stands.shown)
        left.remove(body)
        yield stands._replace(shown=tuple(left))


def peek(spool: Spool) -> tuple[str, ...]:
    found = spool.complete(dedup.peek(spool.context, NAME, _ALL))
    return tuple(message.body.decode() for message in found)


def means_peek(stands: Stands, answer: Any) -> Iterator[Stands]:
    """Of what others do meanwhile it may see a part."""
    yield from stands.pulled(_ALL)


def purge(spool: Spool) -> None:
    for side in (WRITE, READ):
        spool.queue(side).purge()


def means_purge(stands: Stands, answer: Any) -> Iterator[Stands]:
    if answer is not UNKNOWN:
        yield Stands(frozenset())
        return
    for after in stands.pulled(_ALL):
        for waits in plain.some_of(after.waits):
            for shown in set(plain.some_of(after.shown)):
                yield Stands(frozenset(waits), shown)


def drain(spool: Spool) -> tuple[str, ...]:
    found = []
    for _ in range(3):
        spool.deliver()
        for message in spool.complete(dedup.poll(spool.context, NAME, _ALL, HOLD_S)):
            found.append(message.body.decode())
    return tuple(sorted(found))


def means_drain(stands: Stands, answer: Any) -> Iterator[Stands]:
    if answer is UNKNOWN or answer == tuple(sorted((*stands.waits, *stands.shown))):
        yield Stands(frozenset(), tuple(sorted((*stands.waits, *stands.shown))))


def _consume(program: Asking) -> None:
    if (found := program.ask("take")) is not None:
        program.ask("acknowledge", *found)


def lay(spool: Spool) -> None:
    for side in (READ, WRITE):
        spool.create_queue(side)
    send(spool, "x")
    assert take(spool) is not None
    send(spool, "x", "equal")
    plain.show(spool)


DEDUP = Story(
    name="dedup queues",
    first=Stands(frozenset({"x", "equal"}), ("x",)),
    verbs={
        "send": Verb(send, means_send, apart=True),
        "take": Verb(take, means_take),
        "acknowledge": Verb(acknowledge, means_acknowledge),
        "peek": Verb(peek, means_peek),
        "purge": Verb(purge, means_purge),
        "drain": Verb(drain, means_drain),
    },
    deeds={
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
    lay=lay,
    look=lambda program: program.ask("drain"),
)
