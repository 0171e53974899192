"""Logs of one host and of many, and a channel: offsets mean one message, done stays done."""

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
from tests.stories.story import UNKNOWN, Asking, Story, Verb

LOG, CHANNEL = "users", "mailer"
HOLD_S = 20.0
SEGMENT = 4096
_KEPT_S = 10 * 366 * 86_400.0
_REMEMBERED_S = 7 * 86_400.0  # an id: longer than any story takes


class Stands(NamedTuple):
    """bodies: by their offsets. ids: the offset of each id that was published. done: offsets."""

    bodies: tuple[str, ...]
    ids: tuple[tuple[str, int], ...] = ()
    done: frozenset[int] = frozenset()


def publish(spool: Spool, *bodies: str) -> int:
    return spool.log(LOG).publish_many(bodies).start


def publish_long(spool: Spool, body: str) -> int:
    return publish(spool, body.ljust(SEGMENT // 2, "."))


def _body(message: LogMessage | ChannelMessage) -> str:
    return message.body.decode().rstrip(".")


def means_publish(stands: Stands, answer: Any, *bodies: str) -> Iterator[Stands]:
    if answer is UNKNOWN:
        yield stands
    if answer is UNKNOWN or answer == len(stands.bodies):
        yield stands._replace(bodies=stands.bodies + bodies)


def publish_once(spool: Spool, one: str) -> int:
    return spool.log(LOG).publish_many([LogEntry(one, id=one)]).start


def means_publish_once(stands: Stands, answer: Any, one: str) -> Iterator[Stands]:
    known = dict(stands.ids).get(one)
    if answer is UNKNOWN or (known is not None and known == answer):
        yield stands
    if known is None:
        for after in means_publish(stands, answer, one):
            if after != stands:
                yield after._replace(ids=(*stands.ids, (one, len(stands.bodies))))


def means_publish_again(stands: Stands, answer: Any, one: str) -> Iterator[Stands]:
    """Its id may be known still, or forgotten: it is an offset that it got once, or is new."""
    if answer is UNKNOWN or stands.bodies[answer : answer + 1] == (one,):
        yield stands
    for after in means_publish(stands, answer, one):
        if after != stands:
            yield after._replace(ids=(*stands.ids, (one, len(stands.bodies))))


def read(spool: Spool) -> tuple[tuple[int, str], ...]:
    return tuple((m.offset, _body(m)) for m in spool.log(LOG).read("first"))


def means_read(stands: Stands, answer: Any) -> Iterator[Stands]:
    if answer is UNKNOWN or answer == tuple(enumerate(stands.bodies)):
        yield stands


def take(spool: Spool, most: int) -> tuple[tuple[int, str], ...]:
    claimed = spool.log(LOG).channel(CHANNEL).claim(most, visibility=HOLD_S)
    return tuple((m.offset, _body(m)) for m in claimed)


def means_take(stands: Stands, answer: Any, most: int) -> Iterator[Stands]:
    """What is there and not done; anything else may be in somebody's hands."""
    if answer is UNKNOWN or all(
        stands.bodies[o : o + 1] == (body,) and o not in stands.done for o, body in answer
    ):
        yield stands


def finish(spool: Spool, *offsets: int) -> bool:
    try:
        spool.log(LOG).channel(CHANNEL).ack(*offsets)
    except (NotInFlight, ClaimVoid):
        return False
    return True


def means_finish(stands: Stands, answer: Any, *offsets: int) -> Iterator[Stands]:
    if answer is not True:
        yield stands
    if answer is not False:
        yield stands._replace(done=stands.done | set(offsets))


def release(spool: Spool, *offsets: int) -> bool:
    try:
        spool.log(LOG).channel(CHANNEL).release(*offsets)
    except (NotInFlight, ClaimVoid):
        return False
    return True


def drain(spool: Spool) -> tuple[tuple[int, str], ...]:
    """All that is not done."""
    channel, found = spool.log(LOG).channel(CHANNEL), []
    while messages := channel.claim(100, visibility=HOLD_S):
        found += [(m.offset, _body(m)) for m in messages]
        channel.ack(*messages)
    return tuple(sorted(found))


def means_drain(stands: Stands, answer: Any) -> Iterator[Stands]:
    left = tuple((o, body) for o, body in enumerate(stands.bodies) if o not in stands.done)
    if answer is UNKNOWN or answer == left:
        yield stands._replace(done=frozenset(range(len(stands.bodies))))


def lost(spool: Spool) -> int:
    return spool.log(LOG).channel(CHANNEL).state().lost


def tend(spool: Spool) -> None:
    spool.tend_logs()


def _consume(program: Asking) -> None:
    if found := program.ask("take", 2):
        program.ask("finish", *(offset for offset, _ in found))


def _publish_much(program: Asking) -> None:
    """So much that a new segment begins."""
    for _ in range(3):
        program.ask("publish long", program.new())


def _release(program: Asking) -> None:
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


def means_create_anew(stands: Stands, answer: Any) -> Iterator[Stands]:
    yield Stands(())
    if answer is UNKNOWN:
        yield stands


def lay(spool: Spool, writers: str) -> None:
    create(spool, writers)
    log = spool.log(LOG)
    log.publish_many(["m0", "m1", "m2"])
    log.publish_many(["m3", "m4", "m5"])
    channel = log.channel(CHANNEL)
    channel.claim(6)
    channel.ack(0, 3)
    channel.release(1, 2, 4, 5)


def look(program: Asking) -> None:
    program.ask("read")
    program.ask("publish", program.new())
    program.ask("read")
    program.ask("drain")
    program.ask("lost")


LOGS = Story(
    name="logs of one host",
    first=Stands(("m0", "m1", "m2", "m3", "m4", "m5"), done=frozenset({0, 3})),
    verbs={
        "publish": Verb(publish, means_publish),
        "publish long": Verb(publish_long, means_publish),
        "publish once": Verb(publish_once, means_publish_once),
        "publish again": Verb(publish_once, means_publish_again),
        "read": Verb(read, means_read),
        "take": Verb(take, means_take),
        "finish": Verb(finish, means_finish),
        "release": Verb(release, lambda stands, answer, *of: [stands]),
        "drain": Verb(drain, means_drain),
        "lost": Verb(lost, lambda stands, answer: [stands] if not answer else []),
        "tend": Verb(tend, lambda stands, answer: [stands]),
        "create anew": Verb(partial(create_anew, writers="host"), means_create_anew),
    },
    deeds={
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
    lay=partial(lay, writers="host"),
    look=look,
)

LOGS_OF_HOSTS = replace(
    LOGS,
    name="logs of many hosts",
    verbs={
        **LOGS.verbs,
        "create anew": Verb(partial(create_anew, writers="hosts"), means_create_anew),
    },
    lay=partial(lay, writers="hosts"),
)
