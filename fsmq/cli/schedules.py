"""Schedules: ``fsmq schedule``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fsmq.cli import output
from fsmq.cli.failures import report
from fsmq.cli.group import Fsmq
from fsmq.cli.messages.put import opened
from fsmq.cli.output import json_option
from fsmq.cli.params import (
    SCHEDULE,
    SPAN,
    attribute_option,
    attributes_of,
    body_bytes,
    body_option,
    content_type_option,
    priority_option,
    queue_argument,
    ttl_option,
)
from fsmq.cli.place.place import at_option, open_place
from fsmq.spool.fsck import printable
from fsmq.spool.schedules.schedule_settings import ScheduleState, shown

_VERBS = {
    "Schedules": {
        "add": "fsmq.cli.schedules:add",
        "ls": "fsmq.cli.schedules:ls",
        "show": "fsmq.cli.schedules:show",
        "next": "fsmq.cli.schedules:upcoming",
        "run": "fsmq.cli.schedules:run",
        "pause": "fsmq.cli.schedules:pause",
        "resume": "fsmq.cli.schedules:resume",
        "rm": "fsmq.cli.schedules:rm",
    }
}
_schedule_argument = click.argument("schedule", type=SCHEDULE)


@click.group("schedule", cls=Fsmq, commands_by_section=_VERBS)
def schedule() -> None:
    """Put messages at the moments of a crontab line."""


@click.command("add")
@_schedule_argument
@click.argument("cron")
@queue_argument
@click.argument(
    "file", required=False, type=click.Path(path_type=Path, allow_dash=True), metavar="FILE"
)
@at_option
@body_option
@click.option("--timezone", "-z", metavar="ZONE", default="UTC", help="Europe/Berlin, …  [UTC]")
@click.option(
    "--catch-up",
    type=click.Choice(["none", "last", "all"]),
    default="last",
    help="Which moments get their message that were missed by more than a minute.  [last]",
)
@click.option("--paused", is_flag=True, help="Put nothing before fsmq schedule resume.")
@click.option("--delay", type=SPAN, help="How long to hide each message first.")
@priority_option
@ttl_option
@content_type_option
@attribute_option
@json_option
def add(
    schedule: str,
    cron: str,
    queue: str,
    file: Path | None,
    at: str | None,
    body: str | None,
    timezone: str,
    catch_up: Any,
    paused: bool,
    delay: float | None,
    priority: int,
    ttl: float | None,
    content_type: str | None,
    pairs: Sequence[str],
    as_json: bool,
) -> None:
    """Create a schedule, or replace it: what is put into QUEUE, and when.

    CRON has five fields: minute, hour, day of month, month, day of week; a sixth in front is the
    second. Also @hourly, @daily, @weekly, @monthly, @yearly, and @every 5m. The message is FILE,
    --body or empty.

    \b
    fsmq schedule add nightly '30 3 * * *' jobs --timezone Europe/Berlin --body report
    """
    if body is not None and file is not None:
        raise click.UsageError("Give --body or a FILE, not both.")
    content = b"" if body is None else body_bytes(body)
    if file is not None:
        with opened(file) as source:
            content = source.read()
    with open_place(at) as place:
        named = place.schedule(schedule)
        created = named.define(
            cron,
            queue,
            content,
            timezone=timezone,
            catch_up=catch_up,
            paused=paused,
            delay=delay,
            priority=priority,
            ttl=ttl,
            content_type=content_type,
            attributes=attributes_of(pairs),
        )
        state = named.state()
    if as_json:
        output.document({**_described(state), "created": created})
    elif state.problem is not None:
        report(f"{schedule} puts nothing yet: {state.problem}")


@click.command("ls")
@at_option
@json_option
def ls(at: str | None, as_json: bool) -> None:
    """List schedules: when each puts its next message, where, and what keeps it from it."""
    with open_place(at) as place:
        states = place.schedules()
    if as_json:
        output.document({"schedules": [_described(state) for state in states]})
        return
    rows = [_row(state) for state in states]
    if rows:
        output.table(["schedule", "next", "queue", "cron", "timezone", "problem"], rows, left=6)


@click.command("show")
@_schedule_argument
@at_option
def show(schedule: str, at: str | None) -> None:
    """Show all of a schedule, as JSON."""
    with open_place(at) as place:
        output.document(_described(place.schedule(schedule).state()))


@click.command("next")
@_schedule_argument
@at_option
@click.option("--count", "-n", type=click.IntRange(1, 100), default=5, help="How many.  [5]")
@json_option
def upcoming(schedule: str, at: str | None, count: int, as_json: bool) -> None:
    """Print the next moments of a schedule, in UTC."""
    with open_place(at) as place:
        moments = place.schedule(schedule).next(count)
    if as_json:
        output.document({"schedule": schedule, "next": [shown(one) for one in moments]})
    for one in moments if not as_json else ():
        click.echo(shown(one))


@click.command("run")
@_schedule_argument
@at_option
@json_option
def run(schedule: str, at: str | None, as_json: bool) -> None:
    """Put the message of a schedule now, beside those of its moments; prints its id."""
    with open_place(at) as place:
        message_id = place.schedule(schedule).put_now()
    if as_json:
        output.document({"schedule": schedule, "id": message_id})
    else:
        click.echo(message_id)


@click.command("pause")
@_schedule_argument
@at_option
def pause(schedule: str, at: str | None) -> None:
    """Let a schedule put nothing, until it is resumed."""
    with open_place(at) as place:
        place.schedule(schedule).configure(paused=True)


@click.command("resume")
@_schedule_argument
@at_option
def resume(schedule: str, at: str | None) -> None:
    """Let a schedule go on; what passed while it was paused is not caught up with."""
    with open_place(at) as place:
        place.schedule(schedule).configure(paused=False)


@click.command("rm")
@_schedule_argument
@at_option
@json_option
def rm(schedule: str, at: str | None, as_json: bool) -> None:
    """Delete a schedule; messages that it has put stay."""
    with open_place(at) as place:
        place.schedule(schedule).delete()
    if as_json:
        output.document({"schedule": schedule, "deleted": True})


def _row(state: ScheduleState) -> list[str]:
    content, problem = state.settings, printable(state.problem or "")
    if content is None:
        return [state.name, "-", "-", "-", "-", problem]
    upcoming = "paused" if content.paused else _moment(state.next)
    return [state.name, upcoming, content.queue, content.cron, content.timezone, problem]


def _described(state: ScheduleState) -> dict[str, Any]:
    return {
        "schedule": state.name,
        "settings": None if state.settings is None else state.settings.as_json(),
        "last": None if state.last is None else _moment(state.last),
        "next": None if state.next is None else _moment(state.next),
        "problem": state.problem,
    }


def _moment(at: float | None) -> str:
    return "never" if at is None else shown(at)
