"""Options match the routes: names, types, ranges and defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import click
import pytest

from fsmq.cli import main
from fsmq.cli.params import Span
from fsmq.http.describe import Parameter, QueryParameter
from tests.cli.helpers import commands
from tests.harness.described import COMMANDS, Command, json_body, routes_by_id


def command(name: str) -> click.Command:
    """A command by its words."""
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
    """Each parameter of a route that a command takes, with its option or argument."""
    for name, rows in COMMANDS.items():
        described = {p.name: p for p in routes_by_id()[name].operation.parameters}
        for row in rows:
            takes = row.takes
            if takes is None:
                takes = {p.name: "" for p in described.values() if p.place == "query"}
            for one, here in takes.items():
                yield row, described[one], here or f"--{one.replace('_', '-')}"


TAKEN = list(taken())
# Options whose help mentions time, but whose value is none.
NO_SPANS = {("put", "--dedup-id"), ("topic publish", "--dedup-id")}


def test_every_route_has_a_command() -> None:
    assert COMMANDS.keys() == routes_by_id().keys()


@pytest.mark.parametrize(
    ("row", "described", "name"), TAKEN, ids=[f"{row.name} {name}" for row, _, name in TAKEN]
)
def test_options_match_the_parameters_of_their_route(
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
        assert found.type.max in (None, schema["maximum"])
    help_text = getattr(found, "help", None) or ""
    for low, high in re.findall(r"\b(\d+)(?: \(\w+\))? to (\d+)", help_text):
        assert (int(low), int(high)) == (schema["minimum"], schema["maximum"])
    if described.name not in row.others.split():
        check_default(described, found, help_text)


def check_default(described: Parameter, found: click.Parameter, help_text: str) -> None:
    """Check that option and parameter have the same default."""
    default = described.default if isinstance(described, QueryParameter) else None
    given: Any = found.to_info_dict()["default"]
    assert (given or default or None) == (default or None)
    if shown := re.search(r"\[([^];]+)[^]]*\]$", help_text):
        words = described.otherwise.replace("`", "").replace("channel", "queue")
        assert shown[1] == (words if default is None else str(default))


def test_a_schedule_takes_the_settings_of_the_route() -> None:
    properties = json_body(routes_by_id()["define_schedule"].operation)["properties"]
    add = command("schedule create")
    # A body in base64 is read from a file.
    others = {"body_base64": "file", "attributes": "pairs"}
    for name, schema in properties.items():
        found = option(add, others.get(name, name))
        assert found is not None, name
        assert (found.to_info_dict()["default"] or None) == (schema.get("default") or None), name
        if isinstance(found.type, click.Choice):
            assert list(found.type.choices) == schema["enum"]


def test_options_that_mean_time_take_units() -> None:
    plain = {
        option
        for _, of in commands()
        for param in of.params
        if param.type is click.FLOAT or isinstance(param.type, click.FloatRange)
        for option in param.opts
    }
    assert plain == {"--rate"}
    times = re.compile(r"\b(seconds|minutes|hours|days)\b|[Hh]ow long|[Tt]ime (between|to|that)")
    untyped = {
        (name, param.opts[0])
        for name, of in commands()
        if name != "up"  # tests/test_options.py
        for param in of.params
        if times.search(getattr(param, "help", None) or "") and not isinstance(param.type, Span)
    }
    assert untyped == NO_SPANS
