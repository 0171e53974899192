"""Messages of plain queues: put and published, claimed, buried, removed and moved in each way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import combinations
from typing import Any

from fsmq.spool import DuplicateMessage, NewMessage, NoSuchMessage, Spool
from fsmq.spool.errors import ClaimEnded, InvalidValue, NoSuchQueue
from tests.stories.story import UNKNOWN, Asking, Story, Verb

JOBS, MORE, DEAD, TOPIC = "jobs", "more", "dead", "news"
HOLD_S = 60.0
Stands = frozenset[tuple[str, str]]  # messages: queue and body


def some_of(bodies: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Each choice of some of them."""
    bodies = tuple(bodies)
    for number in range(len(bodies) + 1):
        yield from combinations(bodies, number)


def put(spool: Spool, *bodies: str) -> None:
    spool.queue(JOBS).put_many([NewMessage(body.encode()) for body in bodies])


def means_put(stands: Stands, answer: Any, *bodies: str) -> Iterator[Stands]:
    for some in some_of(bodies) if answer is UNKNOWN else [bodies]:
        yield stands | {(JOBS, body) for body in some}


def put_own(spool: Spool, body: str) -> bool:
    """Put it under an id that is its body; whether it was stored now."""
    try:
        spool.queue(JOBS, create=True).put(body, id=body)
    except DuplicateMessage:
        return False
    return True


def means_put_own(stands: Stands, answer: Any, body: str) -> Iterator[Stands]:
    if answer is UNKNOWN or answer is False:
        yield from [stands] if answer is UNKNOWN or (JOBS, body) in stands else []
    if answer is not False and (JOBS, body) not in stands:
        yield stands | {(JOBS, body)}


def take(spool: Spool, queue: str) -> tuple[str, str, str] | None:
    found = spool.queue(queue).claim(1, visibility=HOLD_S)
    return (found[0].id, found[0].claim or "", found[0].body.decode()) if found else None


def means_take(stands: Stands, answer: Any, queue: str) -> Iterator[Stands]:
    if answer is UNKNOWN or answer is None or (queue, answer[2]) in stands:
        yield stands


def acknowledge(spool: Spool, queue: str, body: str, message_id: str, claim: str) -> bool:
    return spool.queue(queue).ack_each([message_id], [claim]) == ["removed"]


def means_acknowledge(
    stands: Stands, answer: Any, queue: str, body: str, *of: str
) -> Iterator[Any]:
    if answer is not True:
        yield stands
    if answer is not False and (queue, body) in stands:
        yield stands - {(queue, body)}


def bury(spool: Spool, body: str, message_id: str, claim: str) -> bool:
    try:
        spool.queue(JOBS).bury(message_id, claim=claim)
    except (ClaimEnded, NoSuchMessage):
        return False
    return True


def means_bury(stands: Stands, answer: Any, body: str, *of: str) -> Iterator[Stands]:
    if answer is not True:
        yield stands
    if answer is not False and (JOBS, body) in stands:
        yield stands - {(JOBS, body)} | {(DEAD, body)}


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
    """One that is ready."""
    found = spool.queue(queue).peek(1)
    return (found[0].id, found[0].body.decode()) if found else None


def means_glance(stands: Stands, answer: Any, queue: str) -> Iterator[Stands]:
    if answer is UNKNOWN or answer is None or (queue, answer[1]) in stands:
        yield stands


def prefer(spool: Spool, message_id: str) -> bool:
    """Give it another priority, and so another id."""
    try:
        spool.queue(JOBS).set_priority(message_id, 7)
    except (NoSuchMessage, InvalidValue):  # an id of one's own has none
        return False
    return True


def remove(spool: Spool, body: str, message_id: str) -> bool:
    return spool.queue(JOBS).remove_each([message_id]) == [True]


def purge(spool: Spool) -> None:
    spool.queue(JOBS).purge()


def means_purge(stands: Stands, answer: Any) -> Iterator[Stands]:
    """What was there when it began is gone; without an answer some of it may be."""
    there = {one for one in stands if one[0] == JOBS}
    for some in some_of(body for _, body in there) if answer is UNKNOWN else [()]:
        yield stands - there | {(JOBS, body) for body in some}


def configure(spool: Spool) -> None:
    spool.configure(JOBS, {"visibility_timeout": HOLD_S})


def publish(spool: Spool, body: str) -> None:
    spool.topic(TOPIC).publish(body)


def means_publish(stands: Stands, answer: Any, body: str) -> Iterator[Stands]:
    for some in some_of((MORE, DEAD)) if answer is UNKNOWN else [(MORE, DEAD)]:
        yield stands | {(queue, body) for queue in some}


def create_anew(spool: Spool) -> None:
    with suppress(NoSuchQueue):
        spool.delete_queue(JOBS)
    _create(spool)


def means_create_anew(stands: Stands, answer: Any) -> Iterator[Stands]:
    if answer is UNKNOWN:
        yield stands
    yield frozenset(one for one in stands if one[0] != JOBS)


def _create(spool: Spool) -> None:
    spool.create_queue(JOBS)
    spool.configure(JOBS, {"max_deliveries": 50, "dead_letter_queue": DEAD})


def move(spool: Spool, source: str, target: str) -> int:
    return spool.queue(source).move_to(target).moved


def means_move(stands: Stands, answer: Any, source: str, target: str) -> Iterator[Stands]:
    """Some of them move: others may be in anybody's hands."""
    for some in some_of(body for queue, body in stands if queue == source):
        if answer is UNKNOWN or len(some) <= answer:
            gone, come = {(source, b) for b in some}, {(target, b) for b in some}
            yield stands - gone | come


def redrive(spool: Spool) -> int:
    return spool.queue(DEAD).redrive().moved


def drain(spool: Spool) -> tuple[tuple[str, str], ...]:
    """All that comes out, in any order."""
    found = []
    for queue in (JOBS, MORE, DEAD):
        with suppress(NoSuchQueue):
            for _ in range(3):
                spool.deliver()
                claimed = spool.queue(queue).claim(100, visibility=HOLD_S)
                found += [(queue, message.body.decode()) for message in claimed]
    return tuple(sorted(found))


def means_drain(stands: Stands, answer: Any) -> Iterator[Stands]:
    if answer is UNKNOWN or tuple(sorted(stands)) == answer:
        yield stands


def _consume(program: Asking) -> None:
    if (found := program.ask("take", JOBS)) is not None:
        program.ask("acknowledge", JOBS, found[2], *found[:2])


def _bury(program: Asking) -> None:
    if (found := program.ask("take", JOBS)) is not None:
        program.ask("bury", found[2], *found[:2])


def _release(program: Asking) -> None:
    if (found := program.ask("take", JOBS)) is not None:
        program.ask("release", *found[:2])


def _renew(program: Asking) -> None:
    if (found := program.ask("take", JOBS)) is not None:
        program.ask("renew", *found[:2])
        program.ask("acknowledge", JOBS, found[2], *found[:2])


def _prefer(program: Asking) -> None:
    if (found := program.ask("glance", JOBS)) is not None:
        program.ask("prefer", found[0])


def _remove(program: Asking) -> None:
    if (found := program.ask("glance", JOBS)) is not None:
        program.ask("remove", found[1], found[0])


def show(spool: Spool) -> None:
    """Deliver what waits in new/: whoever starts claims it, and need not deliver first."""
    with Spool(spool.tree.root, sync="fsync", watch="poll") as anew:
        anew.deliver()  # what was just put is in its listing


def lay(spool: Spool) -> None:
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


def look(program: Asking) -> None:
    program.ask("drain")


_OTHERS = ("put own", "consume", "bury", "move", "redrive", "prefer", "remove", "purge")
_ACTS = ("put", "put two", "release", "renew", "configure", "publish", "create anew", *_OTHERS)

PLAIN = Story(
    name="plain queues",
    first=frozenset({(JOBS, "first"), (JOBS, "second"), (DEAD, "buried")}),
    verbs={
        "put": Verb(put, means_put, apart=True),
        "put own": Verb(put_own, means_put_own),
        "take": Verb(take, means_take),
        "acknowledge": Verb(acknowledge, means_acknowledge),
        "bury": Verb(bury, means_bury),
        "release": Verb(release, lambda stands, answer, *of: [stands]),
        "renew": Verb(renew, lambda stands, answer, *of: [stands]),
        "glance": Verb(glance, means_glance),
        "prefer": Verb(prefer, lambda stands, answer, *of: [stands]),
        "remove": Verb(
            remove, lambda s, answer, body, one: means_acknowledge(s, answer, JOBS, body)
        ),
        "purge": Verb(purge, means_purge),
        "configure": Verb(configure, lambda stands, answer: [stands]),
        "publish": Verb(publish, means_publish),
        "create anew": Verb(create_anew, means_create_anew),
        "move": Verb(move, means_move),
        "redrive": Verb(redrive, lambda stands, answer: means_move(stands, answer, DEAD, JOBS)),
        "drain": Verb(drain, means_drain),
    },
    deeds={
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
    lay=lay,
    look=look,
    clocks=tuple(act for act in _ACTS if act != "create anew"),
)
