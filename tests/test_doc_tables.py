"""Names, defaults and ranges in tables with prose are those of the code.

Tables without prose are generated: tests/harness/doc_tables.py.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import click
import pytest

from fsmq import AsyncClient, Client, Queue
from fsmq.cli import main
from fsmq.cli.messages import command
from fsmq.client.options import Options
from fsmq.daemons.settings.settings import OF_DIALECTS, SETTINGS
from fsmq.kinds import Setting
from fsmq.spool import Message, NewMessage, Spool
from fsmq.spool.indexed import Indexed
from fsmq.spool.schedules import schedule_settings
from fsmq.spool.worker.handlers import OPTIONS
from fsmq.units import seconds
from tests.harness.described import json_body, routes_by_id
from tests.harness.doc_tables import DOCS, for_people, told

PROGRAMS = {one.name: one for one in (*SETTINGS, *OF_DIALECTS) if one.default is not None}
PAGES = sorted(DOCS.rglob("*.md"))


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def _body(name: str) -> Mapping[str, Any]:
    return json_body(routes_by_id()[name].operation)


# -- options of programs ---------------------------------------------------------------------------


def shows_default(text: str, setting: Setting) -> bool:
    """Whether a text has the default of a setting, in the form of the docs."""
    default = for_people(setting.default, setting.kind.unit).strip("`")
    return re.search(rf"(?<![\w.]){re.escape(default)}(?![\w.])", text.replace(",", "")) is not None


def test_the_limits_of_mq_have_their_defaults() -> None:
    named = set()
    for limit, default, option, _ in told(
        "security.md", ("what", "default", "option", "beyond it")
    ):
        for name in re.findall(r"`--([a-z-]+)`", option):
            assert shows_default(default, PROGRAMS[name]), limit
            named.add(name)
    limits = {one.name for one in SETTINGS if one.group == "Limits"}
    assert limits - named == {"shutdown-timeout"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_defaults_beside_options_are_right(page: Path) -> None:
    text = page.read_text()
    beside = [
        *re.findall(r"`--(?P<name>[a-z-]+)` \(([^()]*\d[^()]*)\)", text),
        *((name, text) for text, name in re.findall(r"\(([^()]*\d[^()]*, `--([a-z-]+)`)", text)),
        *re.findall(r"\(`--([a-z-]+)`, (\d[^()]*)\)", text),
    ]
    for name, words in beside:
        if re.match(r"[\d,.]+(?: \w+)?$", words) or "`--" in words:
            given = [shows_default(words, PROGRAMS[name])] if name in PROGRAMS else []
            given += [is_default(words, default) for default in of_commands(name)]
            assert any(given), (name, words)


def of_commands(name: str, group: click.Group = main) -> list[Any]:
    """The defaults of an option in all commands that have it."""
    found = []
    context = click.Context(group)
    for verb in group.list_commands(context):
        command = group.get_command(context, verb)
        assert command is not None
        if isinstance(command, click.Group):
            found += of_commands(name, command)
        found += [p.to_info_dict()["default"] for p in command.params if f"--{name}" in p.opts]
    return found


def test_the_options_of_the_journal_have_their_defaults() -> None:
    command: Any = main
    for verb in ("pipeline", "journal"):
        command = command.get_command(click.Context(command), verb)
    taken = {name: one for one in command.params for name in one.opts}
    for names, default, _ in told("analytics.md", ("option", "default", "")):
        given = zip(re.findall(r"(--[a-z-]+)", names), default.split(", "), strict=False)
        for name, cell in given:
            of = taken[name].to_info_dict()["default"]
            assert not cell[:1].isdigit() or seconds(cell) == seconds(str(of)), name


def is_default(words: str, default: Any) -> bool:
    try:
        return default is not None and seconds(words) == float(default)
    except (TypeError, ValueError):
        return False


# -- library and clients ---------------------------------------------------------------------------


def test_the_table_of_client_options_is_right() -> None:
    rows = told("client.md", ("option of a client", "unit", "default", "meaning"))
    known = {one.name: one.default for one in fields(Options) if one.default is not MISSING}
    assert [name.strip("`") for name, *_ in rows] == list(known)
    for name, _, default, _ in rows:
        of = known[name.strip("`")]
        assert of is None or default == f"{of:g}", name
    for made in (Client, AsyncClient):
        parameters = inspect.signature(made).parameters
        assert {n: parameters[n].default for n in known} == known


def test_the_options_of_workers_have_their_defaults() -> None:
    parameters = inspect.signature(Queue.worker).parameters
    assert {name: parameters[name].default for name in OPTIONS} == {
        name: one.default for name, one in OPTIONS.items()
    }
    text = inspect.getdoc(Queue.worker) or ""
    for name, low, high in re.findall(r"^(\w+): .*?([\d.]+) to (\d+)", text, re.M):
        assert OPTIONS[name].kind.limits == f"{low} to {high}"


# -- bodies of requests ----------------------------------------------------------------------------


def test_the_fields_of_a_batch_are_those_of_its_schema() -> None:
    names = [name for field, _ in told("http.md", ("field", "meaning")) for name in quoted(field)]
    assert sorted(names) == sorted(_body("batch")["items"]["properties"])


def test_the_table_of_acts_by_id_is_right() -> None:
    rows = told("http.md", ("`do`", "with", "acts on", "result"))
    schema = _body("act_by_id")["properties"]
    assert [verb.strip("`") for verb, *_ in rows] == schema["do"]["enum"]
    for _, given, *_ in rows:
        assert set(quoted(given)) <= schema.keys()
        for low, high in re.findall(r"(\d+) to (\d+) ids", given):
            assert (int(low), int(high)) == (schema["ids"]["minItems"], schema["ids"]["maxItems"])


def test_acts_by_id_accept_the_states_of_the_table(tmp_path: Path) -> None:
    acts: Mapping[str, Callable[[Indexed], object]] = {
        "find": lambda jobs: jobs.find("a"),
        "claim": lambda jobs: jobs.claim("a", 30),
        "ack": lambda jobs: any(jobs.ack("a")),
        "remove": lambda jobs: any(jobs.remove("a")),
        "renew": lambda jobs: jobs.renew("a", 30),
        "postpone": lambda jobs: jobs.postpone("a", 5),
    }
    for verb, _, acts_on, _ in told("http.md", ("`do`", "with", "acts on", "result")):
        done = set()
        for state in _STATES:
            with Spool(tmp_path / f"{verb[1:-1]}-{state}", sync="none") as spool:
                spool.create_queue("jobs", index=True)
                jobs = spool.indexed("jobs")
                jobs.upsert([NewMessage(b"", id="a", delay=60.0 if state == "delayed" else 0.0)])
                if state != "new":
                    spool.deliver()
                if state == "in flight":
                    jobs.claim("a", 30)
                if acts[verb.strip("`")](jobs):
                    done.add(state)
        assert done == set(_STATES if acts_on == "any state" else acts_on.split(", ")), verb


_STATES = ("new", "ready", "in flight", "delayed")


def test_the_format_has_the_members_of_a_schedule() -> None:
    text = (DOCS / "format.md").read_text().partition("\n## 21.")[2]
    table = text.partition("| member | meaning |\n| --- | --- |\n")[2].partition("\n\n")[0]
    names = [one for line in table.splitlines() for one in quoted(line.split(" | ")[0])]
    assert sorted(names) == sorted([*schedule_settings.SETTINGS, "body_base64"])
    assert f"at most {schedule_settings.MAX_SCHEDULE_BYTES} bytes" in text
    assert f"at most {schedule_settings.MAX_BODY_BYTES} bytes" in table
    catch_up = schedule_settings.SETTINGS["catch_up"]
    assert f"`{catch_up.default}` (default)" in table


# -- the command line ------------------------------------------------------------------------------


def test_the_table_of_environment_variables_is_right() -> None:
    rows = re.findall(r"^\| (`FSMQ_\w+`.*?) \|", (DOCS / "cli.md").read_text(), re.M)
    names = [name for cell in rows for name in quoted(cell)]
    message = Message("jobs", "a", b"", 1, None, attributes={"name": "x"})
    assert sorted(names) == sorted([*command.facts(message), "FSMQ_AT"])  # not of a message


# -- Spark -----------------------------------------------------------------------------------------

_HEADS = ("option", "default", "meaning")
SPARK = [
    ("spark.md", _HEADS, 0, "read.snapshot", "OPTIONS"),
    ("spark.md", _HEADS, 1, "read.stream", "OPTIONS"),
    ("spark.md", _HEADS, 2, "write.writer", "OPTIONS"),
    ("logs.md", ("option", "", "default"), 0, "logs.source", "STREAM_OPTIONS"),
]


@pytest.mark.parametrize(("page", "heads", "which", "module", "known"), SPARK)
def test_the_tables_of_spark_options_are_right(
    page: str, heads: tuple[str, ...], which: int, module: str, known: str
) -> None:
    code = importlib.import_module(f"fsmq.pipeline.{module}")
    given = re.findall(r'given\.integer\("(\w+)", (\w+)\)', inspect.getsource(code))
    defaults = {name: getattr(code, value, None) for name, value in given}
    names = []
    for row in told(page, heads, which):
        default = row[heads.index("default")]
        names += quoted(row[0])
        for name in quoted(row[0]):
            assert not default.isdecimal() or int(default) == defaults[name], name
    assert set(getattr(code, known)) <= set(names)
