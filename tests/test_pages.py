"""The documentation keeps its word: its commands are run, its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fsmq._version import __version__
from tests.harness.pages import (
    Reader,
    blocks,
    missing_tool,
    name,
    pages,
    pages_run,
    steps,
    uses_spark,
)
from tests.harness.suite import HOME

# Why a block may be exempt from being run. Keep it short: each is a promise that nobody checks.
REASONS = {
    "it needs systemd and root",
    "it needs root",
    "it takes several hosts",
    "it installs PySpark, which is 450 MB",
    "another test installs the wheel and starts it",
}


# What the site has and the repository has not.
MADE = {"http-reference.md", "paper.html"}


# Those that do are in tests/pipeline/.
WITHOUT_SPARK = [page for page in pages_run() if not uses_spark(page)]


# A page of the command starts some sixty interpreters: minutes on a machine that is busy otherwise.
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", WITHOUT_SPARK, ids=name)
def test_every_command_of_a_page_does_what_the_page_says(page: Path, tmp_path: Path) -> None:
    if (missing := missing_tool(page)) is not None:
        pytest.skip(missing)
    with Reader(page, tmp_path) as reader:
        reader.follow_all()


@pytest.mark.parametrize("page", pages(), ids=name)
def test_what_is_not_run_says_why(page: Path) -> None:
    for block in blocks(page):
        why = block.why_not_run
        assert why is None or why in REASONS, f"{name(page)}, line {block.line}"


@pytest.mark.parametrize("page", pages(), ids=name)
def test_prose_has_lines_of_120_characters_at_most(page: Path) -> None:
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    prose = [line for line in text.splitlines() if not line.startswith(("|", "    "))]
    assert [line for line in prose if len(line) > 120] == []


@pytest.mark.parametrize("page", pages(), ids=name)
def test_files_of_a_release_have_its_version(page: Path) -> None:
    named = re.findall(r"fsmq-(\d+\.\d+\.\d+)", page.read_text())
    assert {*named} <= {__version__}


@pytest.mark.parametrize("page", pages(), ids=name)
def test_a_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists() or target in MADE, target


def test_the_list_of_tasks_has_every_one() -> None:
    folder = HOME / "docs" / "howto"
    tasks = {page.name for page in folder.glob("*.md")} - {"index.md"}
    listed = set(re.findall(r"\]\((\w[\w-]*\.md)\)", (folder / "index.md").read_text()))
    assert tasks == listed


def test_a_wrong_example_is_found(tmp_path: Path) -> None:
    page = HOME / "docs" / "http.md"
    [step, *_] = steps(blocks(page)[0])
    if (missing := missing_tool(page)) is not None:
        pytest.skip(missing)
    with Reader(page, tmp_path) as reader:
        for command in ("false", "echo something else", "exit 3"):
            step.command, step.shown = command, ["something"]
            with pytest.raises(AssertionError):
                reader.follow(step)
