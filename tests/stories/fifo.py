"""Messages of fifo queues: each group in the order of its puts, each deduplication id once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import combinations
from typing import Any

from fsmq.spool import NewMessage, NoSuchQueue, Spool
from tests.stories.story import UNKNOWN, Asking, Story, Verb

ORDERS, COPIES, TOPIC = "orders", "copies", "news"
HOLD_S = 20.0
GROUP = "a"
# A busy machine looks less often: it may use so much of the time for that, and no more.
_TRIES, _LOOK_S = 30, 1.0
# Of each queue the deduplication ids whose messages stand, in their order, and those it has had.
Queue = tuple[tuple[str, ...], frozenset[str]]
Stands = tuple[Queue, Queue]
_EMPTY: Queue = ((), frozenset())


def _message(one: str) -> NewMessage:
    return NewMessage(one.encode(), group=GROUP, dedup_id=one)


def _with(queue: Queue, one: str) -> Queue:
    waiting, known = queue
    return queue if one in known else ((*waiting, one), known | {one})


def put(spool: Spool, *ones: str) -> None:
    spool.queue(ORDERS).put_many([_message(one) for one in ones])


def means_put(stands: Stands, answer: Any, *ones: str) -> Iterator[Stands]:
    orders, copies = stands
    if answer is UNKNOWN:
        yield stands
        for number in range(1, len(ones)):
            yield from means_put(stands, None, *ones[:number])
    for one in ones:
        orders = _with(orders, one)
    yield orders, copies


def means_put_again(stands: Stands, answer: Any, one: str) -> Iterator[Stands]:
    """Its id may be known still, or forgotten."""
    (waiting, known), copies = stands
    if answer is UNKNOWN or one in known:
        yield stands
    yield _with((waiting, known - {one}), one), copies


def publish(spool: Spool, one: str) -> None:
    spool.topic(TOPIC).publish(one, group=GROUP, dedup_id=one)


def means_publish(stands: Stands, answer: Any, one: str) -> Iterator[Stands]:
    orders, copies = stands
    if answer is UNKNOWN:
        yield stands
        yield _with(orders, one), copies
        yield orders, _with(copies, one)
    yield _with(orders, one), _with(copies, one)


def take(spool: Spool) -> tuple[str, str, str] | None:
    found = spool.queue(ORDERS).claim(1, visibility=HOLD_S)
    return (found[0].body.decode(), found[0].id, found[0].claim or "") if found else None


def means_take(stands: Stands, answer: Any) -> Iterator[Stands]:
    """The first of the group, or none: another may be in somebody's hands."""
    waiting, _ = stands[0]
    if answer is UNKNOWN or answer is None or waiting[:1] == answer[:1]:
        yield stands


def acknowledge(spool: Spool, one: str, message_id: str, claim: str) -> bool:
    return spool.queue(ORDERS).ack_each([message_id], [claim]) == ["removed"]


def means_acknowledge(stands: Stands, answer: Any, one: str, *of: str) -> Iterator[Stands]:
    (waiting, known), copies = stands
    if answer is not True:
        yield stands
    if answer is not False and one in waiting:
        yield (tuple(w for w in waiting if w != one), known), copies


def purge(spool: Spool) -> None:
    spool.queue(ORDERS).purge()


def means_purge(stands: Stands, answer: Any) -> Iterator[Stands]:
    """Of what is put meanwhile the message may go, too, and its id stay known.

    Without an answer some may have gone, and ids of those that stand may be forgotten.
    """
    (waiting, known), copies = stands
    for number in range(len(waiting) + 1 if answer is UNKNOWN else 1):
        for left in combinations(waiting, number):
            yield (left, known), copies
            yield (left, frozenset()), copies


def means_create_anew(stands: Stands, answer: Any) -> Iterator[Stands]:
    if answer is UNKNOWN:
        yield stands
    yield _EMPTY, stands[1]


def create_anew(spool: Spool) -> None:
    with suppress(NoSuchQueue):
        spool.delete_queue(ORDERS)
    spool.create_queue(ORDERS, fifo=True)
    spool.topic(TOPIC).subscribe(ORDERS)


def drain(spool: Spool, queue: str) -> tuple[str, ...]:
    """What comes out, one after the other."""
    found: list[str] = []
    tries = 0
    while spool.counts(queue).total and tries < _TRIES:
        tries += 1
        for message in spool.queue(queue).claim(1, visibility=HOLD_S):
            found.append(message.body.decode())
            message.ack()
            tries = 0
        time.sleep(_LOOK_S)  # until it looks again at what is in flight
    return tuple(found)


def means_drain(stands: Stands, answer: Any, queue: str) -> Iterator[Stands]:
    which = (ORDERS, COPIES).index(queue)
    waiting, known = stands[which]
    if answer is UNKNOWN or answer == waiting:
        emptied = list(stands)
        emptied[which] = ((), known)
        yield emptied[0], emptied[1]


def _consume(program: Asking) -> None:
    if (found := program.ask("take")) is not None:
        program.ask("acknowledge", *found)


def lay(spool: Spool) -> None:
    for queue in (ORDERS, COPIES):
        spool.create_queue(queue, fifo=True)
    topic = spool.topic(TOPIC, create=True)
    put(spool, "first", "second")
    for queue in (ORDERS, COPIES):
        topic.subscribe(queue)


def look(program: Asking) -> None:
    program.ask("drain", ORDERS)
    program.ask("drain", COPIES)
    program.ask("put again", "x")
    program.ask("drain", ORDERS)


FIFO = Story(
    name="fifo queues",
    first=((("first", "second"), frozenset({"first", "second"})), _EMPTY),
    verbs={
        "put": Verb(put, means_put, lingers=False),
        "put again": Verb(put, means_put_again),
        "publish": Verb(publish, means_publish, lingers=False),
        "take": Verb(take, means_take),
        "acknowledge": Verb(acknowledge, means_acknowledge),
        "purge": Verb(purge, means_purge),
        "create anew": Verb(create_anew, means_create_anew),
        "drain": Verb(drain, means_drain),
    },
    deeds={
        "warm": lambda p: p.ask("put", "first"),
        "put": lambda p: p.ask("put", "x"),
        "put two": lambda p: p.ask("put", "x", "y"),
        "put again": lambda p: p.ask("put again", "x"),
        "put another": lambda p: p.ask("put", p.new()),
        "publish": lambda p: p.ask("publish", "x"),
        "publish another": lambda p: p.ask("publish", p.new()),
        "consume": _consume,
        "purge": lambda p: p.ask("purge"),
        "create anew": lambda p: p.ask("create anew"),
    },
    acts=("put", "put two", "publish", "consume", "purge", "create anew"),
    others=("put", "put another", "publish", "publish another", "consume", "create anew"),
    anew="create anew",
    # A deduplication id is remembered for minutes: which are over for a clock that is far off.
    clocks=("put again", "put another", "publish another", "consume", "purge"),
    set_right=("put again", "put another", "publish another"),
    behind=("put another",),
    returns=("create anew", "a library starts", "put"),
    lay=lay,
    look=look,
)
