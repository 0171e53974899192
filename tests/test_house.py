"""The modules: small, and found by name. `make lint` checks who may import whom."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.harness.suite import HOME

MODULES = sorted((HOME / "fsmq").rglob("*.py"))
# A file of each dialect may have the name of its counterpart in another. What stands in `_sync` is
# made from what has its name in `_async`.
DIALECTS = ("native", "emodb", "dynamiq", "sqs", "ui")
NAMELESS = ("__init__.py", "__main__.py")


def test_no_module_has_more_than_400_lines() -> None:
    lines = {str(path): path.read_text().count("\n") for path in MODULES}
    assert {path: number for path, number in lines.items() if number > 400} == {}


def test_no_folder_has_more_than_20_modules() -> None:
    """So that its listing can be read like a table of contents."""
    modules = Counter(str(path.parent.relative_to(HOME)) for path in MODULES)
    assert {folder: number for folder, number in modules.items() if number > 20} == {}


@pytest.mark.parametrize("package", ["cli", "client", "daemons", "http", "pipeline", "spool"])
def test_a_name_leads_to_one_module_of_a_package(package: str) -> None:
    apart = {*DIALECTS, "_sync"}

    def is_counted(path: Path) -> bool:
        return path.name not in NAMELESS and not apart & set(path.relative_to(HOME).parts)

    folder = HOME / "fsmq" / package
    names = Counter(path.name for path in MODULES if folder in path.parents and is_counted(path))
    assert [name for name, number in names.items() if number > 1] == []


def test_arguments_are_written_as_arguments() -> None:
    """And not as a tuple that is unpacked at once, which saves lines and hides the call."""
    found = [
        f"{path.relative_to(HOME)}:{node.lineno}"
        for folder in ("fsmq", "tests", "benchmarks")
        for path in sorted((HOME / folder).rglob("*.py"))
        if re.search(r"\*\s*[(\[]", text := path.read_text())  # to parse all takes long
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Starred)
        and isinstance(node.ctx, ast.Load)
        and isinstance(node.value, ast.Tuple | ast.List)
    ]
    assert found == []


def test_each_verb_of_the_spool_is_called_in_one_place_of_the_server() -> None:
    """Whatever the dialect, and whichever way a request came: decision 25."""
    called = Counter(
        name
        for path in (HOME / "fsmq" / "http").rglob("*.py")
        for name in re.findall(r"prepare\.(\w+)[(,]", path.read_text())
    )
    assert called["put"] == called["claim_in"] == 1
    assert {name: number for name, number in called.items() if number > 1} == {}
