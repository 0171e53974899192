"""The commands of the documentation are run, and its links are checked."""

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

# Reasons not to run a block. Keep the list short: nothing checks these blocks.
REASONS = {
    "it needs systemd and root",
    "it needs root",
    "it takes several hosts",
    "it installs PySpark, which is 450 MB",
    "another test installs the wheel and starts it",
}
# The others are in tests/pipeline/.
WITHOUT_SPARK = [page for page in pages_run() if not uses_spark(page)]


# cli.md starts about sixty interpreters: minutes on a busy machine.
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", WITHOUT_SPARK, ids=name)
def test_every_command_of_a_page_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    if (missing := missing_tool(page)) is not None:
        pytest.skip(missing)
    with Reader(page, tmp_path) as reader:
        reader.follow_all()


@pytest.mark.parametrize("page", pages(), ids=name)
def test_a_block_that_is_not_run_has_a_known_reason(page: Path) -> None:
    for block in blocks(page):
        why = block.why_not_run
        assert why is None or why in REASONS, f"{name(page)}, line {block.line}"


@pytest.mark.parametrize("page", pages(), ids=name)
def test_lines_of_prose_have_at_most_120_characters(page: Path) -> None:
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    prose = [line for line in text.splitlines() if not line.startswith(("|", "    "))]
    assert [line for line in prose if len(line) > 120] == []


@pytest.mark.parametrize("page", pages(), ids=name)
def test_named_release_files_have_the_current_version(page: Path) -> None:
    named = re.findall(r"fsmq-(\d+\.\d+\.\d+)", page.read_text())
    assert {*named} <= {__version__}


@pytest.mark.parametrize("page", pages(), ids=name)
def test_link_targets_exist(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_index_of_howtos_has_every_page() -> None:
    folder = HOME / "docs" / "howto"
    howtos = {page.name for page in folder.glob("*.md")} - {"index.md"}
    listed = set(re.findall(r"\]\((\w[\w-]*\.md)\)", (folder / "index.md").read_text()))
    assert howtos == listed


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
