"""Messages by the ids that producers gave them: each id has one message, whoever puts it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from fsmq.spool import NewMessage, NoSuchMessage, Spool
from fsmq.spool.errors import ClaimEnded, NoSuchQueue
from tests.stories.story import UNKNOWN, Asking, Story, Verb

JOBS, MORE, DEAD = "jobs", "more", "dead"
QUEUES = (JOBS, MORE, DEAD)
IDS = ("x", "y", "z", "new")
HOLD_S = 60.0
# What stands under each id of each queue: (queue, id, body). All of a queue that is gone are gone.
Stands = frozenset[tuple[str, str, str]]


def _body(stands: Stands, queue: str, one: str) -> str | None:
    return next((body for q, i, body in stands if (q, i) == (queue, one)), None)


def _without(stands: Stands, queue: str, one: str) -> Stands:
    return frozenset(s for s in stands if s[:2] != (queue, one))


def upsert(spool: Spool, *messages: tuple[str, str]) -> None:
    spool.indexed(JOBS).upsert([NewMessage(body.encode(), id=one) for one, body in messages])


def means_upsert(stands: Stands, answer: Any, message: tuple[str, str]) -> Iterator[Stands]:
    if answer is UNKNOWN:
        yield stands
    yield _without(stands, JOBS, message[0]) | {(JOBS, *message)}


def ensure(spool: Spool, one: str, body: str) -> bool:
    return spool.indexed(JOBS).ensure(NewMessage(body.encode(), id=one))


def means_ensure(stands: Stands, answer: Any, one: str, body: str) -> Iterator[Stands]:
    is_there = _body(stands, JOBS, one) is not None
    if answer is UNKNOWN or answer is not is_there:
        yield stands if is_there else stands | {(JOBS, one, body)}
    if answer is UNKNOWN and not is_there:
        yield stands


def claim(spool: Spool, one: str) -> tuple[str, str, str] | None:
    found = spool.indexed(JOBS).claim(one, HOLD_S)
    return None if found is None else (found.body.decode(), found.id, found.claim or "")


def means_claim(stands: Stands, answer: Any, one: str) -> Iterator[Stands]:
    if answer is UNKNOWN or answer is None or answer[0] == _body(stands, JOBS, one):
        yield stands


def acknowledge(spool: Spool, one: str, body: str, message_id: str, name: str) -> bool:
    """In the claim that it names."""
    return spool.queue(JOBS).ack_each([message_id], [name]) == ["removed"]


def means_acknowledge(stands: Stands, answer: Any, one: str, body: str, *of: str) -> Iterator[Any]:
    if answer is not True:
        yield stands
    if answer is not False and _body(stands, JOBS, one) == body:
        yield _without(stands, JOBS, one)


def bury(spool: Spool, one: str, body: str, message_id: str, name: str) -> bool:
    try:
        spool.queue(JOBS).bury(message_id, claim=name)
    except (ClaimEnded, NoSuchMessage):
        return False
    return True


def means_bury(stands: Stands, answer: Any, one: str, body: str, *of: str) -> Iterator[Stands]:
    if answer is not True:
        yield stands
    if answer is not False and _body(stands, JOBS, one) == body:
        yield _without(stands, JOBS, one) | {(DEAD, one, body)}


def remove(spool: Spool, one: str) -> bool:
    return spool.indexed(JOBS).remove(one)[0]


def means_remove(stands: Stands, answer: Any, one: str) -> Iterator[Stands]:
    is_there = _body(stands, JOBS, one) is not None
    if answer is UNKNOWN or answer is is_there:
        yield _without(stands, JOBS, one)
    if answer is UNKNOWN:
        yield stands


def postpone(spool: Spool, one: str) -> bool:
    return spool.indexed(JOBS).postpone(one, HOLD_S)


def means_postpone(stands: Stands, answer: Any, one: str) -> Iterator[Stands]:
    if answer is not True or _body(stands, JOBS, one) is not None:
        yield stands


def move(spool: Spool, source: str, target: str) -> int:
    return spool.queue(source).move_to(target).moved


def redrive(spool: Spool) -> int:
    return spool.queue(DEAD).redrive().moved


def means_moves(stands: Stands, answer: Any, source: str, target: str) -> Iterator[Stands]:
    """Some move: not those whose id has a message there."""
    worlds = {stands}
    for queue, one, body in stands:
        if queue == source and _body(stands, target, one) is None:
            worlds |= {w - {(queue, one, body)} | {(target, one, body)} for w in worlds}
    for world in worlds:
        if answer is UNKNOWN or len(world - stands) <= answer:
            yield world


def create_anew(spool: Spool) -> None:
    with suppress(NoSuchQueue):
        spool.delete_queue(JOBS)
    spool.create_queue(JOBS, index=True)


def means_create_anew(stands: Stands, answer: Any) -> Iterator[Stands]:
    if answer is UNKNOWN:
        yield stands
    yield frozenset(s for s in stands if s[0] != JOBS)


def find(spool: Spool) -> Stands:
    """What stands under each id. A dead letter has none until it comes back."""
    found = set()
    for queue in (JOBS, MORE):
        for one in IDS:
            if (message := spool.indexed(queue).find(one)) is not None:
                found.add((queue, one, message.body.decode()))
    return frozenset(found)


def means_find(stands: Stands, answer: Any) -> Iterator[Stands]:
    if answer is UNKNOWN or answer == {s for s in stands if s[0] != DEAD}:
        yield stands


def drain(spool: Spool) -> tuple[tuple[str, str], ...]:
    found = []
    for queue in QUEUES:
        for _ in range(3):
            spool.deliver()
            claimed = spool.queue(queue).claim(100, visibility=HOLD_S)
            found += [(queue, message.body.decode()) for message in claimed]
    return tuple(sorted(found))


def means_drain(stands: Stands, answer: Any) -> Iterator[Stands]:
    if answer is UNKNOWN or answer == tuple(sorted((q, body) for q, _, body in stands)):
        yield stands


def _consume(program: Asking) -> None:
    if (found := program.ask("claim", "x")) is not None:
        program.ask("acknowledge", "x", *found)


def _bury(program: Asking) -> None:
    if (found := program.ask("claim", "x")) is not None:
        program.ask("bury", "x", *found)


def lay(spool: Spool) -> None:
    for queue in QUEUES:
        spool.create_queue(queue, index=True)
    jobs = spool.indexed(JOBS)
    spool.queue(JOBS).configure(max_deliveries=50, dead_letter_queue=DEAD)
    jobs.upsert([NewMessage(b"buried", id="z")])
    found = jobs.claim("z")
    assert found is not None
    spool.queue(JOBS).bury(found.id, claim=found.claim)
    jobs.upsert([NewMessage(b"first", id="x"), NewMessage(b"second", id="y")])


def look(program: Asking) -> None:
    program.ask("find")
    program.ask("drain")


GIVEN_IDS = Story(
    name="given ids",
    first=frozenset({(JOBS, "x", "first"), (JOBS, "y", "second"), (DEAD, "z", "buried")}),
    verbs={
        "upsert": Verb(upsert, means_upsert, apart=True),
        "ensure": Verb(ensure, means_ensure),
        "claim": Verb(claim, means_claim),
        "acknowledge": Verb(acknowledge, means_acknowledge),
        "bury": Verb(bury, means_bury),
        "remove": Verb(remove, means_remove),
        "postpone": Verb(postpone, means_postpone),
        "move": Verb(move, means_moves),
        "redrive": Verb(redrive, lambda stands, answer: means_moves(stands, answer, DEAD, JOBS)),
        "create anew": Verb(create_anew, means_create_anew),
        "find": Verb(find, means_find),
        "drain": Verb(drain, means_drain),
    },
    deeds={
        "upsert": lambda p: p.ask("upsert", ("x", p.new())),
        "upsert a new one": lambda p: p.ask("upsert", ("new", p.new())),
        "upsert two": lambda p: p.ask("upsert", ("x", p.new()), ("new", p.new())),
        "ensure": lambda p: p.ask("ensure", "new", p.new()),
        "ensure again": lambda p: p.ask("ensure", "x", p.new()),
        "consume": _consume,
        "bury": _bury,
        "remove": lambda p: p.ask("remove", "x"),
        "postpone": lambda p: p.ask("postpone", "x"),
        "move": lambda p: p.ask("move", JOBS, MORE),
        "move back": lambda p: p.ask("move", MORE, JOBS),
        "redrive": lambda p: p.ask("redrive"),
        "create anew": lambda p: p.ask("create anew"),
    },
    acts=(
        "upsert",
        "upsert a new one",
        "upsert two",
        "ensure",
        "consume",
        "bury",
        "remove",
        "postpone",
        "move",
        "redrive",
        "create anew",
    ),
    behind=("upsert",),
    returns=("remove", "a library starts", "upsert"),
    others=("upsert", "ensure", "ensure again", "consume", "bury", "remove", "move", "redrive"),
    anew="create anew",
    lay=lay,
    look=look,
    clocks=("upsert", "ensure", "consume", "bury", "remove", "postpone", "move", "redrive"),
)
