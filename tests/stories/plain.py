"""Messages of plain queues: put, with ids of one's own, too; claimed, buried, removed, moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import combinations
from typing import Any

from fsmq.spool import DuplicateMessage, NewMessage, NoSuchMessage, Spool
from fsmq.spool.errors import ClaimEnded, NoSuchQueue
from tests.stories.story import UNKNOWN, Asking, Story, Verb

JOBS, MORE, DEAD = "jobs", "more", "dead"
HOLD_S = 60.0
Stands = frozenset[tuple[str, str]]  # messages: queue and body


def _some(bodies: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Each choice of some of them."""
    bodies = tuple(bodies)
    for number in range(len(bodies) + 1):
        yield from combinations(bodies, number)


def put(spool: Spool, *bodies: str) -> None:
    spool.queue(JOBS).put_many([NewMessage(body.encode()) for body in bodies])


def means_put(stands: Stands, answer: Any, *bodies: str) -> Iterator[Stands]:
    for some in _some(bodies) if answer is UNKNOWN else [bodies]:
        yield stands | {(JOBS, body) for body in some}


def put_own(spool: Spool, body: str) -> bool:
    """Put it under an id that is its body; whether it was stored now."""
    try:
        spool.queue(JOBS).put(body, id=body)
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


def move(spool: Spool, source: str, target: str) -> int:
    return spool.queue(source).move_to(target).moved


def means_move(stands: Stands, answer: Any, source: str, target: str) -> Iterator[Stands]:
    """Some of them move: others may be in anybody's hands."""
    for some in _some(body for queue, body in stands if queue == source):
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


def show(spool: Spool) -> None:
    """Deliver what waits in new/: whoever starts claims it, and need not deliver first."""
    with Spool(spool.tree.root, sync="fsync", watch="poll") as anew:
        anew.deliver()  # what was just put is in its listing


def lay(spool: Spool) -> None:
    jobs = spool.queue(JOBS, create=True)
    spool.create_queue(MORE)
    jobs.configure(max_deliveries=50, dead_letter_queue=DEAD)
    jobs.put("buried")
    jobs.claim()[0].bury()
    jobs.put_many(["first", "second"])
    show(spool)


def look(program: Asking) -> None:
    program.ask("drain")


PLAIN = Story(
    name="plain queues",
    first=frozenset({(JOBS, "first"), (JOBS, "second"), (DEAD, "buried")}),
    verbs={
        "put": Verb(put, means_put),
        "put own": Verb(put_own, means_put_own),
        "take": Verb(take, means_take),
        "acknowledge": Verb(acknowledge, means_acknowledge),
        "bury": Verb(bury, means_bury),
        "release": Verb(release, lambda stands, answer, *of: [stands]),
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
        "move": lambda p: p.ask("move", JOBS, MORE),
        "move back": lambda p: p.ask("move", MORE, JOBS),
        "redrive": lambda p: p.ask("redrive"),
    },
    acts=("put", "put two", "put own", "consume", "bury", "release", "move", "redrive"),
    behind=("put own",),
    others=("put own", "consume", "bury", "move", "move back", "redrive"),
    lay=lay,
    look=look,
    clocks=("put", "put two", "put own", "consume", "bury", "release", "move", "redrive"),
)
