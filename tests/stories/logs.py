"""Logs of one or many hosts with a channel: an offset has one message, done messages stay done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from fsmq.spool import ChannelMessage, Spool
from fsmq.spool.errors import ClaimVoid, NoSuchLog, NotInFlight
from fsmq.spool.log.log import LogEntry
from fsmq.spool.log.segment.record import LogMessage
from tests.stories.story import UNKNOWN, Actor, Story, Verb

LOG, CHANNEL = "users", "mailer"
HOLD_S = 20.0
SEGMENT = 4096
_KEPT_S = 10 * 366 * 86_400.0
_REMEMBERED_S = 7 * 86_400.0  # ids are remembered for longer than any story takes


class State(NamedTuple):
    """bodies: by their offsets. ids: the offsets of published ids. done: acknowledged offsets."""

    bodies: tuple[str, ...]
    ids: tuple[tuple[str, int], ...] = ()
    done: frozenset[int] = frozenset()


def publish(spool: Spool, *bodies: str) -> int:
    return spool.log(LOG).publish_many(bodies).start


def publish_long(spool: Spool, body: str) -> int:
    return publish(spool, body.ljust(SEGMENT // 2, "."))


def _body(message: LogMessage | ChannelMessage) -> str:
    return message.body.decode().rstrip(".")


def after_publish(state: State, answer: Any, *bodies: str) -> Iterator[State]:
    if answer is UNKNOWN:
        yield state
    if answer is UNKNOWN or answer == len(state.bodies):
        yield state._replace(bodies=state.bodies + bodies)


def publish_once(spool: Spool, one: str) -> int:
    return spool.log(LOG).publish_many([LogEntry(one, id=one)]).start


def after_publish_once(state: State, answer: Any, one: str) -> Iterator[State]:
    known = dict(state.ids).get(one)
    if answer is UNKNOWN or (known is not None and known == answer):
        yield state
    if known is None:
        for after in after_publish(state, answer, one):
            if after != state:
                yield after._replace(ids=(*state.ids, (one, len(state.bodies))))


def after_publish_again(state: State, answer: Any, one: str) -> Iterator[State]:
    """The id may be remembered or forgotten: the offset is an earlier one or new."""
    if answer is UNKNOWN or state.bodies[answer : answer + 1] == (one,):
        yield state
    for after in after_publish(state, answer, one):
        if after != state:
            yield after._replace(ids=(*state.ids, (one, len(state.bodies))))


def read(spool: Spool) -> tuple[tuple[int, str], ...]:
    return tuple((m.offset, _body(m)) for m in spool.log(LOG).read("first"))


def after_read(state: State, answer: Any) -> Iterator[State]:
    if answer is UNKNOWN or answer == tuple(enumerate(state.bodies)):
        yield state


def after_read_of_hosts(state: State, answer: Any) -> Iterator[State]:
    """While a stopped writer holds the lock, the newest messages may be missing: decision 19."""
    if answer is UNKNOWN or answer == tuple(enumerate(state.bodies[: len(answer)])):
        yield state


def take(spool: Spool, most: int) -> tuple[tuple[int, str], ...]:
    claimed = spool.log(LOG).channel(CHANNEL).claim(most, visibility=HOLD_S)
    return tuple((m.offset, _body(m)) for m in claimed)


def after_take(state: State, answer: Any, most: int) -> Iterator[State]:
    """Unacknowledged messages; other programs may hold some."""
    if answer is UNKNOWN or all(
        state.bodies[o : o + 1] == (body,) and o not in state.done for o, body in answer
    ):
        yield state


def finish(spool: Spool, *offsets: int) -> bool:
    try:
        spool.log(LOG).channel(CHANNEL).ack(*offsets)
    except (NotInFlight, ClaimVoid):
        return False
    return True


def after_finish(state: State, answer: Any, *offsets: int) -> Iterator[State]:
    if answer is not True:
        yield state
    if answer is not False:
        yield state._replace(done=state.done | set(offsets))


def release(spool: Spool, *offsets: int) -> bool:
    try:
        spool.log(LOG).channel(CHANNEL).release(*offsets)
    except (NotInFlight, ClaimVoid):
        return False
    return True


def drain(spool: Spool) -> tuple[tuple[int, str], ...]:
    """Claim and acknowledge all messages."""
    channel, found = spool.log(LOG).channel(CHANNEL), []
    while messages := channel.claim(100, visibility=HOLD_S):
        found += [(m.offset, _body(m)) for m in messages]
        channel.ack(*messages)
    return tuple(sorted(found))


def after_drain(state: State, answer: Any) -> Iterator[State]:
    left = tuple((o, body) for o, body in enumerate(state.bodies) if o not in state.done)
    if answer is UNKNOWN or answer == left:
        yield state._replace(done=frozenset(range(len(state.bodies))))


def lost(spool: Spool) -> int:
    return spool.log(LOG).channel(CHANNEL).state().lost


def tend(spool: Spool) -> None:
    spool.tend_logs()


def _consume(program: Actor) -> None:
    if found := program.ask("take", 2):
        program.ask("finish", *(offset for offset, _ in found))


def _publish_much(program: Actor) -> None:
    """Publish until a new segment begins."""
    for _ in range(3):
        program.ask("publish long", program.new())


def _release(program: Actor) -> None:
    if found := program.ask("take", 2):
        program.ask("release", *(offset for offset, _ in found[:1]))
        program.ask("finish", *(offset for offset, _ in found[1:]))


def create(spool: Spool, writers: str) -> None:
    spool.log(LOG).create(
        writers=writers, segment_bytes=SEGMENT, dedupe_window=_REMEMBERED_S, retain_for=_KEPT_S
    )
    spool.log(LOG).channel(CHANNEL).create("first", order="none")


def create_anew(spool: Spool, writers: str) -> None:
    with suppress(NoSuchLog):
        spool.log(LOG).delete()
    create(spool, writers)


def after_create_anew(state: State, answer: Any) -> Iterator[State]:
    yield State(())
    if answer is UNKNOWN:
        yield state


def set_up(spool: Spool, writers: str) -> None:
    create(spool, writers)
    log = spool.log(LOG)
    log.publish_many(["m0", "m1", "m2"])
    log.publish_many(["m3", "m4", "m5"])
    channel = log.channel(CHANNEL)
    channel.claim(6)
    channel.ack(0, 3)
    channel.release(1, 2, 4, 5)


def inspect(program: Actor) -> None:
    program.ask("read all")
    program.ask("publish", program.new())
    program.ask("read all")
    program.ask("drain")
    program.ask("lost")


LOGS = Story(
    name="logs of one host",
    first=State(("m0", "m1", "m2", "m3", "m4", "m5"), done=frozenset({0, 3})),
    verbs={
        "publish": Verb(publish, after_publish),
        "publish long": Verb(publish_long, after_publish),
        "publish once": Verb(publish_once, after_publish_once),
        "publish again": Verb(publish_once, after_publish_again),
        "read": Verb(read, after_read),
        "read all": Verb(read, after_read),
        "take": Verb(take, after_take),
        "finish": Verb(finish, after_finish),
        "release": Verb(release, lambda state, answer, *of: [state]),
        "drain": Verb(drain, after_drain),
        "lost": Verb(lost, lambda state, answer: [state] if not answer else []),
        "tend": Verb(tend, lambda state, answer: [state]),
        "create anew": Verb(partial(create_anew, writers="host"), after_create_anew),
    },
    actions={
        "warm": lambda p: (p.ask("publish once", p.new()), p.ask("read")),
        "publish": lambda p: p.ask("publish", p.new()),
        "publish two": lambda p: p.ask("publish", p.new(), p.new()),
        "publish once": lambda p: p.ask("publish once", "once"),
        "publish again": lambda p: p.ask("publish again", "once"),
        "publish another": lambda p: p.ask("publish once", p.new()),
        "publish much": _publish_much,
        "read": lambda p: p.ask("read"),
        "consume": _consume,
        "release": _release,
        "tend": lambda p: p.ask("tend"),
        "create anew": lambda p: p.ask("create anew"),
    },
    acts=("publish", "publish two", "publish once", "consume", "release", "tend", "create anew"),
    others=("publish", "publish two", "publish once", "publish another", "read", "consume", "tend"),
    anew="create anew",
    clocks=(
        "publish",
        "publish two",
        "publish again",
        "publish another",
        "consume",
        "release",
        "tend",
    ),
    set_right=("publish", "publish two", "publish again", "publish another", "tend"),
    behind=("publish another", "publish much", "consume"),
    returns=("create anew", "a library starts", "publish"),
    sync="fdatasync",
    passes_s=(100.0, 100.0),
    set_up=partial(set_up, writers="host"),
    inspect=inspect,
)

LOGS_OF_HOSTS = replace(
    LOGS,
    name="logs of many hosts",
    verbs={
        **LOGS.verbs,
        "read": Verb(read, after_read_of_hosts),
        "create anew": Verb(partial(create_anew, writers="hosts"), after_create_anew),
    },
    set_up=partial(set_up, writers="hosts"),
)
