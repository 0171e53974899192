"""Logs and channels: ``fsmq logs``, ``log``, ``channel`` and ``read``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import click

from fsmq.cli import output
from fsmq.cli.failures import Exit, report
from fsmq.cli.logs.feed import Feeding, verified
from fsmq.cli.output import json_option, span
from fsmq.cli.params import LOG, Completed, channel_argument, log_argument
from fsmq.cli.place.place import Place, at_option, open_place
from fsmq.cli.queues.config import parsed, shown
from fsmq.spool import LogMessage
from fsmq.spool.log.log_places import place_in
from fsmq.spool.log.log_settings import (
    CHANNEL_SETTINGS,
    LOG_SETTINGS,
    ChannelSettings,
    LogSettings,
)
from fsmq.wire import exact_moment, log_facts, with_body

F = TypeVar("F", bound=Callable[..., Any])
_yes = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
_OF_LOG = (LOG_SETTINGS, LogSettings().as_dict())
_OF_CHANNEL = (CHANNEL_SETTINGS, ChannelSettings().as_dict())


def _set_option(settings: Iterable[str]) -> Callable[[F], F]:
    return click.option(
        "--set",
        "changes",
        multiple=True,
        type=Completed("setting=value", lambda ctx: [f"{name}=" for name in settings]),
        metavar="SETTING=VALUE",
        help="Change a setting; may be given several times.",
    )


@click.command("logs")
@click.argument("log", required=False, type=LOG)
@at_option
@json_option
def logs(log: str | None, at: str | None, as_json: bool) -> None:
    """List logs, or the channels of one LOG.

    MESSAGES are those that are still there; a channel's LAG is what it has not finished, OLDEST the
    age of the oldest of it.
    """
    with open_place(at) as place:
        if log is not None:
            _list_channels(place, log, as_json)
            return
        found = {name: place.log(name).stats() for name in place.logs()}
    if as_json:
        described = [_described(name, stats) for name, stats in found.items()]
        output.document({"logs": described})
        return
    if not found:
        report(f"there are no logs in {place.where}: create one with fsmq log NAME --create")
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


def _list_channels(place: Place, log: str, as_json: bool) -> None:
    opened = place.log(log)
    states = {name: opened.channel(name).state() for name in opened.channels()}
    if as_json:
        described = [
            {"channel": name, **state._asdict(), "settings": state.settings.as_dict()}
            for name, state in states.items()
        ]
        output.document({"log": log, "channels": described})
        return
    if not states:
        report(f"log {log} has no channels: create one with fsmq channel {log} NAME --create")
        return
    rows = [
        (
            name,
            f"{state.position:,}",
            f"{state.lag:,}",
            span(state.lag_seconds if state.lag else None),
            f"{state.in_flight:,}",
            f"{state.delayed:,}",
            f"{state.lost:,}",
            _condition(state),
        )
        for name, state in states.items()
    ]
    head = ("CHANNEL", "POSITION", "LAG", "OLDEST", "IN FLIGHT", "DELAYED", "LOST", "STATE")
    output.table(head, rows)


def _condition(state: Any) -> str:
    if state.paused:
        return "paused"
    if state.blocked_at is not None:
        return f"blocked at {state.blocked_at}"
    if state.unburied_at is not None:
        return f"unburied at {state.unburied_at}"
    return "stalled" if state.stalled else "-"


def _described(name: str, stats: Any) -> dict[str, Any]:
    times = {
        which: None if (at := getattr(stats, which)) is None else exact_moment(at)
        for which in ("oldest_at", "newest_at")
    }
    return {"log": name, **stats._asdict(), **times, "settings": stats.settings.as_dict()}


@click.command("log")
@log_argument
@at_option
@click.option("--create", is_flag=True, help="Create the log; and the folder.")
@_set_option(LOG_SETTINGS)
@click.option("--delete", is_flag=True, help="Delete the log with all messages and channels.")
@click.option("--to", "queue", metavar="QUEUE", help="Put its messages into a queue; below.")
@click.option("--channel", metavar="NAME", help="With --to: the channel.  [as the queue]")
@click.option(
    "--from", "start", metavar="PLACE", help="With --to: where a new one begins.  [first]"
)
@click.option("--follow", "-f", is_flag=True, help="With --to: go on until Ctrl-C.")
@click.option("--verify", "verifies", is_flag=True, help="Read and check all of it.")
@_yes
@json_option
def log(
    log: str,
    at: str | None,
    create: bool,
    changes: Sequence[str],
    delete: bool,
    queue: str | None,
    channel: str | None,
    start: str | None,
    follow: bool,
    verifies: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Show one LOG and its settings; create, change or delete it; let it feed a queue.

    \b
    fsmq log users --create --set retain_for=7d
    fsmq log users --set max_bytes=10G --set when_full=refuse
    fsmq log users --to mails --follow
    fsmq log users --delete

    docs/logs.md has the settings. Spans of time take units (10m, 2h, 7d), bytes too (64K, 1M);
    "default" restores the default. Of a log that exists --create changes the settings alone.

    With --to each message is put into the queue, at least once, and then done in a channel, which
    is created if it is missing. With --verify it exits with 1 if something is wrong.
    """
    _check_wishes(create or bool(changes), delete, queue, verifies, (channel, start, follow))
    if queue is not None or verifies:
        with open_place(at) as place:
            if queue is None:
                sys.exit(verified(place, log, as_json))
            Feeding(queue, channel, place_in("place", start or "first"), follow).run(
                place, log, as_json
            )
        return
    wanted = parsed(changes, *_OF_LOG)
    with open_place(at, create=create) as place:
        opened = place.log(log)
        if delete:
            _ask(yes, f"Delete log {log} with {opened.stats().next:,} messages?")
            opened.delete()
            _report(as_json, {"log": log, "deleted": True}, f"log {log} deleted")
            return
        if create and opened.create(**wanted):
            _report(as_json, {"log": log, "created": True}, None)
            return
        if wanted:
            opened.configure(**wanted)
        stats = opened.stats()
    if as_json:
        output.document(_described(log, stats))
    elif create:
        report(f"log {log} exists already")
    elif not wanted:
        facts = {**stats._asdict(), "channels": ", ".join(stats.channels) or "-"}
        del facts["settings"]
        for which in ("oldest_at", "newest_at"):
            facts[which] = "-" if facts[which] is None else exact_moment(facts[which])
        settings = stats.settings.as_dict().items()
        output.facts(
            [(name, str(value)) for name, value in facts.items()]
            + [(name, shown(name, value, LOG_SETTINGS)) for name, value in settings]
        )


def _check_wishes(
    changes: bool, delete: bool, queue: str | None, verifies: bool, of_feeding: tuple[object, ...]
) -> None:
    if sum((delete, changes, queue is not None, verifies)) > 1:
        raise click.UsageError("Give --delete, --to, --verify, or --create with --set: one.")
    if queue is None and any(of_feeding):
        raise click.UsageError("--channel, --from and --follow go with --to.")


@click.command("channel")
@log_argument
@channel_argument
@at_option
@click.option("--create", is_flag=True, help="Create the channel.")
@click.option(
    "--from", "start", metavar="PLACE", help="With --create: where it begins; below.  [last]"
)
@_set_option(CHANNEL_SETTINGS)
@click.option("--seek", metavar="PLACE", help="Send it to another position; below.")
@click.option("--pause", is_flag=True, help="Hand out nothing from now on.")
@click.option("--resume", is_flag=True, help="End a pause.")
@click.option("--delete", is_flag=True, help="Delete the channel.")
@_yes
@json_option
def channel(
    log: str,
    channel: str,
    at: str | None,
    create: bool,
    start: str | None,
    changes: Sequence[str],
    seek: str | None,
    pause: bool,
    resume: bool,
    delete: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Show one CHANNEL of a LOG; create, change, move or delete it.

    \b
    fsmq channel users mailer --create --from first --set order=strict
    fsmq channel users mailer --seek 2030-01-31T12:00Z
    fsmq channel users mailer --pause

    A PLACE is an offset, a moment with a time zone, first or last. What is in flight at a --seek is
    void. Its messages: fsmq get LOG/CHANNEL, and fsmq ack LOG/CHANNEL OFFSET.
    """
    if sum((create, seek is not None, pause, resume, delete)) > 1:
        raise click.UsageError("Give one of --create, --seek, --pause, --resume and --delete.")
    if start is not None and not create:
        raise click.UsageError("--from goes with --create.")
    wanted = parsed(changes, *_OF_CHANNEL)
    with open_place(at) as place:
        opened = place.log(log).channel(channel)
        name = {"log": log, "channel": channel}
        if create:
            created = opened.create(place_in("place", start or "last"), **wanted)
            text = None if created else f"channel {channel} of {log} exists already"
            _report(as_json, {**name, "created": created}, text)
        elif delete:
            _ask(yes, f"Delete channel {channel} of {log}?")
            opened.delete()
            _report(as_json, {**name, "deleted": True}, None)
        elif seek is not None:
            position = opened.seek(place_in("place", seek))
            _report(as_json, {**name, "position": position}, f"{channel} of {log} is at {position}")
        else:
            if pause or resume:
                wanted["paused"] = pause
            if wanted:
                opened.configure(**wanted)
            if as_json or not wanted:
                _show(name, opened.state(), as_json)


def _show(name: dict[str, str], state: Any, as_json: bool) -> None:
    settings = state.settings.as_dict()
    if as_json:
        output.document({**name, **state._asdict(), "settings": settings})
        return
    facts = {key: value for key, value in state._asdict().items() if key != "settings"}
    output.facts(
        [(key, "-" if value is None else str(value)) for key, value in facts.items()]
        + [(key, shown(key, value, CHANNEL_SETTINGS)) for key, value in settings.items()]
    )


@click.command("read")
@log_argument
@at_option
@click.option("--from", "start", metavar="PLACE", default="first", help="Where to begin.  [first]")
@click.option("--follow", "-f", is_flag=True, help="Wait at the end for more, until Ctrl-C.")
@click.option("--count", "-n", type=click.IntRange(1), help="At most this many.  [all]")
@click.option("--lines", is_flag=True, help="Print a line feed after each body.")
@json_option
def read(
    log: str,
    at: str | None,
    start: str,
    follow: bool,
    count: int | None,
    lines: bool,
    as_json: bool,
) -> None:
    """Print the messages of a LOG; no channel is needed, and no trace is left.

    \b
    fsmq read users --from 2030-01-31T12:00Z --follow --lines
    fsmq read users --from 4711 -n 1 --json

    A PLACE is an offset, a moment with a time zone, first or last. Exits with 1 if there was no
    message, and with 3 if retention has removed those that were to be read.
    """
    given = 0
    with open_place(at) as place:
        for message in _messages(place, log, start, follow, count):
            given += 1
            if as_json:
                output.line({"log": log, **of_log_message(message)})
            else:
                output.raw(message.body + b"\n" if lines else message.body)
    if not given:
        sys.exit(Exit.NOTHING)


def _messages(
    place: Place, log: str, start: str, follow: bool, count: int | None
) -> Iterator[LogMessage]:
    left = count
    size = 1000 if count is None else min(count, 1000)
    for batch in place.log(log).batches(place_in("place", start), follow=follow, count=size):
        yield from batch[:left]
        if left is not None:
            left -= len(batch)
            if left <= 0:
                return


def of_log_message(message: LogMessage) -> dict[str, Any]:
    """A message of a log for JSON: the members of docs/logs.md."""
    return with_body(log_facts(message), message.body)


def _ask(yes: bool, question: str) -> None:
    if not yes:
        click.confirm(question, abort=True, err=True)


def _report(as_json: bool, answer: dict[str, Any], text: str | None) -> None:
    if as_json:
        output.document(answer)
    elif text is not None:
        report(text)
