"""The command line takes what routes describe: options by their names, kinds, limits, defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import click
import pytest

from fsmq.cli import main
from fsmq.cli.params import Span
from fsmq.http.describe import Parameter, QueryParameter
from tests.harness.described import routes_by_id


class Command(NamedTuple):
    """A command that does what a route does.

    takes: parameters of the query and of the head, where they are not all, by their options or
    arguments. others: defaults that are not those of the route.
    """

    name: str
    takes: Mapping[str, str] | None = None
    others: str = ""


_CLAIM = {"X-Message-Claim": "--claim"}
_OF_PUT = dict.fromkeys(("delay", "priority", "ttl", "group", "dedup_id"), "")
ROWS: Mapping[str, Sequence[Command]] = {
    "list_queues": [Command("ls")],
    "show_queue": [Command("stat")],
    "create_queue": [Command("create", {})],  # the settings index=true, fifo=true
    "configure_queue": [Command("config", {}), Command("pause", {}), Command("resume", {})],
    "delete_queue": [Command("delete")],
    "purge": [Command("purge")],
    "post": [Command("put", {**_OF_PUT, "id": ""})],
    "batch": [Command("put")],
    "claim": [Command("get", others="count")],
    "claim_several": [
        Command(
            "get", {"queues": "queue", "visibility": "", "wait": "", "count": ""}, others="count"
        )
    ],
    "change": [
        Command("renew", {"visibility": "", **_CLAIM}),
        Command("release", {"release": "--delay", **_CLAIM}, others="release"),
        Command("bury", {"reason": "", **_CLAIM}),
        Command("priority", {"priority": "priority"}),
    ],
    "remove": [Command("ack", _CLAIM)],
    "ack": [Command("ack")],
    "peek": [
        # It asks page after page.
        Command(
            "peek",
            {
                **dict.fromkeys(("state", "count", "after", "contains", "older_than"), ""),
                "budget": "",
                "attribute.NAME": "--attribute",
            },
            others="budget",
        )
    ],
    "show_message": [Command("peek", {})],
    "find": [Command("find")],
    "life": [Command("life", {})],  # it reads to the end
    "history": [Command("history", {"queue": "queue", "step": ""}, others="step")],
    "cluster": [Command("cluster", {})],
    "move": [Command("mv", {"to": "target", "in_flight": "", "rate": ""})],
    "redrive": [Command("redrive")],
    "list_moves": [Command("moves")],
    "show_move": [Command("moves", {})],
    "stop_move": [Command("moves", {})],
    "list_topics": [Command("topic ls")],
    "show_topic": [Command("topic ls")],
    "create_topic": [Command("topic create")],
    "delete_topic": [Command("topic delete")],
    "subscribe": [Command("subscribe")],
    "unsubscribe": [Command("unsubscribe")],
    "subscribe_log": [Command("subscribe")],
    "unsubscribe_log": [Command("unsubscribe")],
    "publish": [Command("publish", _OF_PUT, others="delay")],  # of several queues
    "list_logs": [Command("logs")],
    "show_log": [Command("log")],
    "create_log": [Command("log")],
    "configure_log": [Command("log", {})],
    "delete_log": [Command("log")],
    "publish_to_log": [Command("publish", {"id": "", "X-Message-Key": "--key"})],
    "publish_many_to_log": [Command("publish")],
    "read_log": [Command("read", {"from": "", "count": ""}, others="count")],
    "show_channel": [Command("channel")],
    "create_channel": [Command("channel", {"from": ""})],
    "configure_channel": [Command("channel", {})],
    "delete_channel": [Command("channel")],
    "seek": [Command("channel", {"to": "--seek"})],
    "claim_from_channel": [Command("get", others="count")],
    "done": [Command("ack")],
    "change_of_channel": [
        Command("renew", {"visibility": ""}),
        Command("release", {"release": "--delay"}, others="release"),
        Command("bury", {"reason": ""}),
    ],
    "done_one": [Command("ack", {})],
    "list_schedules": [Command("schedule ls")],
    "show_schedule": [Command("schedule show")],
    "define_schedule": [Command("schedule add")],
    "configure_schedule": [Command("schedule pause", {}), Command("schedule resume", {})],
    "delete_schedule": [Command("schedule rm")],
    "next_of_schedule": [Command("schedule next")],
    "run_schedule": [Command("schedule run")],
    # Of programs, for dyno-queues.
    "put_by_id": [],
    "act_by_id": [],
    "zones": [],
    "beat_zone": [],
}


def command(name: str) -> click.Command:
    """A command, or one below another."""
    found: click.Command = main
    for word in name.split():
        assert isinstance(found, click.Group)
        below = found.get_command(click.Context(found), word)
        assert below is not None
        found = below
    return found


def option(of: click.Command, name: str) -> click.Parameter | None:
    """An option by its long form, or an argument by its name."""
    return next((one for one in of.params if name in one.opts or name == one.name), None)


def taken() -> Iterator[tuple[Command, Parameter, str]]:
    """Each parameter that a command takes, with the option or argument for it."""
    for name, rows in ROWS.items():
        described = {p.name: p for p in routes_by_id()[name].operation.parameters}
        for row in rows:
            takes = row.takes
            if takes is None:
                takes = {p.name: "" for p in described.values() if p.place == "query"}
            for one, here in takes.items():
                yield row, described[one], here or f"--{one.replace('_', '-')}"


TAKEN = list(taken())


def test_every_route_has_a_command() -> None:
    assert ROWS.keys() == routes_by_id().keys()


@pytest.mark.parametrize(
    ("row", "described", "name"), TAKEN, ids=[f"{row.name} {name}" for row, _, name in TAKEN]
)
def test_an_option_is_the_parameter_of_the_route(
    row: Command, described: Parameter, name: str
) -> None:
    found = option(command(row.name), name)
    assert found is not None
    schema = described.schema
    assert isinstance(schema, dict)
    if isinstance(found, click.Option) and schema.get("enum") != ["true"]:
        assert isinstance(found.type, Span) is ("seconds" in described.values)
        assert not isinstance(found.type, click.Choice) or {*found.type.choices} <= {
            *schema["enum"]
        }
    if isinstance(found.type, click.IntRange):
        assert found.type.min == schema["minimum"]
    help_text = getattr(found, "help", None) or ""
    for low, high in re.findall(r"\b(\d+)(?: \(\w+\))? to (\d+)", help_text):
        assert (int(low), int(high)) == (schema["minimum"], schema["maximum"])
    if described.name not in row.others.split():
        check_default(described, found, help_text)


def check_default(described: Parameter, found: click.Parameter, help_text: str) -> None:
    """Make sure that what holds without an option is what holds without the parameter."""
    default = described.default if isinstance(described, QueryParameter) else None
    given: Any = found.to_info_dict()["default"]
    assert (given or default or None) == (default or None)
    if told := re.search(r"\[([^];]+)[^]]*\]$", help_text):
        words = described.otherwise.replace("`", "").replace("channel", "queue")
        assert told[1] == (words if default is None else str(default))
