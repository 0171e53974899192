"""Schedules: each scheduled time has one message, whoever puts it and whatever changes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from fsmq.spool import Spool
from fsmq.spool.errors import NoSuchSchedule
from tests.stories.story import UNKNOWN, Actor, Story, Verb

JOBS, NAME = "jobs", "nightly"
EVERY_S = 600
_DUE = 2  # due times when the story begins


class State(NamedTuple):
    """The schedule, and the scheduled times whose messages were consumed, in order.

    is_unsure: messages of other times may have been consumed without an answer.
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


def _changed(state: State, answer: Any, after: State, is_made: bool) -> Iterator[State]:
    """The schedule is changed, or the answer is that it does not exist."""
    if answer is UNKNOWN or (answer is False and not state.is_there):
        yield state
    if answer is not False and (state.is_there or is_made):
        yield after


def consume(spool: Spool) -> tuple[int, ...]:
    """Consume messages with a new program, which sees the latest ones; their scheduled times."""
    with Spool(spool.tree.root, sync="fsync", workers=1, watch="poll", clock=time.time) as anew:
        anew.deliver()
        found = anew.queue(JOBS).claim(100)
        results = anew.queue(JOBS).ack_each([m.id for m in found], [m.claim or "" for m in found])
    return tuple(
        round(message.created_at or 0) // EVERY_S
        for message, result in zip(found, results, strict=True)
        if result == "removed"
    )


def after_consume(state: State, answer: Any) -> Iterator[State]:
    """No scheduled time has two messages."""
    if answer is UNKNOWN:
        yield state
        yield state._replace(is_unsure=True)
    elif len(set(answer)) == len(answer) and not state.put & set(answer):
        yield state._replace(put=state.put | set(answer))


def inspect(spool: Spool) -> tuple[bool, bool]:
    with suppress(NoSuchSchedule):
        return True, bool((state := spool.schedule(NAME).state().settings) and state.paused)
    return False, False


def after_inspect(state: State, answer: Any) -> Iterator[State]:
    """No time before the last consumed one may be missing."""
    moments = sorted(state.put)
    has_all = not moments or moments == list(range(moments[0], moments[-1] + 1))
    if answer is UNKNOWN or (answer == state[:2] and (has_all or state.is_unsure)):
        yield state


def set_up(spool: Spool) -> None:
    spool.create_queue(JOBS)
    define(spool)


def last_inspection(program: Actor) -> None:
    program.ask("run")
    program.ask("consume")
    program.ask("inspect")


SCHEDULES = Story(
    name="schedules",
    first=State(),
    verbs={
        "run": Verb(lambda spool: spool.run_schedules(), lambda state, answer: [state]),
        "define": Verb(
            define,
            lambda s, answer: _changed(s, answer, s._replace(is_there=True, paused=False), True),
        ),
        "pause": Verb(pause, lambda s, answer: _changed(s, answer, s._replace(paused=True), False)),
        "delete": Verb(
            delete,
            lambda s, answer: _changed(s, answer, s._replace(is_there=False, paused=False), False),
        ),
        "consume": Verb(consume, after_consume),
        "inspect": Verb(inspect, after_inspect),
    },
    actions={
        "run": lambda p: p.ask("run"),
        "define": lambda p: p.ask("define"),
        "pause": lambda p: p.ask("pause"),
        "delete": lambda p: p.ask("delete"),
        "run and consume": lambda p: (p.ask("run"), p.ask("consume")),
    },
    acts=("run", "define", "pause", "delete"),
    others=("run and consume", "define", "pause", "delete"),
    clocks=("run", "run and consume", "pause", "delete"),
    off_s=3 * 3600.0,  # a year would have too many times
    set_right=("run", "run and consume", "pause", "delete"),
    behind=("run and consume",),
    returns=("delete", "a library starts", "define"),
    passes_s=(float(EVERY_S), float(EVERY_S)),
    begins_s=_DUE * float(EVERY_S),
    set_up=set_up,
    inspect=last_inspection,
)
