"""Health: is a spool well, and what should be changed? For ``fsmq doctor`` on a folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from fsmq.words import many, span

from ..context import Context
from ..layout.settings import SETTINGS, QueueSettings
from ..layout.settings_store import MEMBERS
from ..layout.transitions import QUEUES
from ..records import peers
from ..records.alive import find_alive, have_run
from ..schedules.schedule_files import ScheduleFiles
from ..schedules.schedule_settings import ScheduleState
from ..views.counts import Lag, Overview, measure_lag, survey
from . import probe
from .finding import Level

# A mover takes milliseconds; whatever waits longer than this is stuck.
_STILL_S = 5.0
_PATIENCE_S = 3.0
_MANY_DELIVERIES = 10
_NEARLY_FULL = 0.9
_ALONE = " (which is well where only the library and this command use the spool)"
_WAS_THERE = ", and it has run on this spool"
_NAMED = 5  # queues that one finding names


# The tolerance of hosts' clocks, on which deadlines depend.
_CLOCK_S = 1.0
_CLOCK_SHARE = 0.1


class Health(Enum):
    """How bad a finding is; the value is what users see."""

    OK = "ok"
    NOTE = "note"  # worth knowing; the exit code stays 0
    WARNING = "warning"
    ERROR = "error"

    @property
    def code(self) -> int:
        """The exit code if there is no worse finding."""
        return {"warning": 1, "error": 2}.get(self.value, 0)


_LEVELS = {Level.OK: Health.OK, Level.WARNING: Health.WARNING, Level.FATAL: Health.ERROR}


class Finding(NamedTuple):
    """One thing that was examined. ``advice``: what to do, if anything."""

    name: str
    health: Health
    text: str
    advice: str = ""


def examine(context: Context, where: str) -> Iterator[Finding]:
    """Examine the spool of a folder; ``where``: its name in advice.

    It gives mover and reaper something to do, and waits up to 3 s for them. Raises OSError.
    """
    for found in probe(context.tree):
        is_full = found.passing and found.level is Level.WARNING
        health = Health.ERROR if is_full else _LEVELS[found.level]
        yield Finding(found.name, health, found.text)
    lag = measure_lag(context)
    yield from _programs(context, where, lag)
    yield from _standing_still(lag)
    yield from _unreadable(context)
    overviews = survey(context)
    settings = {name: context.settings.get(name) for name in overviews}
    yield from _clocks(context, settings)
    yield from of_queues(overviews, settings, lag.redelivered)


def of_schedules(states: Iterable[ScheduleState]) -> Iterator[Finding]:
    """What is wrong with schedules."""
    for state in states:
        if state.problem is not None:
            text = f"{state.name} puts nothing: {state.problem}"
            advice = f"look at it: fsmq schedule show {state.name}"
            yield Finding("schedules", Health.WARNING, text, advice)


def _clocks(context: Context, settings: Mapping[str, QueueSettings]) -> Iterator[Finding]:
    shortest = min((s.visibility_timeout for s in settings.values()), default=30.0)
    for beat in peers.beats(context.tree):
        if not beat.is_alive or beat.clock is None or abs(beat.clock) <= _CLOCK_S:
            continue
        is_bad = abs(beat.clock) > _CLOCK_SHARE * shortest
        text = f"the clock of {beat.node} is {span(abs(beat.clock))} apart from the filesystem's"
        health = Health.ERROR if is_bad else Health.WARNING
        yield Finding("clock", health, text, "run a time service on all hosts")


def _programs(context: Context, where: str, lag: Lag) -> Iterator[Finding]:
    start = f"start it: fsmq up --root {where}, or the programs on their own"
    try:
        alive = find_alive(context.tree, _PATIENCE_S)
    except OSError as error:
        text = f"mover and reaper cannot be tested: {error.strerror}"
        yield Finding("programs", Health.ERROR, text, "see the findings above about the disk")
        return
    were = have_run(context.tree)
    if alive.nodes:
        yield Finding("mq", Health.OK, f"runs on {', '.join(alive.nodes)}")
    else:
        text = f"no mq has reported for 20 s: nobody answers HTTP{_remark('mq' in were)}"
        yield Finding("mq", _missing("mq" in were), text, start)
    if alive.mover is not None:
        yield Finding("mover", Health.OK, f"answered after {1000 * alive.mover:.0f} ms")
    else:
        was_there = bool(were & {"mq", "mover"})  # mq does not work without a mover
        text = f"no answer within 3 s: nobody delivers messages or ends claims{_remark(was_there)}"
        stands = max(lag.undelivered, lag.late) > _STILL_S
        yield Finding("mover", _missing(was_there or stands), text, start)
        if names := ScheduleFiles(context).names():
            text = f"no mover puts the messages of {many(len(names), 'schedule')}"
            yield Finding("schedules", Health.WARNING, text, start)
    removed = f"{many(lag.removed, 'removed file')} to be unlinked"
    if alive.reaper is not None:
        yield Finding(
            "reaper", Health.OK, f"answered after {1000 * alive.reaper:.0f} ms; {removed}"
        )
    else:
        text = f"no answer within 3 s: removed messages keep using disk space; {removed}"
        health = _missing("reaper" in were)
        if health is Health.NOTE and (were or lag.removed):
            health = Health.WARNING
        yield Finding("reaper", health, text, start)


def _missing(is_wanted: bool) -> Health:
    """How bad it is that a program does not answer."""
    return Health.ERROR if is_wanted else Health.NOTE


def _remark(was_there: bool) -> str:
    return _WAS_THERE if was_there else _ALONE


def _standing_still(lag: Lag) -> Iterator[Finding]:
    see = "see the log of mq-mover, and fsmq fsck"
    if lag.undelivered > _STILL_S:
        text = f"a message has been in new/ for {span(lag.undelivered)}"
        yield Finding("delivery", Health.ERROR, text, see)
    if lag.late > _STILL_S:
        text = f"a message in delay/ is late by {span(lag.late)}"
        yield Finding("timers", Health.ERROR, text, see)
    for queue, count in sorted(lag.undeliverable.items()):
        text = f"{many(count, 'message')} wait for the queue {queue}, which does not exist"
        yield Finding("undeliverable", Health.WARNING, text, f"fsmq queue create {queue}")


def _unreadable(context: Context) -> Iterator[Finding]:
    store, tree = context.settings, context.tree
    for queue in tree.queues():
        folder = tree.folder(QUEUES, queue)
        try:
            os.close(tree.open_folder(folder))
        except FileNotFoundError:
            continue  # just deleted
        except OSError as error:
            text = f"the folder of {queue} cannot be read: {error.strerror}"
            advice = f"check the owner and the mode of {tree.root / folder}"
            yield Finding("unreadable", Health.ERROR, text, advice)
        file = tree.root / store.path(queue)
        problem = store.problem(queue)
        if problem is not None:
            text = f"the settings of {queue} cannot be parsed: {problem}"
            yield Finding("settings", Health.ERROR, text, f"mend {file}")
        elif unknown := store.document(queue).keys() - SETTINGS.keys() - set(MEMBERS):
            text = (
                f"settings of {queue} that this version does not know: {', '.join(sorted(unknown))}"
            )
            yield Finding("settings", Health.NOTE, text, f"see {file}")


def of_queues(
    overviews: Mapping[str, Overview],
    settings: Mapping[str, QueueSettings],
    redelivered: Mapping[str, int],
) -> Iterator[Finding]:
    """Findings about queues, from their counts, settings and the most deliveries of a message."""
    total = sum(overview.counts.total for overview in overviews.values())
    text = f"{many(len(overviews), 'queue')} with {many(total, 'message')}"
    yield Finding("queues", Health.OK, text)
    graves = {s.dead_letter_queue for s in settings.values()} - {None}
    for name, overview in overviews.items():
        yield from _bites(name, settings[name], overview)
        if name in graves and overview.counts.total:
            text = f"{many(overview.counts.total, 'dead letter')} in {name}"
            advice = f"look at them: fsmq peek {name}; bring them back: fsmq redrive {name}"
            yield Finding("dead letters", Health.WARNING, text, advice)
        if (
            settings[name].dead_letter_queue is None
            and redelivered.get(name, 0) >= _MANY_DELIVERIES
        ):
            text = f"a message of {name} has been delivered {redelivered[name]} times"
            yield Finding("dead letters", Health.WARNING, text, _bury_advice(name))
    endless = [
        name for name, s in settings.items() if s.dead_letter_queue is None and name not in graves
    ]
    if endless:
        more = f" and {len(endless) - _NAMED} more" if len(endless) > _NAMED else ""
        text = f"a message that always fails returns forever in {', '.join(endless[:_NAMED])}"
        yield Finding("dead letters", Health.NOTE, text + more, _bury_advice(endless[0]))


def _bury_advice(queue: str) -> str:
    return f"fsmq queue config {queue} max_deliveries=5 dead_letter_queue={queue}.dead"


def _limits(name: str, settings: QueueSettings, in_flight: int) -> Iterator[Finding]:
    """Limits that hold back ready messages."""
    most, rate = settings.max_in_flight, settings.max_rate
    if most is not None and in_flight >= most:
        text = f"{name} has {in_flight:,} of {most:,} in flight: others wait for one to end"
        yield Finding("limits", Health.NOTE, text, f"fsmq queue config {name} max_in_flight=none")
    if rate is not None:
        text = f"{name} gives out {rate:g} messages a second, and no more"
        yield Finding("limits", Health.NOTE, text, f"fsmq queue config {name} max_rate=none")


def _bites(name: str, settings: QueueSettings, overview: Overview) -> Iterator[Finding]:
    if overview.paused is not None:
        until = "" if overview.paused is True else f" until {overview.paused}"
        text = f"{name} is paused{until}: nothing is claimed from it"
        yield Finding("paused", Health.NOTE, text, f"fsmq queue resume {name}")
    if overview.counts.ready and settings.paused is None:
        yield from _limits(name, settings, overview.counts.in_flight)
    limit = settings.max_depth
    if limit is not None and overview.counts.total >= _NEARLY_FULL * limit:
        text = f"{name} holds {overview.counts.total:,} of {limit:,} messages: puts will be refused"
        yield Finding("depth", Health.WARNING, text, "more workers, or a greater max_depth")
    if settings.visibility_timeout < 1:
        text = f"claims of {name} last {settings.visibility_timeout:g} s: work may take longer"
        advice = f"fsmq queue config {name} visibility_timeout=30s"
        yield Finding("visibility", Health.WARNING, text, advice)
    if settings.retention is not None and settings.retention <= settings.default_delay:
        text = f"messages of {name} expire before their default_delay is over"
        yield Finding(
            "retention", Health.WARNING, text, f"fsmq queue config {name} default_delay=0"
        )
