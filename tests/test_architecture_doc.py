"""docs/architecture.md and CONTRIBUTING.md: what they name is there."""

from __future__ import annotations

import ast
import re

import pytest

from tests.harness.suite import HOME

PAGE = (HOME / "docs" / "architecture.md").read_text()
CONTRIBUTING = (HOME / "CONTRIBUTING.md").read_text()
STEPS = re.findall(r"`((?:\w+/)*\w+\.py): ([\w.]+)`", PAGE)


def defined(path: str) -> set[str]:
    """The functions, classes and methods of a module, methods as ``Class.method``."""
    names = set()
    for node in ast.parse((HOME / "fsmq" / path).read_text()).body:
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{method.name}" for method in node.body if is_function(method)}
        if is_function(node) or isinstance(node, ast.ClassDef):
            names.add(node.name)
    return names


def is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def test_the_ways_have_steps() -> None:
    assert len(STEPS) > 20


@pytest.mark.parametrize(("path", "name"), STEPS)
def test_each_step_is_where_the_page_says(path: str, name: str) -> None:
    assert name in defined(path)


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"`((?:fsmq|tests)/(?:\w+/)*\w+\.py)`", CONTRIBUTING)))
)
def test_each_file_to_read_is_there(path: str) -> None:
    assert (HOME / path).is_file()


def test_each_room_is_there() -> None:
    rooms = set(re.findall(r"`(\w+/)`", PAGE)) - {"new/", "delay/", "remove/"}
    folders = {f"{path.name}/" for path in (HOME / "fsmq").rglob("*") if path.is_dir()}
    assert rooms <= folders
    assert len(rooms) > 15
