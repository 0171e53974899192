"""Schedules: each moment has one message, whoever puts it, and whatever is changed meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from fsmq.spool import Spool
from fsmq.spool.errors import NoSuchSchedule
from tests.stories.story import UNKNOWN, Asking, Story, Verb

JOBS, NAME = "jobs", "nightly"
EVERY_S = 600
_DUE = 2  # moments that have come when the story begins


class Stands(NamedTuple):
    """The schedule, and the moments whose messages were consumed; they come in their order.

    is_unsure: some of others may have been consumed, too, and nobody was told.
    """

    is_there: bool = True
    paused: bool = False
    put: frozenset[int] = frozenset()
    is_unsure: bool = False


def define(spool: Spool) -> None:
    spool.schedule(NAME).define(f"*/{EVERY_S // 60} * * * *", JOBS, "due", catch_up="all")


def pause(spool: Spool) -> bool:
    try:
        spool.schedule(NAME).configure(paused=True)
    except NoSuchSchedule:
        return False
    return True


def delete(spool: Spool) -> bool:
    try:
        spool.schedule(NAME).delete()
    except NoSuchSchedule:
        return False
    return True


def _changed(stands: Stands, answer: Any, after: Stands, is_made: bool) -> Iterator[Stands]:
    """It changes what is there, or is told that nothing is."""
    if answer is UNKNOWN or (answer is False and not stands.is_there):
        yield stands
    if answer is not False and (stands.is_there or is_made):
        yield after


def consume(spool: Spool) -> tuple[int, ...]:
    """The moments of the messages that come out and are acknowledged in time.

    A program that begins, delivers and lists: what others have just put comes out, too.
    """
    with Spool(spool.tree.root, sync="fsync", workers=1, watch="poll", clock=time.time) as anew:
        anew.deliver()
        found = anew.queue(JOBS).claim(100)
        told = anew.queue(JOBS).ack_each([m.id for m in found], [m.claim or "" for m in found])
    return tuple(
        round(message.created_at or 0) // EVERY_S
        for message, what in zip(found, told, strict=True)
        if what == "removed"
    )


def means_consume(stands: Stands, answer: Any) -> Iterator[Stands]:
    """No moment comes twice."""
    if answer is UNKNOWN:
        yield stands
        yield stands._replace(is_unsure=True)
    elif len(set(answer)) == len(answer) and not stands.put & set(answer):
        yield stands._replace(put=stands.put | set(answer))


def look(spool: Spool) -> tuple[bool, bool]:
    with suppress(NoSuchSchedule):
        return True, bool((state := spool.schedule(NAME).state().settings) and state.paused)
    return False, False


def means_look(stands: Stands, answer: Any) -> Iterator[Stands]:
    """Whether a moment is missing is told by the last ones that have come."""
    moments = sorted(stands.put)
    has_all = not moments or moments == list(range(moments[0], moments[-1] + 1))
    if answer is UNKNOWN or (answer == stands[:2] and (has_all or stands.is_unsure)):
        yield stands


def lay(spool: Spool) -> None:
    spool.create_queue(JOBS)
    define(spool)


def last_look(program: Asking) -> None:
    program.ask("run")
    program.ask("consume")
    program.ask("look")


SCHEDULES = Story(
    name="schedules",
    first=Stands(),
    verbs={
        "run": Verb(lambda spool: spool.run_schedules(), lambda stands, answer: [stands]),
        "define": Verb(
            define,
            lambda s, answer: _changed(s, answer, s._replace(is_there=True, paused=False), True),
        ),
        "pause": Verb(pause, lambda s, answer: _changed(s, answer, s._replace(paused=True), False)),
        "delete": Verb(
            delete,
            lambda s, answer: _changed(s, answer, s._replace(is_there=False, paused=False), False),
        ),
        "consume": Verb(consume, means_consume),
        "look": Verb(look, means_look),
    },
    deeds={
        "run": lambda p: p.ask("run"),
        "define": lambda p: p.ask("define"),
        "pause": lambda p: p.ask("pause"),
        "delete": lambda p: p.ask("delete"),
        "run and consume": lambda p: (p.ask("run"), p.ask("consume")),
    },
    acts=("run", "define", "pause", "delete"),
    others=("run and consume", "define", "pause", "delete"),
    clocks=("run", "run and consume", "pause", "delete"),
    off_s=3 * 3600.0,  # of a year there would be too many moments
    set_right=("run", "run and consume", "pause", "delete"),
    behind=("run and consume",),
    returns=("delete", "a library starts", "define"),
    passes_s=(float(EVERY_S), float(EVERY_S)),
    begins_s=_DUE * float(EVERY_S),
    lay=lay,
    look=last_look,
)
