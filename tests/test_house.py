"""Size, names and calls of modules. `make lint` checks their imports."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.harness.suite import HOME
from tests.harness.verbs_called import calls_in

MODULES = sorted((HOME / "fsmq").rglob("*.py"))
# Modules of dialects may have the same name, and each module of `_sync` is generated from the one
# of that name in `_async`.
DIALECTS = ("native", "emodb", "dynamiq", "sqs", "ui")
NAMELESS = ("__init__.py", "__main__.py")


def test_no_module_has_more_than_400_lines() -> None:
    lines = {str(path): path.read_text().count("\n") for path in MODULES}
    assert {path: number for path, number in lines.items() if number > 400} == {}


def test_the_number_of_lines_is_within_the_limits() -> None:
    """Decision 36: lower the limits when code is removed, and justify a higher one in a commit."""
    fsmq, optional = HOME / "fsmq", ("http", "client", "dyno", "pipeline", "tasks")
    parts = [fsmq / name for name in (*optional, "cli/pipeline", "cli/work.py")]
    parts.append(fsmq / "daemons" / "serving.py")
    lines: Counter[str] = Counter()
    for path in [*MODULES, *(HOME / "tests").rglob("*.py")]:
        number = path.read_text().count("\n")
        if fsmq not in path.parents:
            lines["tests"] += number
        elif "_sync" not in path.parts:  # generated
            lines["fsmq"] += number
            lines["the core"] += 0 if any(path.is_relative_to(part) for part in parts) else number
    limits = {"fsmq": 100_000, "the core": 56_000, "tests": 112_500}
    assert {name: lines[name] for name in limits if lines[name] > limits[name]} == {}


def test_no_folder_has_more_than_20_modules() -> None:
    """A longer listing is hard to read."""
    modules = Counter(str(path.parent.relative_to(HOME)) for path in MODULES)
    assert {folder: number for folder, number in modules.items() if number > 20} == {}


@pytest.mark.parametrize(
    "package", ["cli", "client", "daemons", "http", "pipeline", "spool", "tasks"]
)
def test_module_names_are_unique_in_a_package(package: str) -> None:
    apart = {*DIALECTS, "_sync"}

    def is_counted(path: Path) -> bool:
        return path.name not in NAMELESS and not apart & set(path.relative_to(HOME).parts)

    folder = HOME / "fsmq" / package
    names = Counter(path.name for path in MODULES if folder in path.parents and is_counted(path))
    assert [name for name, number in names.items() if number > 1] == []


def test_each_part_of_the_spool_is_public_or_private() -> None:
    """HTTP and Spark cannot import a new part before it is listed here or in pyproject.toml."""
    spool = HOME / "fsmq" / "spool"
    parts = {path.stem for path in spool.iterdir() if path.name[:2] != "__"}
    contracts = tomllib.loads((HOME / "pyproject.toml").read_text())["tool"]["importlinter"]
    [behind] = [
        {name.removeprefix("fsmq.spool.") for name in contract["forbidden_modules"]}
        for contract in contracts["contracts"]
        if contract["name"] == "HTTP and Spark reach the spool by its front"
    ]
    others = {"overview", "cluster"}  # parts of the class Spool
    front = {"checks", "errors", "inspection", "on_disk", "prepare", "resources", "shared_jobs"}
    assert parts == behind | front | others


def test_no_literal_tuple_is_unpacked_into_arguments() -> None:
    """It saves lines and hides the call."""
    found = [
        f"{path.relative_to(HOME)}:{node.lineno}"
        for folder in ("fsmq", "tests", "benchmarks")
        for path in sorted((HOME / folder).rglob("*.py"))
        if re.search(r"\*\s*[(\[]", text := path.read_text())  # parsing everything is slow
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Starred)
        and isinstance(node.ctx, ast.Load)
        and isinstance(node.value, ast.Tuple | ast.List)
    ]
    assert found == []


# Verbs that change nothing may be called anywhere.
READING = {
    "Channel.again_in", "Channel.changed_at", "Channel.state", "Log.page", "Log.stats",
    "Logs.names", "Schedule.next", "Schedule.state", "Spool.complete", "Spool.counts",
    "Spool.events_fileno", "Spool.has_queue", "Spool.queues", "Spool.schedules", "Spool.settings",
    "Spool.subscriptions", "Spool.survey", "Spool.topics", "by_id.check_free", "by_id.find_id",
    "choice.flat", "dedup.read_side", "dedup.write_side", "order.find", "order.holders",
    "order.latest", "publish.copies_of", "publish.copy_of", "several.has_more",
}  # fmt: skip


def test_http_calls_each_changing_verb_in_one_place() -> None:
    """In every dialect, on the fast path or not: decision 25."""
    called: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted((HOME / "fsmq" / "http").rglob("*.py")):
        for verb, line in calls_in(path):
            called[verb].append(f"{path.relative_to(HOME)}:{line}")
    assert called.keys() >= {"put.put", "creation.change", "Schedule.replace", "Channel.claim_each"}
    assert called.keys() >= READING
    changing = {verb: places for verb, places in called.items() if verb not in READING}
    assert {verb: places for verb, places in changing.items() if len(places) > 1} == {}
