"""``fsmq doctor``: is this spool well, and what should be changed?"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from http import HTTPStatus
from typing import NamedTuple

import click

from fsmq.cli import output
from fsmq.cli.output import json_option, span
from fsmq.cli.place.place import Place, Root, at_option, is_default, open_place
from fsmq.cli.place.server import Server
from fsmq.spool import QueueSettings
from fsmq.spool.fsck import printable
from fsmq.spool.probe import Level, cleaned_at_boot, probe
from fsmq.spool.records.alive import look
from fsmq.spool.views.counts import Lag, Overview, measure_lag
from fsmq.words import many

# A mover takes milliseconds; whatever waits longer than this stands still.
_STILL_S = 5.0
_PATIENCE_S = 3.0
_MANY_DELIVERIES = 10
_NEARLY_FULL = 0.9
_ALONE = " (which is well where only the library and this command use the spool)"
_NAMED = 5  # queues that one finding names


class Health(Enum):
    """How bad a finding is; the value is what users see."""

    OK = "ok"
    NOTE = "note"  # worth knowing; the exit code stays 0
    WARNING = "warning"
    ERROR = "error"

    @property
    def code(self) -> int:
        """The exit code of a doctor who finds nothing worse."""
        return {"warning": 1, "error": 2}.get(self.value, 0)


_COLOURS = {
    Health.OK: "green",
    Health.NOTE: "cyan",
    Health.WARNING: "yellow",
    Health.ERROR: "red",
}
_LEVELS = {Level.OK: Health.OK, Level.WARNING: Health.WARNING, Level.FATAL: Health.ERROR}


class Finding(NamedTuple):
    """One thing that was looked at. ``advice``: what to do, where something is to be done."""

    name: str
    health: Health
    text: str
    advice: str = ""


@click.command("doctor")
@at_option
@json_option
def doctor(at: str | None, as_json: bool) -> None:
    """Check the health of a spool, and say what to change.

    On a FOLDER it checks the filesystem as fsmq probe does, and tests whether a mover and a reaper
    are running by giving each something to do; that takes up to 3 s. It looks for messages that are
    not delivered, queues that are nearly full, and settings that cause trouble. On a URL it checks
    what the server reports.

    Harmless at any time. Exits with 0 if all is well, 1 if there are warnings, 2 if there are
    errors; 69 if the server cannot be reached, 78 if the folder is not a spool.
    """
    with open_place(at) as place:
        findings = [*_place(place, is_default(at)), *_findings(place)]
    worst = max((finding.health for finding in findings), key=lambda health: health.code)
    if as_json:
        listed = [{**f._asdict(), "health": f.health.value} for f in findings]
        output.document({"at": place.where, "healthy": worst.code == 0, "findings": listed})
    else:
        _show(findings)
    sys.exit(worst.code)


def _place(place: Place, nobody_chose: bool) -> Iterator[Finding]:
    cleaned = cleaned_at_boot(place.path) if isinstance(place, Root) and nobody_chose else None
    if cleaned is not None:
        text = f"{place.where} may be empty after the next boot: many systems empty {cleaned} then"
        yield Finding("root", Health.WARNING, text, "give the programs one: --root=/var/lib/fsmq")


def _findings(place: Place) -> Iterator[Finding]:
    redelivered: Mapping[str, int] = {}
    if isinstance(place, Root):
        for found in probe(place.path):
            yield Finding(found.name, _LEVELS[found.level], found.text)
        lag = measure_lag(place.context)
        yield from _programs(place, lag)
        yield from _standing_still(lag)
        yield from _unreadable(place)
        redelivered = lag.redelivered
    else:
        yield from _health(place)
    overviews = place.survey()
    settings = {name: place.queue(name).settings() for name in overviews}
    yield from _queues(overviews, settings, redelivered)
    yield from _schedules(place)


def _schedules(place: Place) -> Iterator[Finding]:
    for state in place.schedules():
        if state.problem is not None:
            text = f"{state.name} puts nothing: {state.problem}"
            advice = f"look at it: fsmq schedule show {state.name}"
            yield Finding("schedules", Health.WARNING, text, advice)


def _health(server: Server) -> Iterator[Finding]:
    server.queues()  # raises what stands against it
    yield Finding("mq", Health.OK, f"{server.where} answers")
    status, body = server.page("/_health/ready")
    if status == HTTPStatus.OK:
        yield Finding("ready", Health.OK, "messages can be stored and will be delivered")
    elif status == HTTPStatus.SERVICE_UNAVAILABLE:
        text = f"it reports that it is not ready: {_detail(body)}"
        yield Finding("ready", Health.ERROR, text, "see the log of mq")
    text = "filesystem, mover and reaper can only be checked on the folder"
    yield Finding("folder", Health.NOTE, text, "on the server's host: fsmq doctor --at FOLDER")


def _detail(problem: bytes) -> str:
    try:
        return str(json.loads(problem)["detail"])
    except (ValueError, TypeError, LookupError):
        return "without a reason"


def _programs(root: Root, lag: Lag) -> Iterator[Finding]:
    start = f"start it: fsmq up --root {root.where}, or the programs on their own"
    try:
        alive = look(root.tree, _PATIENCE_S)
    except OSError as error:
        text = f"mover and reaper cannot be tested: {error.strerror}"
        yield Finding("programs", Health.ERROR, text, "see the findings above about the disk")
        return
    if alive.nodes:
        yield Finding("mq", Health.OK, f"runs on {', '.join(alive.nodes)}")
    else:
        text = f"no mq has reported for 20 s: nobody answers HTTP{_ALONE}"
        yield Finding("mq", Health.WARNING, text, start)
    if alive.mover is not None:
        yield Finding("mover", Health.OK, f"answered after {1000 * alive.mover:.0f} ms")
    else:
        text = f"no answer within 3 s: nobody delivers messages or ends claims{_ALONE}"
        stands = max(lag.undelivered, lag.late) > _STILL_S
        yield Finding("mover", Health.ERROR if stands else Health.WARNING, text, start)
    removed = f"{many(lag.removed, 'removed file')} to be unlinked"
    if alive.reaper is not None:
        yield Finding(
            "reaper", Health.OK, f"answered after {1000 * alive.reaper:.0f} ms; {removed}"
        )
    else:
        text = f"no answer within 3 s: removed messages keep using disk space; {removed}"
        yield Finding("reaper", Health.WARNING, text, start)


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
        yield Finding("undeliverable", Health.WARNING, text, f"fsmq create {queue}")


def _unreadable(root: Root) -> Iterator[Finding]:
    store = root.context.settings
    for queue in root.queues():
        problem = store.problem(queue)
        if problem is not None:
            text = f"the settings of {queue} cannot be parsed: {problem}"
            advice = f"mend {root.path / store.path(queue)}, or fsmq config {queue} SETTING=VALUE"
            yield Finding("settings", Health.ERROR, text, advice)
        elif unknown := store.unknown(queue):
            text = f"settings of {queue} that this version does not know: {', '.join(unknown)}"
            yield Finding("settings", Health.NOTE, text, f"see {root.path / store.path(queue)}")


def _queues(
    overviews: Mapping[str, Overview],
    settings: Mapping[str, QueueSettings],
    redelivered: Mapping[str, int],
) -> Iterator[Finding]:
    total = sum(overview.counts.total for overview in overviews.values())
    text = f"{many(len(overviews), 'queue')} with {many(total, 'message')}"
    yield Finding("queues", Health.OK, text)
    graves = {s.dead_letter_queue for s in settings.values()} - {None}
    for name, overview in overviews.items():
        yield from _bites(name, settings[name], overview)
        if name in graves and overview.counts.total:
            text = f"{many(overview.counts.total, 'dead letter')} in {name}"
            advice = f"look at them: fsmq peek {name}; another try: fsmq mv {name} QUEUE"
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
    return f"fsmq config {queue} max_deliveries=5 dead_letter_queue={queue}.dead"


def _bites(name: str, settings: QueueSettings, overview: Overview) -> Iterator[Finding]:
    if overview.paused is not None:
        until = "" if overview.paused is True else f" until {overview.paused}"
        text = f"{name} is paused{until}: nothing is claimed from it"
        yield Finding("paused", Health.NOTE, text, f"fsmq resume {name}")
    limit = settings.max_depth
    if limit is not None and overview.counts.total >= _NEARLY_FULL * limit:
        text = f"{name} holds {overview.counts.total:,} of {limit:,} messages: puts will be refused"
        yield Finding("depth", Health.WARNING, text, "more workers, or a greater max_depth")
    if settings.visibility_timeout < 1:
        text = f"claims of {name} last {settings.visibility_timeout:g} s: work may take longer"
        advice = f"fsmq config {name} visibility_timeout=30s"
        yield Finding("visibility", Health.WARNING, text, advice)
    if settings.retention is not None and settings.retention <= settings.default_delay:
        text = f"messages of {name} expire before their default_delay is over"
        yield Finding("retention", Health.WARNING, text, f"fsmq config {name} default_delay=0")


def _show(findings: list[Finding]) -> None:
    for finding in findings:
        health = click.style(f"{finding.health.value:8}", fg=_COLOURS[finding.health])
        click.echo(f"{health} {finding.name}: {printable(finding.text)}")
        if finding.advice:
            click.echo(f"         → {printable(finding.advice)}")
