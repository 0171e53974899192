"""Schedules: ``fsmq schedule``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from fsmq.cli import output
from fsmq.cli.failures import report
from fsmq.cli.messages.put import body_of
from fsmq.cli.output import json_option
from fsmq.cli.params import (
    SCHEDULE,
    SPAN,
    attribute_option,
    attributes_of,
    body_option,
    content_type_option,
    file_argument,
    priority_option,
    queue_argument,
    ttl_option,
)
from fsmq.cli.place.place import Place, Root, at_option, open_place
from fsmq.spool.errors import NoSuchSchedule
from fsmq.spool.fsck import printable
from fsmq.spool.records.reports import reports_of
from fsmq.spool.schedules.schedule_settings import (
    SETTINGS,
    CatchUp,
    ScheduleSettings,
    ScheduleState,
    shown,
)

F = TypeVar("F", bound=Callable[..., Any])
_schedule_argument = click.argument("schedule", type=SCHEDULE)


def _setting(name: str, *short: str, **more: Any) -> Callable[[F], F]:
    """The option for a setting, with its default."""
    one = SETTINGS[name]
    means = one.means[0].upper() + one.means[1:]
    default = (one.null or one.default).replace("`", "")
    option = f"--{name.replace('_', '-')}"
    return click.option(option, *short, default=one.default, help=f"{means}.  [{default}]", **more)


@click.command("create")
@_schedule_argument
@click.argument("cron")
@queue_argument
@file_argument
@at_option
@body_option
@_setting("timezone", "-z", metavar="ZONE")
@_setting("catch_up", type=click.Choice(get_args(CatchUp)))
@click.option("--paused", is_flag=True, help="Put nothing before fsmq schedule resume.")
@_setting("delay", type=SPAN)
@priority_option
@ttl_option
@content_type_option
@attribute_option
@json_option
def create(
    schedule: str,
    cron: str,
    queue: str,
    file: Path | None,
    at: str | None,
    body: str | None,
    timezone: str,
    catch_up: CatchUp,
    paused: bool,
    delay: float | None,
    priority: int,
    ttl: float | None,
    content_type: str | None,
    pairs: Sequence[str],
    as_json: bool,
) -> None:
    """Create a schedule, or replace the one of this name: what is put into QUEUE, and when.

    CRON has five fields: minute, hour, day of month, month, day of week; a sixth in front is the
    second. Also @hourly, @daily, @weekly, @monthly, @yearly, and @every 5m. The message is FILE,
    --body or empty. The settings of a schedule that is replaced are printed on stderr, or with
    --json as "replaced".

    \b
    Examples:
      fsmq schedule create nightly '30 3 * * *' jobs --timezone Europe/Berlin --body report
      fsmq schedule create poll '@every 5m' jobs
    """
    content = body_of("" if body is None and file is None else body, file)
    with open_place(at) as place:
        named = place.schedule(schedule)
        before = _settings_of(named)
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
    replaced = {} if created or before == state.settings else _replaced(before)
    if as_json:
        output.document({**_described(state), "created": created, **replaced})
        return
    for was in replaced.values():
        report(f"replaced the schedule {schedule}, which was: {json.dumps(was)}")
    if state.problem is not None:
        report(f"{schedule} puts nothing yet: {state.problem}")


@click.command("list")
@at_option
@json_option
def list_schedules(at: str | None, as_json: bool) -> None:
    """List schedules: when each puts its next message, where, and what keeps it from doing so.

    \b
    Examples:
      fsmq schedule list
    """
    with open_place(at) as place:
        states = place.schedules()
        is_served = not states or _has_mover(place)
    if not is_served:
        report("no mover has reported for 20 s: schedules put nothing; start it: fsmq up")
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
    """Show all of a schedule, as JSON.

    \b
    Examples:
      fsmq schedule show nightly
    """
    with open_place(at) as place:
        output.document(_described(place.schedule(schedule).state()))


@click.command("next")
@_schedule_argument
@at_option
@click.option("--count", "-n", type=click.IntRange(1, 100), default=5, help="How many.  [5]")
@json_option
def upcoming(schedule: str, at: str | None, count: int, as_json: bool) -> None:
    """Print the next times of a schedule, in UTC.

    \b
    Examples:
      fsmq schedule next nightly -n 3
    """
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
    """Put the message of a schedule now, in addition to its next ones; prints its id.

    \b
    Examples:
      fsmq schedule run nightly
    """
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
    """Stop a schedule from putting messages until it is resumed.

    \b
    Examples:
      fsmq schedule pause nightly
    """
    with open_place(at) as place:
        place.schedule(schedule).configure(paused=True)


@click.command("resume")
@_schedule_argument
@at_option
def resume(schedule: str, at: str | None) -> None:
    """Resume a schedule; it does not catch up on the time it was paused.

    \b
    Examples:
      fsmq schedule resume nightly
    """
    with open_place(at) as place:
        place.schedule(schedule).configure(paused=False)


@click.command("delete")
@_schedule_argument
@at_option
@json_option
def delete(schedule: str, at: str | None, as_json: bool) -> None:
    """Delete a schedule; messages that it has put stay.

    \b
    Examples:
      fsmq schedule delete nightly
    """
    with open_place(at) as place:
        place.schedule(schedule).delete()
    if as_json:
        output.document({"schedule": schedule, "deleted": True})


def _settings_of(schedule: Any) -> ScheduleSettings | None:
    """The settings of a schedule; None if there is none, or its file cannot be read."""
    try:
        state: ScheduleState = schedule.state()
    except NoSuchSchedule:
        return None
    return state.settings


def _replaced(settings: ScheduleSettings | None) -> dict[str, Any]:
    return {} if settings is None else {"replaced": settings.as_json()}


def _has_mover(place: Place) -> bool:
    """Whether a mover has reported in the last 20 s. Raises OSError, FsmqError."""
    if isinstance(place, Root):
        programs = [report.process for report in reports_of(place.tree)]
    else:
        programs = [program["process"] for program in place.cluster()["programs"]]
    return any(name.startswith("mover") for name in programs)


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
