"""Plain queues: messages are put, published, claimed, buried, removed and moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import combinations
from typing import Any

from fsmq.spool import DuplicateMessage, NewMessage, NoSuchMessage, Spool
from fsmq.spool.errors import ClaimEnded, InvalidValue, NoSuchQueue
from tests.stories.story import UNKNOWN, Actor, Story, Verb

JOBS, MORE, DEAD, TOPIC = "jobs", "more", "dead", "news"
HOLD_S = 60.0
State = frozenset[tuple[str, str]]  # messages: queue and body


def some_of(bodies: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """All subsets."""
    bodies = tuple(bodies)
    for number in range(len(bodies) + 1):
        yield from combinations(bodies, number)


def put(spool: Spool, *bodies: str) -> None:
    spool.queue(JOBS).put_many([NewMessage(body.encode()) for body in bodies])


def after_put(state: State, answer: Any, *bodies: str) -> Iterator[State]:
    for some in some_of(bodies) if answer is UNKNOWN else [bodies]:
        yield state | {(JOBS, body) for body in some}


def put_own(spool: Spool, body: str) -> bool:
    """Put a message with its body as id; whether it was stored now."""
    try:
        spool.queue(JOBS, create=True).put(body, id=body)
    except DuplicateMessage:
        return False
    return True


def after_put_own(state: State, answer: Any, body: str) -> Iterator[State]:
    if answer is UNKNOWN or answer is False:
        yield from [state] if answer is UNKNOWN or (JOBS, body) in state else []
    if answer is not False and (JOBS, body) not in state:
        yield state | {(JOBS, body)}


def take(spool: Spool, queue: str) -> tuple[str, str, str] | None:
    found = spool.queue(queue).claim(1, visibility=HOLD_S)
    return (found[0].id, found[0].claim or "", found[0].body.decode()) if found else None


def after_take(state: State, answer: Any, queue: str) -> Iterator[State]:
    if answer is UNKNOWN or answer is None or (queue, answer[2]) in state:
        yield state


def acknowledge(spool: Spool, queue: str, body: str, message_id: str, claim: str) -> bool:
    return spool.queue(queue).ack_each([message_id], [claim]) == ["removed"]


def after_acknowledge(state: State, answer: Any, queue: str, body: str, *of: str) -> Iterator[Any]:
    if answer is not True:
        yield state
    if answer is not False and (queue, body) in state:
        yield state - {(queue, body)}


def bury(spool: Spool, body: str, message_id: str, claim: str) -> bool:
    try:
        spool.queue(JOBS).bury(message_id, claim=claim)
    except (ClaimEnded, NoSuchMessage):
        return False
    return True


def after_bury(state: State, answer: Any, body: str, *of: str) -> Iterator[State]:
    if answer is not True:
        yield state
    if answer is not False and (JOBS, body) in state:
        yield state - {(JOBS, body)} | {(DEAD, body)}


def release(spool: Spool, message_id: str, claim: str) -> bool:
    try:
        spool.queue(JOBS).release(message_id, claim=claim)
    except (ClaimEnded, NoSuchMessage):
        return False
    return True


def renew(spool: Spool, message_id: str, claim: str, hold_s: float = HOLD_S) -> bool:
    try:
        spool.queue(JOBS).renew(message_id, hold_s, claim=claim)
    except (ClaimEnded, NoSuchMessage):
        return False
    return True


def glance(spool: Spool, queue: str) -> tuple[str, str] | None:
    """Peek at a ready message."""
    found = spool.queue(queue).peek(1)
    return (found[0].id, found[0].body.decode()) if found else None


def after_glance(state: State, answer: Any, queue: str) -> Iterator[State]:
    if answer is UNKNOWN or answer is None or (queue, answer[1]) in state:
        yield state


def prefer(spool: Spool, message_id: str) -> bool:
    """Set another priority, which changes the id."""
    try:
        spool.queue(JOBS).set_priority(message_id, 7)
    except (NoSuchMessage, InvalidValue):  # an own id has no priority
        return False
    return True


def remove(spool: Spool, body: str, message_id: str) -> bool:
    return spool.queue(JOBS).remove_each([message_id]) == [True]


def purge(spool: Spool) -> None:
    spool.queue(JOBS).purge()


def after_purge(state: State, answer: Any) -> Iterator[State]:
    """All messages from before are removed; without an answer, some may be."""
    there = {one for one in state if one[0] == JOBS}
    for some in some_of(body for _, body in there) if answer is UNKNOWN else [()]:
        yield state - there | {(JOBS, body) for body in some}


def configure(spool: Spool) -> None:
    spool.configure(JOBS, {"visibility_timeout": HOLD_S})


def publish(spool: Spool, body: str) -> None:
    spool.topic(TOPIC).publish(body)


def after_publish(state: State, answer: Any, body: str) -> Iterator[State]:
    for some in some_of((MORE, DEAD)) if answer is UNKNOWN else [(MORE, DEAD)]:
        yield state | {(queue, body) for queue in some}


def create_anew(spool: Spool) -> None:
    with suppress(NoSuchQueue):
        spool.delete_queue(JOBS)
    _create(spool)


def after_create_anew(state: State, answer: Any) -> Iterator[State]:
    if answer is UNKNOWN:
        yield state
    yield frozenset(one for one in state if one[0] != JOBS)


def _create(spool: Spool) -> None:
    spool.create_queue(JOBS)
    spool.configure(JOBS, {"max_deliveries": 50, "dead_letter_queue": DEAD})


def move(spool: Spool, source: str, target: str) -> int:
    return spool.queue(source).move_to(target).moved


def after_move(state: State, answer: Any, source: str, target: str) -> Iterator[State]:
    """Some messages move; other programs may hold the rest."""
    for some in some_of(body for queue, body in state if queue == source):
        if answer is UNKNOWN or len(some) <= answer:
            gone, come = {(source, b) for b in some}, {(target, b) for b in some}
            yield state - gone | come


def redrive(spool: Spool) -> int:
    return spool.queue(DEAD).redrive().moved


def drain(spool: Spool) -> tuple[tuple[str, str], ...]:
    """All messages that can be claimed, in any order."""
    found = []
    for queue in (JOBS, MORE, DEAD):
        with suppress(NoSuchQueue):
            for _ in range(3):
                spool.deliver()
                claimed = spool.queue(queue).claim(100, visibility=HOLD_S)
                found += [(queue, message.body.decode()) for message in claimed]
    return tuple(sorted(found))


def after_drain(state: State, answer: Any) -> Iterator[State]:
    if answer is UNKNOWN or tuple(sorted(state)) == answer:
        yield state


def _consume(program: Actor) -> None:
    if (found := program.ask("take", JOBS)) is not None:
        program.ask("acknowledge", JOBS, found[2], *found[:2])


def _bury(program: Actor) -> None:
    if (found := program.ask("take", JOBS)) is not None:
        program.ask("bury", found[2], *found[:2])


def _release(program: Actor) -> None:
    if (found := program.ask("take", JOBS)) is not None:
        program.ask("release", *found[:2])


def _renew(program: Actor) -> None:
    if (found := program.ask("take", JOBS)) is not None:
        program.ask("renew", *found[:2])
        program.ask("acknowledge", JOBS, found[2], *found[:2])


def _prefer(program: Actor) -> None:
    if (found := program.ask("glance", JOBS)) is not None:
        program.ask("prefer", found[0])


def _remove(program: Actor) -> None:
    if (found := program.ask("glance", JOBS)) is not None:
        program.ask("remove", found[1], found[0])


def show(spool: Spool) -> None:
    """Deliver new messages, so that starting programs can claim them at once."""
    with Spool(spool.tree.root, sync="fsync", watch="poll") as anew:
        anew.deliver()  # its listing has the latest messages


def set_up(spool: Spool) -> None:
    _create(spool)
    jobs = spool.queue(JOBS)
    jobs.put("buried")
    jobs.claim()[0].bury()
    topic = spool.topic(TOPIC, create=True)
    for queue in (MORE, DEAD):
        spool.create_queue(queue)
        topic.subscribe(queue)
    jobs.put_many(["first", "second"])
    show(spool)


def inspect(program: Actor) -> None:
    program.ask("drain")


_OTHERS = ("put own", "consume", "bury", "move", "redrive", "prefer", "remove", "purge")
_ACTS = ("put", "put two", "release", "renew", "configure", "publish", "create anew", *_OTHERS)

PLAIN = Story(
    name="plain queues",
    first=frozenset({(JOBS, "first"), (JOBS, "second"), (DEAD, "buried")}),
    verbs={
        "put": Verb(put, after_put, apart=True),
        "put own": Verb(put_own, after_put_own),
        "take": Verb(take, after_take),
        "acknowledge": Verb(acknowledge, after_acknowledge),
        "bury": Verb(bury, after_bury),
        "release": Verb(release, lambda state, answer, *of: [state]),
        "renew": Verb(renew, lambda state, answer, *of: [state]),
        "glance": Verb(glance, after_glance),
        "prefer": Verb(prefer, lambda state, answer, *of: [state]),
        "remove": Verb(
            remove, lambda s, answer, body, one: after_acknowledge(s, answer, JOBS, body)
        ),
        "purge": Verb(purge, after_purge),
        "configure": Verb(configure, lambda state, answer: [state]),
        "publish": Verb(publish, after_publish),
        "create anew": Verb(create_anew, after_create_anew),
        "move": Verb(move, after_move),
        "redrive": Verb(redrive, lambda state, answer: after_move(state, answer, DEAD, JOBS)),
        "drain": Verb(drain, after_drain),
    },
    actions={
        "put": lambda p: p.ask("put", p.new()),
        "put two": lambda p: p.ask("put", p.new(), p.new()),
        "put own": lambda p: p.ask("put own", "own"),
        "consume": _consume,
        "bury": _bury,
        "release": _release,
        "renew": _renew,
        "prefer": _prefer,
        "remove": _remove,
        "purge": lambda p: p.ask("purge"),
        "configure": lambda p: p.ask("configure"),
        "publish": lambda p: p.ask("publish", p.new()),
        "create anew": lambda p: p.ask("create anew"),
        "move": lambda p: p.ask("move", JOBS, MORE),
        "move back": lambda p: p.ask("move", MORE, JOBS),
        "redrive": lambda p: p.ask("redrive"),
    },
    acts=_ACTS,
    behind=("put own",),
    returns=("put own", "purge", "a library starts", "put own"),
    others=(*_OTHERS, "move back"),
    anew="create anew",
    set_up=set_up,
    inspect=inspect,
    clocks=tuple(act for act in _ACTS if act != "create anew"),
)
