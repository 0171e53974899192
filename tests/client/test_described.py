"""Methods match their routes: parameters, defaults, ranges and errors.

test_alike.py compares the library with the client for threads, which is generated from the async
one.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, NamedTuple

import pytest

from fsmq import Queue, Spool, Topic
from fsmq.http.describe import Operation, Parameter, QueryParameter
from fsmq.http.problems import PROBLEM_TYPES, HttpError
from fsmq.spool import Channel, Log, Message, NewMessage, Schedule
from fsmq.spool._sync.selection import Selection
from fsmq.spool.indexed import Indexed
from tests.harness.described import (
    METHODS,
    OTHER_DEFAULTS,
    OVER_HTTP_ONLY,
    Method,
    json_body,
    ranges_of,
    routes_by_id,
)
from tests.harness.suite import HOME

# Errors of every method of a class, which the docstring of the class documents.
OF_ALL = {
    Spool: set(),
    Queue: {"NoSuchQueue"},
    Selection: {"NoSuchQueue"},
    Indexed: {"NoSuchQueue"},
    Topic: set(),
    Log: {"NoSuchLog"},
    Channel: {"NoSuchLog", "NoSuchChannel"},
    Schedule: set(),
}
CLASSES = {one.__name__: one for one in OF_ALL}
ERRORS = {of.kind: error for error, of in PROBLEM_TYPES.items()}


class Row(NamedTuple):
    """A method and the operation that describes it."""

    operation: Operation
    method: Method

    @property
    def of(self) -> type:
        return CLASSES[self.method.name.partition(".")[0]]

    @property
    def function(self) -> Any:
        return getattr(self.of, self.method.name.partition(".")[2])

    @property
    def takes(self) -> dict[str, str]:
        """The parameters of the route, with their names in the method."""
        given = self.method.takes
        if given is None:
            given = dict.fromkeys(parameters(self.operation), "")
        return {name: here or name for name, here in given.items()}


def parameters(operation: Operation) -> dict[str, Parameter]:
    return {one.name: one for one in operation.parameters if one.place != "path"}


def rows() -> Iterator[Row]:
    for name, methods in METHODS.items():
        for method in methods:
            yield Row(routes_by_id()[name].operation, method)


ROWS = list(rows())


def test_every_route_has_a_row_and_all_of_its_parameters_are_taken() -> None:
    routes = routes_by_id()
    assert METHODS.keys() == routes.keys()
    for name, route in routes.items():
        taken = {one for row in ROWS if row.operation is route.operation for one in row.takes}
        apart = OVER_HTTP_ONLY.get(name, {}).keys()
        assert METHODS[name] == [] or taken | apart == parameters(route.operation).keys(), name


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.method.name)
def test_a_method_takes_the_parameters_of_its_route(row: Row) -> None:
    taken = dict(inspect.signature(row.function).parameters)
    taken.pop("self")
    assert {*row.takes.values(), *row.method.more.split()} == taken.keys()
    described = parameters(row.operation)
    others = OTHER_DEFAULTS.get(row.method.name, {})
    for name, here in row.takes.items():
        default, one = taken[here].default, described[name]
        if default is inspect.Parameter.empty or here in others:
            continue
        assert isinstance(one, QueryParameter) or default is None
        # An absent parameter of HTTP is None; here it may also be False or empty.
        expected = one.default if isinstance(one, QueryParameter) else None
        assert (default or None) == (expected or None), here


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.method.name)
def test_a_method_takes_the_members_of_a_body_with_their_defaults(row: Row) -> None:
    taken = inspect.signature(row.function).parameters
    for name, schema in json_body(row.operation).get("properties", {}).items():
        if name not in taken or taken[name].default is inspect.Parameter.empty:
            continue
        assert (taken[name].default or None) == (schema.get("default") or None), name


def test_messages_and_schedules_have_the_members_of_their_bodies() -> None:
    body = {
        name: json_body(routes_by_id()[name].operation) for name in ("batch", "define_schedule")
    }
    of_batch = body["batch"]["items"]["properties"].keys()
    assert of_batch - {"body_base64"} == {one.name for one in fields(NewMessage)}
    taken = inspect.signature(Schedule.define).parameters.keys() - {"self"}
    assert body["define_schedule"]["properties"].keys() - {"body_base64"} == taken


@pytest.mark.parametrize("of", [NewMessage, Message])
def test_ranges_in_docstrings_of_messages_match_put(of: type) -> None:
    schemas = [one.schema for one in routes_by_id()["post"].operation.parameters]
    ranges = {one for schema in schemas for one in ranges_of(schema)}
    assert set(ranges_in(inspect.getdoc(of) or "")) <= ranges


def ranges_in(text: str) -> Iterator[tuple[float, float]]:
    """The ranges in a text, such as ``1 to 1000``."""
    for low, high in re.findall(r"\b([\d.]+)(?: \([\w ]+\))? to ([\d.]*\d)", text):
        yield float(low), float(high)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.method.name)
def test_ranges_in_docstrings_of_methods_match_the_route(row: Row) -> None:
    schemas = [one.schema for one in row.operation.parameters if isinstance(one.schema, dict)]
    ranges = {(one["minimum"], one["maximum"]) for one in schemas if "maximum" in one}
    assert set(ranges_in(inspect.getdoc(row.function) or "")) <= ranges


def named(of: type, name: str) -> set[str]:
    """The errors after "Raises" in a docstring, also in that of a method it refers to."""
    text = inspect.getdoc(getattr(of, name)) or ""
    found = {
        word
        for part in text.split("Raises ")[1:]
        for word in re.findall(r"\w+", part.partition("\n\n")[0])
        if word in {error.__name__ for error in ERRORS.values()}
    }
    for other in re.findall(r"(?:therwise|Raises|Raises the same) as ``(\w+)``", text):
        found |= named(of, other)
    return found


@pytest.mark.parametrize("name", sorted({row.method.name for row in ROWS}))
def test_a_docstring_names_the_errors_of_the_route(name: str) -> None:
    mine = [row for row in ROWS if row.method.name == name]
    errors = {
        ERRORS[kind].__name__
        for row in mine
        for status, answer in row.operation.answers.items()
        for kind in re.findall(r"`([a-z-]+)`", answer.description)
        if status >= 400 and not issubclass(ERRORS[kind], HttpError)
    }
    if not errors & {"QueueFull", "LogFull"}:
        errors.discard("MessageTooLarge")  # only the body of a request can be too large
    of_all = OF_ALL[mine[0].of] | {"InvalidValue", "Unavailable"}
    documented = named(mine[0].of, name.partition(".")[2])
    never = {error for row in mine for error in row.method.never.split()}
    assert documented - errors - of_all == set()
    assert errors - documented - of_all - never == set()


def test_the_page_of_the_library_lists_all_methods_of_a_queue() -> None:
    page = (HOME / "docs" / "library.md").read_text()
    table = page.partition("| on a queue | |\n")[2].partition("\n\n")[0]
    listed = [
        (name, re.findall(r"\w+", arguments))
        for line in table.splitlines()
        for name, arguments in re.findall(r"`(\w+)\(([^`]*)\)`", line.partition(" | ")[0])
    ]
    public = {name for name in dir(Queue) if not name.startswith("_")} - {"spool", "name"}
    assert {name for name, _ in listed} == public
    for name, arguments in listed:
        assert set(arguments) <= inspect.signature(getattr(Queue, name)).parameters.keys(), name
