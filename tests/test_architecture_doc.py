"""The functions and files that docs/architecture.md and CONTRIBUTING.md name exist."""

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


def test_the_page_names_steps() -> None:
    assert len(STEPS) > 20


@pytest.mark.parametrize(("path", "name"), STEPS)
def test_a_step_exists_in_the_named_module(path: str, name: str) -> None:
    assert name in defined(path)


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"`((?:fsmq|tests)/(?:\w+/)*\w+\.py)`", CONTRIBUTING)))
)
def test_a_file_that_contributing_names_exists(path: str) -> None:
    assert (HOME / path).is_file()


def test_each_package_that_the_page_names_exists() -> None:
    packages = set(re.findall(r"`(\w+/)`", PAGE)) - {"new/", "delay/", "remove/"}
    folders = {f"{path.name}/" for path in (HOME / "fsmq").rglob("*") if path.is_dir()}
    assert packages <= folders
    assert len(packages) > 15
