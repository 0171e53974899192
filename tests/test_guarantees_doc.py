"""The tests that docs/guarantees.md names exist, and so does the long run."""

from __future__ import annotations

import re

from tests.harness.suite import HOME

PAGE = (HOME / "docs" / "guarantees.md").read_text()


def test_every_named_test_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)`", PAGE)
    assert len(set(named)) > 8
    assert [path for path in named if not (HOME / path).is_file()] == []


def test_every_guarantee_names_a_test() -> None:
    rows = re.findall(r"(?m)^\| \d+ \|.*$", PAGE)
    assert len(rows) == 9
    for row in rows:
        tests = row.rstrip("| ").rpartition("|")[2]
        assert "tests/" in tests or tests.strip() == "the same", row


def test_the_long_run_is_a_target_with_the_documented_rounds() -> None:
    assert re.search(r"(?m)^soak: ", (HOME / "Makefile").read_text())
    soak = (HOME / "tests" / "soak" / "power.py").read_text()
    assert "2,000, in all configurations, of `make soak`" in PAGE
    assert '"rounds", default=2000' in soak
