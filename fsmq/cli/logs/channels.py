"""Channels of logs: ``fsmq channel``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from fsmq.cli import output
from fsmq.cli.failures import report
from fsmq.cli.input import ask, yes_option
from fsmq.cli.output import json_option, span
from fsmq.cli.params import channel_argument, log_argument
from fsmq.cli.place.place import at_option, open_place
from fsmq.cli.queues.config import changes_argument, parsed, settings_help, shown
from fsmq.spool.log.log_places import place_in
from fsmq.spool.log.log_settings import CHANNEL_SETTINGS

F = TypeVar("F", bound=Callable[..., Any])


def _channel(command: F) -> F:
    """Give a verb what all verbs of a channel take."""
    return log_argument(channel_argument(at_option(json_option(command))))


@click.command("create")
@_channel
@changes_argument(CHANNEL_SETTINGS)
@click.option("--from", "start", metavar="PLACE", help="Where it begins.  [last]")
def create(
    log: str, channel: str, changes: Sequence[str], start: str | None, at: str | None, as_json: bool
) -> None:
    """Create a channel of a log, with settings if some are given.

    fsmq channel config --help lists them. If the channel exists already, nothing changes.

    \b
    Examples:
      fsmq channel create users mailer
      fsmq channel create users mailer --from first order=strict
    """
    wanted = parsed(changes, CHANNEL_SETTINGS)
    with open_place(at) as place:
        opened = place.log(log).channel(channel)
        created = opened.create(place_in("place", start or "last"), **wanted)
    if as_json:
        output.document({"log": log, "channel": channel, "created": created})
    elif not created:
        report(f"channel {channel} of {log} exists already")


@click.command("delete")
@_channel
@yes_option
def delete(log: str, channel: str, at: str | None, yes: bool, as_json: bool) -> None:
    """Delete a channel; the messages of the log stay.

    Asks first if there is a terminal; scripts give --yes.

    \b
    Examples:
      fsmq channel delete users mailer --yes
    """
    with open_place(at) as place:
        ask(f"Delete channel {channel} of {log}, for good?", yes)
        place.log(log).channel(channel).delete()
    if as_json:
        output.document({"log": log, "channel": channel, "deleted": True})


@click.command(
    "config",
    help=settings_help(
        "Show the settings of a channel, or change some. Changes take effect at once.",
        CHANNEL_SETTINGS,
        "fsmq channel config users mailer",
        "fsmq channel config users mailer visibility_timeout=5m max_deliveries=5",
    ),
)
@_channel
@changes_argument(CHANNEL_SETTINGS)
def config(log: str, channel: str, changes: Sequence[str], at: str | None, as_json: bool) -> None:
    """Show the settings of a channel, or change some."""
    wanted = parsed(changes, CHANNEL_SETTINGS)
    state = _configured(log, channel, at, **wanted)
    if as_json:
        _document(log, channel, state)
    elif not wanted:
        output.facts(_settings(state))


@click.command("list")
@log_argument
@at_option
@json_option
def list_channels(log: str, at: str | None, as_json: bool) -> None:
    """List the channels of a log.

    LAG is how many messages a channel has not finished, OLDEST the age of the oldest of them.

    \b
    Examples:
      fsmq channel list users
    """
    with open_place(at) as place:
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
        report(f"log {log} has no channels: create one with fsmq channel create {log} NAME")
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


@click.command("show")
@_channel
def show(log: str, channel: str, at: str | None, as_json: bool) -> None:
    """Show one channel: its position, lag, claims and settings.

    \b
    Examples:
      fsmq channel show users mailer
    """
    state = _configured(log, channel, at)
    if as_json:
        _document(log, channel, state)
        return
    facts = {key: value for key, value in state._asdict().items() if key != "settings"}
    rows = [(key, "-" if value is None else str(value)) for key, value in facts.items()]
    output.facts(rows + _settings(state))


@click.command("seek")
@_channel
@click.argument("place", metavar="PLACE")
def seek(log: str, channel: str, place: str, at: str | None, as_json: bool) -> None:
    """Move a channel to another position; all its claims end.

    PLACE is an offset, a time with a time zone, first or last.

    \b
    Examples:
      fsmq channel seek users mailer first
      fsmq channel seek users mailer 2030-01-31T12:00Z
    """
    with open_place(at) as opened:
        position = opened.log(log).channel(channel).seek(place_in("place", place))
    if as_json:
        output.document({"log": log, "channel": channel, "position": position})
    else:
        report(f"{channel} of {log} is at {position}")


@click.command("pause")
@_channel
def pause(log: str, channel: str, at: str | None, as_json: bool) -> None:
    """Pause a channel: nothing can be claimed from it until it is resumed.

    \b
    Examples:
      fsmq channel pause users mailer
    """
    _pause(log, channel, at, as_json, paused=True)


@click.command("resume")
@_channel
def resume(log: str, channel: str, at: str | None, as_json: bool) -> None:
    """End the pause of a channel.

    \b
    Examples:
      fsmq channel resume users mailer
    """
    _pause(log, channel, at, as_json, paused=False)


def _pause(log: str, channel: str, at: str | None, as_json: bool, *, paused: bool) -> None:
    state = _configured(log, channel, at, paused=paused)
    if as_json:
        _document(log, channel, state)


def _configured(log: str, channel: str, at: str | None, **wanted: Any) -> Any:
    """The state of a channel, after a change of its settings if one is wanted."""
    with open_place(at) as place:
        opened = place.log(log).channel(channel)
        if wanted:
            opened.configure(**wanted)
        return opened.state()


def _document(log: str, channel: str, state: Any) -> None:
    settings = state.settings.as_dict()
    output.document({"log": log, "channel": channel, **state._asdict(), "settings": settings})


def _settings(state: Any) -> list[tuple[str, str]]:
    settings = state.settings.as_dict().items()
    return [(name, shown(name, value, CHANNEL_SETTINGS)) for name, value in settings]
