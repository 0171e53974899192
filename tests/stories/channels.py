"""Channels that keep an order, of all or of a key: claimed, buried, sent back; and retention."""

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
from tests.stories.story import UNKNOWN, Asking, Story, Verb

DEAD = plain.DEAD
_KEPT_S = 10 * 366 * 86_400.0
_LAID = ("m0", "m1", "m2", "m3", "m4")


class Stands(NamedTuple):
    """bodies: by their offsets. done: offsets. dead: the letters. retains: what is done may go.

    chosen: so far all was done once: a retention that is under way may take that, whatever is
    sought behind its back, and the channel counts what it loses. missing: so many it has to count.
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
        """What may be the first offset of the log, or any one before it."""
        if not self.retains:
            return 0
        return max(self.chosen, min(self.left, default=(len(self.bodies), ""))[0])


def _key(body: str) -> str:
    """Who has published it."""
    return body[0]


def publish(spool: Spool, *bodies: str) -> int:
    return spool.log(LOG).publish_many([LogEntry(b, key=_key(b)) for b in bodies]).start


def means_publish(stands: Stands, answer: Any, *bodies: str) -> Iterator[Stands]:
    if answer is UNKNOWN:
        yield stands
    if answer is UNKNOWN or answer == len(stands.bodies):
        yield stands._replace(bodies=stands.bodies + bodies)


def means_take(stands: Stands, answer: Any, most: int, *, order: Order) -> Iterator[Stands]:
    """Whatever has to come before what is claimed is done or gone, or is claimed with it."""
    taken = () if answer is UNKNOWN else answer
    if set(taken) <= set(stands.left) and all(
        one in taken or one[0] < stands.chosen or not (order == "strict" or _fits(one, body))
        for offset, body in taken
        for one in stands.left
        if one[0] < offset
    ):
        yield stands


def _fits(one: tuple[int, str], body: str) -> bool:
    return _key(one[1]) == _key(body)


def means_finish(stands: Stands, answer: Any, *offsets: int) -> Iterator[Stands]:
    if answer is not True:
        yield stands
    if answer is not False:
        yield stands._replace(done=stands.done | set(offsets))


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


def means_bury(stands: Stands, answer: Any, *offsets: int) -> Iterator[Stands]:
    """One after the other: it is a dead letter, then it is done."""
    if answer is not True:
        yield stands
    if answer is not False:
        for offset in offsets:
            letter = set(stands.bodies[offset : offset + 1])
            stands = stands._replace(dead=stands.dead | letter)
            if answer is UNKNOWN:
                yield stands
            stands = stands._replace(done=stands.done | {offset})
            if answer is UNKNOWN:
                yield stands
        if answer is True:
            yield stands


def seek(spool: Spool, to: int) -> int:
    return spool.log(LOG).channel(CHANNEL).seek(to)


def means_seek(stands: Stands, answer: Any, to: int) -> Iterator[Stands]:
    if answer is UNKNOWN:
        yield stands
    for first in range(stands.through + 1):
        at = min(max(to, first), len(stands.bodies))
        if answer is UNKNOWN or answer == at:
            yield stands._replace(done=frozenset(range(at)), chosen=stands.through)


def retain(spool: Spool) -> None:
    """Keep nothing for its age alone."""
    spool.log(LOG).configure(retain_for=0.0)


def means_retain(stands: Stands, answer: Any) -> Iterator[Stands]:
    if answer is UNKNOWN:
        yield stands
    yield stands._replace(retains=True)


def means_read(stands: Stands, answer: Any) -> Iterator[Stands]:
    there = tuple(enumerate(stands.bodies))
    if answer is UNKNOWN or any(answer == there[first:] for first in range(stands.through + 1)):
        yield stands


def means_drain(stands: Stands, answer: Any) -> Iterator[Stands]:
    """All that is not done; what retention may have taken can be missing."""
    done = frozenset(range(len(stands.bodies)))
    for missing in range(1 + sum(offset < stands.chosen for offset, _ in stands.left)):
        if answer is UNKNOWN or answer == stands.left[missing:]:
            yield stands._replace(done=done, missing=stands.missing + missing)


def means_lost(stands: Stands, answer: Any) -> Iterator[Stands]:
    """It counts what it has lost, where it can have."""
    if answer is UNKNOWN or (answer >= stands.missing and (not answer or stands.chosen)):
        yield stands


def letters(spool: Spool) -> tuple[str, ...]:
    spool.deliver()
    found = spool.queue(DEAD).peek(100)
    return tuple(sorted(message.body.decode().rstrip(".") for message in found))


def means_letters(stands: Stands, answer: Any) -> Iterator[Stands]:
    if answer is UNKNOWN or answer == tuple(sorted(stands.dead)):
        yield stands


def create(spool: Spool, order: Order) -> None:
    spool.log(LOG).create(segment_bytes=SEGMENT, retain_for=_KEPT_S)
    spool.log(LOG).channel(CHANNEL).create(
        "first", order=order, dead_letter_queue=DEAD, max_lag=None
    )


def create_anew(spool: Spool, order: Order) -> None:
    with suppress(NoSuchLog):
        spool.log(LOG).delete()
    create(spool, order)


def means_create_anew(stands: Stands, answer: Any) -> Iterator[Stands]:
    yield Stands((), dead=stands.dead)
    if answer is UNKNOWN:
        yield stands


def _taking(verb: str) -> Any:
    def deed(program: Asking) -> None:
        if found := program.ask("take", 2):
            program.ask(verb, *(offset for offset, _ in found))

    return deed


def _renew(program: Asking) -> None:
    if found := program.ask("take", 2):
        offsets = [offset for offset, _ in found]
        program.ask("renew", *offsets)
        program.ask("finish", *offsets)


def lay(spool: Spool, order: Order) -> None:
    """Two segments, of the first of which all is done."""
    create(spool, order)
    publish(spool, *(body.ljust(SEGMENT // 2, ".") for body in _LAID[:2]))
    publish(spool, *_LAID[2:])
    channel = spool.log(LOG).channel(CHANNEL)
    channel.claim(5)
    channel.ack(0, 1)
    channel.release(2, 3, 4)


def look(program: Asking) -> None:
    for verb in ("tend", "read", "drain", "letters", "lost"):
        program.ask(verb)


STRICT = Story(
    name="strict channels",
    first=Stands(_LAID, frozenset({0, 1})),
    verbs={
        "publish": Verb(publish, means_publish),
        "read": Verb(logs.read, means_read),
        "take": Verb(logs.take, partial(means_take, order="strict")),
        "finish": Verb(logs.finish, means_finish),
        "release": Verb(logs.release, lambda stands, answer, *of: [stands]),
        "renew": Verb(renew, lambda stands, answer, *of: [stands]),
        "bury": Verb(bury, means_bury),
        "seek": Verb(seek, means_seek),
        "retain": Verb(retain, means_retain),
        "tend": Verb(logs.tend, lambda stands, answer: [stands]),
        "drain": Verb(logs.drain, means_drain),
        "letters": Verb(letters, means_letters),
        "lost": Verb(logs.lost, means_lost),
        "create anew": Verb(partial(create_anew, order="strict"), means_create_anew),
    },
    deeds={
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
    lay=partial(lay, order="strict"),
    look=look,
)

KEYED = replace(
    STRICT,
    name="channels by key",
    verbs={
        **STRICT.verbs,
        "take": Verb(logs.take, partial(means_take, order="key")),
        "create anew": Verb(partial(create_anew, order="key"), means_create_anew),
    },
    lay=partial(lay, order="key"),
)
