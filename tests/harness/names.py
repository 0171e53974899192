"""Names in the prose of the docs, and the names that exist: of requests, options and Python.

`tests/test_names_in_docs.py` compares them.
"""

from __future__ import annotations

import builtins
import inspect
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import click

import fsmq
from fsmq.cli import main
from fsmq.cli.grammar import OLDER, SYNONYMS
from fsmq.daemons.settings.settings import SETTINGS
from fsmq.http.describe import Component, Operation
from fsmq.http.guard.keys import RIGHTS
from fsmq.http.problem_answers import PROBLEM
from fsmq.http.problems import PROBLEM_TYPES
from fsmq.spool import Channel, Log, Schedule
from fsmq.spool._sync.selection import Selection
from fsmq.spool.indexed import Indexed
from tests.harness.described import native_routes

_BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_OPTION = r"(?<![\w-])--[a-z][a-z-]*"
_BEFORE_VALUE = r"(?<![\w.-])([A-Za-z_]\w*)=(?!=)"
_MEMBER = r'"(\w+)":'
_CALL = r"(?:[\w.]*\.)?([A-Za-z_][\w-]*)(?:\((.*)\))?"
_GIVEN = r"(?<![\w.\"'])[a-z_]\w*(?=,|$)"


def names(markdown: str) -> set[str]:
    """The names in the code spans of a text: options, parameters, members, calls and their
    arguments. Blocks of code are left out; a test runs them.
    """
    found: set[str] = set()
    for span in re.findall(r"`([^`\n]+)`", _BLOCK.sub("", markdown)):
        for pattern in (_OPTION, _BEFORE_VALUE, _MEMBER):
            found.update(re.findall(pattern, span))
        if call := re.fullmatch(_CALL, span):
            found.update((call[1], *re.findall(_GIVEN, call[2] or "")))
    return found


def of_schema(schema: Any, inside: tuple[str, ...] = ()) -> Iterator[str]:
    """The members and enumerated words of a schema, at any depth.

    inside: the components around it; one may refer to itself.
    """
    if isinstance(schema, Component):
        if schema.name not in inside:
            yield from of_schema(schema.schema, (*inside, schema.name))
    elif isinstance(schema, dict):
        yield from (*schema.get("properties", ()), *map(str, schema.get("enum", ())))
        yield from of_schema([*schema.values()], inside)
    elif isinstance(schema, list | tuple):
        for value in schema:
            yield from of_schema(value, inside)


def taken_and_given(operation: Operation, below: int = 400) -> Iterator[str]:
    """Parameters, headers, members and words, with the answers of lower statuses."""
    for parameter in operation.parameters:
        yield parameter.name.partition(".")[0]
        yield from of_schema(parameter.schema)
    answers = [answer for status, answer in operation.answers.items() if status < below]
    for answer in answers:
        yield from answer.headers
    for content in (answer.content for answer in answers):
        yield from of_schema([*content.values()])
    if operation.body is not None:
        yield from of_schema([*operation.body.content.values()])


def of_operation(operation: Operation) -> Iterator[str]:
    """The same with errors and the names in descriptions."""
    yield from taken_and_given(operation, below=600)
    texts = [operation.description, *(one.description for one in operation.parameters)]
    texts += [answer.description for answer in operation.answers.values()]
    if operation.body is not None:
        texts.append(operation.body.description)
    yield from names("\n".join(texts))


@cache
def wire() -> frozenset[str]:
    """All names of the native dialect, with its errors, rights and methods."""
    found = {*of_schema(PROBLEM), *RIGHTS, *(one.kind for one in PROBLEM_TYPES.values())}
    for route in native_routes():
        found.update((route.method, *of_operation(route.operation)))
    return frozenset(found)


def each_command(of: click.Command = main, name: str = "fsmq") -> Iterator[tuple[str, set[str]]]:
    """Each command of ``fsmq``, with its options, arguments and their short forms."""
    yield name, {one for param in of.params for one in (*param.opts, *param.secondary_opts)}
    if isinstance(of, click.Group):
        for verb in of.list_commands(click.Context(of)):
            below = of.get_command(click.Context(of), verb)
            assert below is not None
            yield from each_command(below, f"{name} {verb}")


@cache
def commands() -> frozenset[str]:
    """The verbs of ``fsmq`` with their options and arguments, and the settings of programs."""
    found = {"--help", "--version", "mq", "mq-mover", "mq-reaper"}
    for name, options in each_command():
        found.update((name.rpartition(" ")[2], *options))
    for setting in SETTINGS:
        found.update((f"--{setting.name}", f"--no-{setting.name}", setting.variable))
    return frozenset(found)


@cache
def older() -> frozenset[str]:
    """The words of older forms of commands."""
    words = " ".join(" ".join((form, *by_option)) for form, by_option in OLDER.items())
    return frozenset({*SYNONYMS, *filter(str.islower, words.split()), "--backoff-limit"})


@cache
def python() -> frozenset[str]:
    """Public names of the library and the clients: classes, members and parameters."""
    found = {*dir(builtins), *dir(fsmq)}
    public = [getattr(fsmq, name) for name in dir(fsmq)]
    for one in (*public, Selection, Indexed, Log, Channel, Schedule):
        if inspect.isclass(one):
            members = [name for name in dir(one) if name == "__init__" or name[0] != "_"]
            found.update((one.__name__, *members, *getattr(one, "__annotations__", ())))
            for name in members:
                found.update(_parameters(getattr(one, name)))
    return frozenset(found)


def _parameters(function: Any) -> list[str]:
    try:
        return [*inspect.signature(function).parameters]
    except (TypeError, ValueError):  # it cannot be called, or is written in C
        return []
