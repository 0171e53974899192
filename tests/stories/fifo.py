"""Fifo queues: each group is in the order of its puts, each deduplication id is stored once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import combinations
from typing import Any

from fsmq.spool import NewMessage, NoSuchQueue, Spool
from tests.stories.story import UNKNOWN, Actor, Story, Verb

ORDERS, COPIES, TOPIC = "orders", "copies", "news"
HOLD_S = 20.0
GROUP = "a"
# A busy program lists less often: this is the most time between two listings.
_TRIES, _LOOK_S = 30, 1.0
# The deduplication ids of the messages of a queue, in order, and all remembered ids.
Queue = tuple[tuple[str, ...], frozenset[str]]
State = tuple[Queue, Queue]
_EMPTY: Queue = ((), frozenset())


def _message(one: str) -> NewMessage:
    return NewMessage(one.encode(), group=GROUP, dedup_id=one)


def _with(queue: Queue, one: str) -> Queue:
    waiting, known = queue
    return queue if one in known else ((*waiting, one), known | {one})


def put(spool: Spool, *ones: str) -> None:
    spool.queue(ORDERS).put_many([_message(one) for one in ones])


def after_put(state: State, answer: Any, *ones: str) -> Iterator[State]:
    orders, copies = state
    if answer is UNKNOWN:
        yield state
        for number in range(1, len(ones)):
            yield from after_put(state, None, *ones[:number])
    for one in ones:
        orders = _with(orders, one)
    yield orders, copies


def after_put_again(state: State, answer: Any, one: str) -> Iterator[State]:
    """The id may be remembered or forgotten."""
    (waiting, known), copies = state
    if answer is UNKNOWN or one in known:
        yield state
    yield _with((waiting, known - {one}), one), copies


def publish(spool: Spool, one: str) -> None:
    spool.topic(TOPIC).publish(one, group=GROUP, dedup_id=one)


def after_publish(state: State, answer: Any, one: str) -> Iterator[State]:
    orders, copies = state
    if answer is UNKNOWN:
        yield state
        yield _with(orders, one), copies
        yield orders, _with(copies, one)
    yield _with(orders, one), _with(copies, one)


def take(spool: Spool) -> tuple[str, str, str] | None:
    found = spool.queue(ORDERS).claim(1, visibility=HOLD_S)
    return (found[0].body.decode(), found[0].id, found[0].claim or "") if found else None


def after_take(state: State, answer: Any) -> Iterator[State]:
    """The first message of the group, or none: another program may hold it."""
    waiting, _ = state[0]
    if answer is UNKNOWN or answer is None or waiting[:1] == answer[:1]:
        yield state


def acknowledge(spool: Spool, one: str, message_id: str, claim: str) -> bool:
    return spool.queue(ORDERS).ack_each([message_id], [claim]) == ["removed"]


def after_acknowledge(state: State, answer: Any, one: str, *of: str) -> Iterator[State]:
    (waiting, known), copies = state
    if answer is not True:
        yield state
    if answer is not False and one in waiting:
        yield (tuple(w for w in waiting if w != one), known), copies


def purge(spool: Spool) -> None:
    spool.queue(ORDERS).purge()


def after_purge(state: State, answer: Any) -> Iterator[State]:
    """A message that is put meanwhile may be removed, too, while its id stays known: so it does if
    it came after the ids were forgotten.

    Without an answer some messages may be removed, and ids of others forgotten.
    """
    (waiting, known), copies = state
    for number in range(len(waiting) + 1 if answer is UNKNOWN else 1):
        for left in combinations(waiting, number):
            yield (left, known), copies
            yield (left, frozenset()), copies
    for number in range(1, len(waiting) + 1):
        for put_late in combinations(waiting, number):
            yield ((), frozenset(put_late)), copies


def after_create_anew(state: State, answer: Any) -> Iterator[State]:
    if answer is UNKNOWN:
        yield state
    yield _EMPTY, state[1]


def create_anew(spool: Spool) -> None:
    with suppress(NoSuchQueue):
        spool.delete_queue(ORDERS)
    spool.create_queue(ORDERS, fifo=True)
    spool.topic(TOPIC).subscribe(ORDERS)


def drain(spool: Spool, queue: str) -> tuple[str, ...]:
    """Claim and acknowledge all messages, one at a time."""
    found: list[str] = []
    tries = 0
    while spool.counts(queue).total and tries < _TRIES:
        tries += 1
        for message in spool.queue(queue).claim(1, visibility=HOLD_S):
            found.append(message.body.decode())
            message.ack()
            tries = 0
        time.sleep(_LOOK_S)  # until it lists messages in flight again
    return tuple(found)


def after_drain(state: State, answer: Any, queue: str) -> Iterator[State]:
    which = (ORDERS, COPIES).index(queue)
    waiting, known = state[which]
    if answer is UNKNOWN or answer == waiting:
        emptied = list(state)
        emptied[which] = ((), known)
        yield emptied[0], emptied[1]


def _consume(program: Actor) -> None:
    if (found := program.ask("take")) is not None:
        program.ask("acknowledge", *found)


def set_up(spool: Spool) -> None:
    for queue in (ORDERS, COPIES):
        spool.create_queue(queue, fifo=True)
    topic = spool.topic(TOPIC, create=True)
    put(spool, "first", "second")
    for queue in (ORDERS, COPIES):
        topic.subscribe(queue)


def inspect(program: Actor) -> None:
    program.ask("drain", ORDERS)
    program.ask("drain", COPIES)
    program.ask("put again", "x")
    program.ask("drain", ORDERS)


FIFO = Story(
    name="fifo queues",
    first=((("first", "second"), frozenset({"first", "second"})), _EMPTY),
    verbs={
        "put": Verb(put, after_put, lingers=False),
        "put again": Verb(put, after_put_again),
        "publish": Verb(publish, after_publish, lingers=False),
        "take": Verb(take, after_take),
        "acknowledge": Verb(acknowledge, after_acknowledge),
        "purge": Verb(purge, after_purge),
        "create anew": Verb(create_anew, after_create_anew),
        "drain": Verb(drain, after_drain),
    },
    actions={
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
    # A deduplication id is remembered for minutes, which have passed for a clock that is far off.
    clocks=("put again", "put another", "publish another", "consume", "purge"),
    set_right=("put again", "put another", "publish another"),
    behind=("put another",),
    returns=("create anew", "a library starts", "put"),
    set_up=set_up,
    inspect=inspect,
)
