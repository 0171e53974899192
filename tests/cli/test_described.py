"""The command line takes what routes describe: options by their names, kinds, limits, defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import click
import pytest

from fsmq.cli import main
from fsmq.cli.params import Span
from fsmq.http.describe import Parameter, QueryParameter
from tests.harness.described import COMMANDS, Command, routes_by_id


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
    for name, rows in COMMANDS.items():
        described = {p.name: p for p in routes_by_id()[name].operation.parameters}
        for row in rows:
            takes = row.takes
            if takes is None:
                takes = {p.name: "" for p in described.values() if p.place == "query"}
            for one, here in takes.items():
                yield row, described[one], here or f"--{one.replace('_', '-')}"


TAKEN = list(taken())


def test_every_route_has_a_command() -> None:
    assert COMMANDS.keys() == routes_by_id().keys()


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
