"""Messages by given id: each id has one message, whoever puts it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from fsmq.spool import NewMessage, NoSuchMessage, Spool
from fsmq.spool.errors import ClaimEnded, NoSuchQueue
from tests.stories.story import UNKNOWN, Actor, Story, Verb

JOBS, MORE, DEAD = "jobs", "more", "dead"
QUEUES = (JOBS, MORE, DEAD)
IDS = ("x", "y", "z", "new")
HOLD_S = 60.0
# The messages by id: (queue, id, body).
State = frozenset[tuple[str, str, str]]


def _body(state: State, queue: str, one: str) -> str | None:
    return next((body for q, i, body in state if (q, i) == (queue, one)), None)


def _without(state: State, queue: str, one: str) -> State:
    return frozenset(s for s in state if s[:2] != (queue, one))


def upsert(spool: Spool, *messages: tuple[str, str]) -> None:
    spool.indexed(JOBS).upsert([NewMessage(body.encode(), id=one) for one, body in messages])


def after_upsert(state: State, answer: Any, message: tuple[str, str]) -> Iterator[State]:
    if answer is UNKNOWN:
        yield state
    yield _without(state, JOBS, message[0]) | {(JOBS, *message)}


def ensure(spool: Spool, one: str, body: str) -> bool:
    return spool.indexed(JOBS).ensure(NewMessage(body.encode(), id=one))


def after_ensure(state: State, answer: Any, one: str, body: str) -> Iterator[State]:
    is_there = _body(state, JOBS, one) is not None
    if answer is UNKNOWN or answer is not is_there:
        yield state if is_there else state | {(JOBS, one, body)}
    if answer is UNKNOWN and not is_there:
        yield state


def claim(spool: Spool, one: str) -> tuple[str, str, str] | None:
    found = spool.indexed(JOBS).claim(one, HOLD_S)
    return None if found is None else (found.body.decode(), found.id, found.claim or "")


def after_claim(state: State, answer: Any, one: str) -> Iterator[State]:
    if answer is UNKNOWN or answer is None or answer[0] == _body(state, JOBS, one):
        yield state


def acknowledge(spool: Spool, one: str, body: str, message_id: str, name: str) -> bool:
    return spool.queue(JOBS).ack_each([message_id], [name]) == ["removed"]


def after_acknowledge(state: State, answer: Any, one: str, body: str, *of: str) -> Iterator[Any]:
    if answer is not True:
        yield state
    if answer is not False and _body(state, JOBS, one) == body:
        yield _without(state, JOBS, one)


def bury(spool: Spool, one: str, body: str, message_id: str, name: str) -> bool:
    try:
        spool.queue(JOBS).bury(message_id, claim=name)
    except (ClaimEnded, NoSuchMessage):
        return False
    return True


def after_bury(state: State, answer: Any, one: str, body: str, *of: str) -> Iterator[State]:
    if answer is not True:
        yield state
    if answer is not False and _body(state, JOBS, one) == body:
        yield _without(state, JOBS, one) | {(DEAD, one, body)}


def remove(spool: Spool, one: str) -> bool:
    return spool.indexed(JOBS).remove(one)[0]


def after_remove(state: State, answer: Any, one: str) -> Iterator[State]:
    is_there = _body(state, JOBS, one) is not None
    if answer is UNKNOWN or answer is is_there:
        yield _without(state, JOBS, one)
    if answer is UNKNOWN:
        yield state


def postpone(spool: Spool, one: str) -> bool:
    return spool.indexed(JOBS).postpone(one, HOLD_S)


def after_postpone(state: State, answer: Any, one: str) -> Iterator[State]:
    if answer is not True or _body(state, JOBS, one) is not None:
        yield state


def move(spool: Spool, source: str, target: str) -> int:
    return spool.queue(source).move_to(target).moved


def redrive(spool: Spool) -> int:
    return spool.queue(DEAD).redrive().moved


def after_moves(state: State, answer: Any, source: str, target: str) -> Iterator[State]:
    """Some messages move, except those whose id has a message in the target."""
    worlds = {state}
    for queue, one, body in state:
        if queue == source and _body(state, target, one) is None:
            worlds |= {w - {(queue, one, body)} | {(target, one, body)} for w in worlds}
    for world in worlds:
        if answer is UNKNOWN or len(world - state) <= answer:
            yield world


def create_anew(spool: Spool) -> None:
    with suppress(NoSuchQueue):
        spool.delete_queue(JOBS)
    spool.create_queue(JOBS, index=True)


def after_create_anew(state: State, answer: Any) -> Iterator[State]:
    if answer is UNKNOWN:
        yield state
    yield frozenset(s for s in state if s[0] != JOBS)


def find(spool: Spool) -> State:
    """The messages by id. A dead letter has no id until it is redriven."""
    found = set()
    for queue in (JOBS, MORE):
        for one in IDS:
            if (message := spool.indexed(queue).find(one)) is not None:
                found.add((queue, one, message.body.decode()))
    return frozenset(found)


def after_find(state: State, answer: Any) -> Iterator[State]:
    if answer is UNKNOWN or answer == {s for s in state if s[0] != DEAD}:
        yield state


def drain(spool: Spool) -> tuple[tuple[str, str], ...]:
    found = []
    for queue in QUEUES:
        for _ in range(3):
            spool.deliver()
            claimed = spool.queue(queue).claim(100, visibility=HOLD_S)
            found += [(queue, message.body.decode()) for message in claimed]
    return tuple(sorted(found))


def after_drain(state: State, answer: Any) -> Iterator[State]:
    if answer is UNKNOWN or answer == tuple(sorted((q, body) for q, _, body in state)):
        yield state


def _consume(program: Actor) -> None:
    if (found := program.ask("claim", "x")) is not None:
        program.ask("acknowledge", "x", *found)


def _bury(program: Actor) -> None:
    if (found := program.ask("claim", "x")) is not None:
        program.ask("bury", "x", *found)


def set_up(spool: Spool) -> None:
    for queue in QUEUES:
        spool.create_queue(queue, index=True)
    jobs = spool.indexed(JOBS)
    spool.queue(JOBS).configure(max_deliveries=50, dead_letter_queue=DEAD)
    jobs.upsert([NewMessage(b"buried", id="z")])
    found = jobs.claim("z")
    assert found is not None
    spool.queue(JOBS).bury(found.id, claim=found.claim)
    jobs.upsert([NewMessage(b"first", id="x"), NewMessage(b"second", id="y")])


def inspect(program: Actor) -> None:
    program.ask("find")
    program.ask("drain")


GIVEN_IDS = Story(
    name="given ids",
    first=frozenset({(JOBS, "x", "first"), (JOBS, "y", "second"), (DEAD, "z", "buried")}),
    verbs={
        "upsert": Verb(upsert, after_upsert, apart=True),
        "ensure": Verb(ensure, after_ensure),
        "claim": Verb(claim, after_claim),
        "acknowledge": Verb(acknowledge, after_acknowledge),
        "bury": Verb(bury, after_bury),
        "remove": Verb(remove, after_remove),
        "postpone": Verb(postpone, after_postpone),
        "move": Verb(move, after_moves),
        "redrive": Verb(redrive, lambda state, answer: after_moves(state, answer, DEAD, JOBS)),
        "create anew": Verb(create_anew, after_create_anew),
        "find": Verb(find, after_find),
        "drain": Verb(drain, after_drain),
    },
    actions={
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
    set_up=set_up,
    inspect=inspect,
    clocks=("upsert", "ensure", "consume", "bury", "remove", "postpone", "move", "redrive"),
)
