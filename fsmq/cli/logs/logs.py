"""Logs as wholes: ``fsmq log create``, ``delete``, ``config``, ``list``, ``show``, ``verify``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from fsmq.cli import output
from fsmq.cli.failures import Exit, report
from fsmq.cli.input import ask, yes_option
from fsmq.cli.output import json_option
from fsmq.cli.params import log_argument
from fsmq.cli.place.place import Root, at_option, open_place
from fsmq.cli.queues.config import changes_argument, parsed, settings_help, shown
from fsmq.spool.fsck import printable
from fsmq.spool.fsck.one_log import verify as verify_log
from fsmq.spool.log.log_settings import LOG_SETTINGS
from fsmq.wire import exact_moment


@click.command("create")
@log_argument
@changes_argument(LOG_SETTINGS)
@at_option
@json_option
def create(log: str, changes: Sequence[str], at: str | None, as_json: bool) -> None:
    """Create a log, with settings if some are given.

    fsmq log config --help lists them. If the log exists already, only the settings are changed. A
    FOLDER that is not a spool yet becomes one.

    \b
    Examples:
      fsmq log create users
      fsmq log create users retain_for=7d max_bytes=10G
    """
    wanted = parsed(changes, LOG_SETTINGS)
    with open_place(at, create=True) as place:
        opened = place.log(log)
        created = opened.create(**wanted)
        if wanted and not created:
            opened.configure(**wanted)
        described = {} if created else _described(log, opened.stats())
    if as_json:
        output.document({"log": log, **described, "created": created})
    elif not created:
        report(f"log {log} exists already")


@click.command("delete")
@log_argument
@at_option
@yes_option
@json_option
def delete(log: str, at: str | None, yes: bool, as_json: bool) -> None:
    """Delete a log with all its messages and channels.

    Asks first if there is a terminal; scripts give --yes.

    \b
    Examples:
      fsmq log delete users --yes
    """
    with open_place(at) as place:
        opened = place.log(log)
        ask(f"Delete log {log} with {opened.stats().next:,} messages, for good?", yes)
        opened.delete()
    if as_json:
        output.document({"log": log, "deleted": True})
    else:
        report(f"log {log} deleted")


@click.command(
    "config",
    help=settings_help(
        "Show the settings of a log, or change some. Changes take effect at once.",
        LOG_SETTINGS,
        "fsmq log config users",
        "fsmq log config users max_bytes=10G when_full=refuse",
    ),
)
@log_argument
@changes_argument(LOG_SETTINGS)
@at_option
@json_option
def config(log: str, changes: Sequence[str], at: str | None, as_json: bool) -> None:
    """Show the settings of a log, or change some."""
    wanted = parsed(changes, LOG_SETTINGS)
    with open_place(at) as place:
        opened = place.log(log)
        if wanted:
            opened.configure(**wanted)
        stats = opened.stats()
    if as_json:
        output.document(_described(log, stats))
    elif not wanted:
        output.facts(_settings(stats))


@click.command("list")
@at_option
@json_option
def list_logs(at: str | None, as_json: bool) -> None:
    """List logs.

    MESSAGES are those that are still there, from the offset FIRST; NEXT is the offset of the next
    one.

    \b
    Examples:
      fsmq log list
    """
    with open_place(at) as place:
        found = {name: place.log(name).stats() for name in place.logs()}
    if as_json:
        described = [_described(name, stats) for name, stats in found.items()]
        output.document({"logs": described})
        return
    if not found:
        report(f"there are no logs in {place.where}: create one with fsmq log create NAME")
        return
    rows = [
        (
            name,
            f"{stats.next - stats.first:,}",
            f"{stats.bytes:,}",
            f"{stats.first:,}",
            f"{stats.next:,}",
            f"{len(stats.channels):,}",
        )
        for name, stats in found.items()
    ]
    output.table(("LOG", "MESSAGES", "BYTES", "FIRST", "NEXT", "CHANNELS"), rows)


@click.command("show")
@log_argument
@at_option
@json_option
def show(log: str, at: str | None, as_json: bool) -> None:
    """Show one log: its offsets, size, channels and settings.

    \b
    Examples:
      fsmq log show users
    """
    with open_place(at) as place:
        stats = place.log(log).stats()
    if as_json:
        output.document(_described(log, stats))
        return
    facts = {**stats._asdict(), "channels": ", ".join(stats.channels) or "-"}
    del facts["settings"]
    for which in ("oldest_at", "newest_at"):
        facts[which] = "-" if facts[which] is None else exact_moment(facts[which])
    output.facts([(name, str(value)) for name, value in facts.items()] + _settings(stats))


@click.command("verify")
@log_argument
@at_option
@json_option
def verify(log: str, at: str | None, as_json: bool) -> None:
    """Read and check all of a log. Exits with 1 if something is wrong.

    \b
    Examples:
      fsmq log verify users --at /var/lib/fsmq
    """
    with open_place(at) as place:
        if not isinstance(place, Root):
            raise click.UsageError("This reads the files: give a folder with --at, not a server.")
        found = verify_log(place.tree, log)
    if as_json:
        listed = [one.as_dict() for one in found]
        output.document({"log": log, "clean": not found, "findings": listed})
    else:
        for one in found:
            click.echo(f"{one.severity.value:8} {one.kind.value}: {printable(one.path)}")
            click.echo(f"         {printable(one.reason)}")
        if not found:
            click.echo("clean")
    sys.exit(Exit.NOTHING if found else Exit.DONE)


def _described(name: str, stats: Any) -> dict[str, Any]:
    times = {
        which: None if (at := getattr(stats, which)) is None else exact_moment(at)
        for which in ("oldest_at", "newest_at")
    }
    return {"log": name, **stats._asdict(), **times, "settings": stats.settings.as_dict()}


def _settings(stats: Any) -> list[tuple[str, str]]:
    settings = stats.settings.as_dict().items()
    return [(name, shown(name, value, LOG_SETTINGS)) for name, value in settings]
