"""Channels with strict order or order by key, with burials, seeks and retention."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from fsmq.spool import Spool
from fsmq.spool.errors import ClaimVoid, NoSuchLog, NotInFlight
from fsmq.spool.log.log import LogEntry
from fsmq.spool.log.log_settings import Order
from tests.stories import logs, plain
from tests.stories.logs import CHANNEL, HOLD_S, LOG, SEGMENT
from tests.stories.story import UNKNOWN, Actor, Story, Verb

DEAD = plain.DEAD
_KEPT_S = 10 * 366 * 86_400.0
_BODIES = ("m0", "m1", "m2", "m3", "m4")


class State(NamedTuple):
    """bodies: by their offsets. done: acknowledged offsets. dead: dead letters. retains: whether
    acknowledged messages may be removed.

    chosen: all before it was acknowledged once, so a running retention may remove it even after a
    seek, and the channel counts the loss. missing: the losses that it has to count.
    """

    bodies: tuple[str, ...]
    done: frozenset[int] = frozenset()
    dead: frozenset[str] = frozenset()
    retains: bool = False
    chosen: int = 0
    missing: int = 0

    @property
    def left(self) -> tuple[tuple[int, str], ...]:
        return tuple((o, body) for o, body in enumerate(self.bodies) if o not in self.done)

    @property
    def through(self) -> int:
        """The largest possible first offset of the log."""
        if not self.retains:
            return 0
        return max(self.chosen, min(self.left, default=(len(self.bodies), ""))[0])


def _key(body: str) -> str:
    """The key of a message: its publisher."""
    return body[0]


def publish(spool: Spool, *bodies: str) -> int:
    return spool.log(LOG).publish_many([LogEntry(b, key=_key(b)) for b in bodies]).start


def after_publish(state: State, answer: Any, *bodies: str) -> Iterator[State]:
    if answer is UNKNOWN:
        yield state
    if answer is UNKNOWN or answer == len(state.bodies):
        yield state._replace(bodies=state.bodies + bodies)


def after_take(state: State, answer: Any, most: int, *, order: Order) -> Iterator[State]:
    """Messages before a claimed one are acknowledged, removed, or claimed with it."""
    taken = () if answer is UNKNOWN else answer
    if set(taken) <= set(state.left) and all(
        one in taken or one[0] < state.chosen or not (order == "strict" or _fits(one, body))
        for offset, body in taken
        for one in state.left
        if one[0] < offset
    ):
        yield state


def _fits(one: tuple[int, str], body: str) -> bool:
    return _key(one[1]) == _key(body)


def after_finish(state: State, answer: Any, *offsets: int) -> Iterator[State]:
    if answer is not True:
        yield state
    if answer is not False:
        yield state._replace(done=state.done | set(offsets))


def renew(spool: Spool, *offsets: int) -> bool:
    try:
        spool.log(LOG).channel(CHANNEL).renew(*offsets, visibility=HOLD_S)
    except (NotInFlight, ClaimVoid):
        return False
    return True


def bury(spool: Spool, *offsets: int) -> bool:
    try:
        spool.log(LOG).channel(CHANNEL).bury(*offsets)
    except (NotInFlight, ClaimVoid):
        return False
    return True


def after_bury(state: State, answer: Any, *offsets: int) -> Iterator[State]:
    """Each message in turn becomes a dead letter and is then acknowledged."""
    if answer is not True:
        yield state
    if answer is not False:
        for offset in offsets:
            letter = set(state.bodies[offset : offset + 1])
            state = state._replace(dead=state.dead | letter)
            if answer is UNKNOWN:
                yield state
            state = state._replace(done=state.done | {offset})
            if answer is UNKNOWN:
                yield state
        if answer is True:
            yield state


def seek(spool: Spool, to: int) -> int:
    return spool.log(LOG).channel(CHANNEL).seek(to)


def after_seek(state: State, answer: Any, to: int) -> Iterator[State]:
    if answer is UNKNOWN:
        yield state
    for first in range(state.through + 1):
        at = min(max(to, first), len(state.bodies))
        if answer is UNKNOWN or answer == at:
            yield state._replace(done=frozenset(range(at)), chosen=state.through)


def retain(spool: Spool) -> None:
    """Remove acknowledged messages of any age."""
    spool.log(LOG).configure(retain_for=0.0)


def after_retain(state: State, answer: Any) -> Iterator[State]:
    if answer is UNKNOWN:
        yield state
    yield state._replace(retains=True)


def after_read(state: State, answer: Any) -> Iterator[State]:
    there = tuple(enumerate(state.bodies))
    if answer is UNKNOWN or any(answer == there[first:] for first in range(state.through + 1)):
        yield state


def after_drain(state: State, answer: Any) -> Iterator[State]:
    """All unacknowledged messages, except some that retention may have removed."""
    done = frozenset(range(len(state.bodies)))
    for missing in range(1 + sum(offset < state.chosen for offset, _ in state.left)):
        if answer is UNKNOWN or answer == state.left[missing:]:
            yield state._replace(done=done, missing=state.missing + missing)


def after_lost(state: State, answer: Any) -> Iterator[State]:
    """The channel counts its losses."""
    if answer is UNKNOWN or (answer >= state.missing and (not answer or state.chosen)):
        yield state


def letters(spool: Spool) -> tuple[str, ...]:
    spool.deliver()
    found = spool.queue(DEAD).peek(100)
    return tuple(sorted(message.body.decode().rstrip(".") for message in found))


def after_letters(state: State, answer: Any) -> Iterator[State]:
    if answer is UNKNOWN or answer == tuple(sorted(state.dead)):
        yield state


def create(spool: Spool, order: Order) -> None:
    spool.log(LOG).create(segment_bytes=SEGMENT, retain_for=_KEPT_S)
    spool.log(LOG).channel(CHANNEL).create(
        "first", order=order, dead_letter_queue=DEAD, max_lag=None
    )


def create_anew(spool: Spool, order: Order) -> None:
    with suppress(NoSuchLog):
        spool.log(LOG).delete()
    create(spool, order)


def after_create_anew(state: State, answer: Any) -> Iterator[State]:
    yield State((), dead=state.dead)
    if answer is UNKNOWN:
        yield state


def _taking(verb: str) -> Any:
    def action(program: Actor) -> None:
        if found := program.ask("take", 2):
            program.ask(verb, *(offset for offset, _ in found))

    return action


def _renew(program: Actor) -> None:
    if found := program.ask("take", 2):
        offsets = [offset for offset, _ in found]
        program.ask("renew", *offsets)
        program.ask("finish", *offsets)


def set_up(spool: Spool, order: Order) -> None:
    """Two segments, the first of which is acknowledged."""
    create(spool, order)
    publish(spool, *(body.ljust(SEGMENT // 2, ".") for body in _BODIES[:2]))
    publish(spool, *_BODIES[2:])
    channel = spool.log(LOG).channel(CHANNEL)
    channel.claim(5)
    channel.ack(0, 1)
    channel.release(2, 3, 4)


def inspect(program: Actor) -> None:
    for verb in ("tend", "read", "drain", "letters", "lost"):
        program.ask(verb)


STRICT = Story(
    name="strict channels",
    first=State(_BODIES, frozenset({0, 1})),
    verbs={
        "publish": Verb(publish, after_publish),
        "read": Verb(logs.read, after_read),
        "take": Verb(logs.take, partial(after_take, order="strict")),
        "finish": Verb(logs.finish, after_finish),
        "release": Verb(logs.release, lambda state, answer, *of: [state]),
        "renew": Verb(renew, lambda state, answer, *of: [state]),
        "bury": Verb(bury, after_bury),
        "seek": Verb(seek, after_seek),
        "retain": Verb(retain, after_retain),
        "tend": Verb(logs.tend, lambda state, answer: [state]),
        "drain": Verb(logs.drain, after_drain),
        "letters": Verb(letters, after_letters),
        "lost": Verb(logs.lost, after_lost),
        "create anew": Verb(partial(create_anew, order="strict"), after_create_anew),
    },
    actions={
        "publish": lambda p: p.ask("publish", p.new()),
        "hold": lambda p: p.ask("take", 2),
        "consume": _taking("finish"),
        "release": _taking("release"),
        "renew": _renew,
        "bury": _taking("bury"),
        "seek": lambda p: p.ask("seek", 1),
        "retain": lambda p: (p.ask("retain"), p.ask("tend")),
        "create anew": lambda p: p.ask("create anew"),
    },
    acts=("renew", "bury", "seek", "retain"),
    others=("publish", "hold", "consume", "bury", "seek", "retain"),
    behind=("seek",),
    returns=("create anew", "a library starts", "publish"),
    anew="create anew",
    sync="fdatasync",
    clocks=("renew", "bury", "seek", "retain"),
    passes_s=(100.0, 100.0),
    set_up=partial(set_up, order="strict"),
    inspect=inspect,
)

KEYED = replace(
    STRICT,
    name="channels by key",
    verbs={
        **STRICT.verbs,
        "take": Verb(logs.take, partial(after_take, order="key")),
        "create anew": Verb(partial(create_anew, order="key"), after_create_anew),
    },
    set_up=partial(set_up, order="key"),
)
