"""docs/guarantees.md names proofs: they are there, and so is the way to run the long ones."""

from __future__ import annotations

import re

from tests.harness.suite import HOME

PAGE = (HOME / "docs" / "guarantees.md").read_text()


def test_every_test_that_is_named_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)`", PAGE)
    assert len(set(named)) > 8
    assert [path for path in named if not (HOME / path).is_file()] == []


def test_every_promise_names_a_proof() -> None:
    rows = re.findall(r"(?m)^\| \d+ \|.*$", PAGE)
    assert len(rows) == 9
    for row in rows:
        proof = row.rstrip("| ").rpartition("|")[2]
        assert "tests/" in proof or proof.strip() == "the same", row


def test_the_long_run_is_a_target_and_its_numbers_are_those_told() -> None:
    assert re.search(r"(?m)^soak: ", (HOME / "Makefile").read_text())
    soak = (HOME / "tests" / "soak" / "power.py").read_text()
    assert "2,000, in all configurations, of `make soak`" in PAGE
    assert '"rounds", default=2000' in soak
