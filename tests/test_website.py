"""The documentation site builds without warnings and has every page."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from fsmq.spool.layout import transitions
from tests.harness.suite import HOME

SITE = HOME / "build" / "site"


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "website"], cwd=HOME, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_site_has_every_page() -> None:
    for page in (HOME / "docs").rglob("*.md"):
        name = page.relative_to(HOME / "docs").with_suffix(".html")
        assert (SITE / name).exists(), f"zensical.toml does not name {name}"


def test_the_reference_has_every_request() -> None:
    page = (SITE / "http-reference.html").read_text()
    document = json.loads((SITE / "openapi.json").read_text())
    assert len(document["paths"]) > 5
    for path, methods in document["paths"].items():
        for method in set(methods) - {"head"}:
            assert f"<code>{method.upper()} {path}</code>" in page


def test_links_within_the_printed_document_have_targets() -> None:
    paper = (SITE / "paper.html").read_text()
    ids = set(re.findall(r'\bid="([^"]*)"', paper))
    targets = set(re.findall(r'href="#([^"]*)"', paper))
    assert len(targets) > 10
    assert targets <= ids


def test_the_drawing_of_the_life_cycle_has_every_transition() -> None:
    drawing = (HOME / "docs" / "lifecycle.svg").read_text()
    verbs = set(re.findall(r'class="verb[^"]*"[^>]*>(\w+)<', drawing))
    steps = {
        name.lower().partition("_")[0]
        for name, value in vars(transitions).items()
        if isinstance(value, transitions.Transition)
    }
    # Moves to another queue (also pulls) or priority are not drawn. A put, a renewal and a reap are
    # drawn and are no transition. Transitions that differ only in their reason share one arrow.
    same = {"ripen": "redeliver", "expire": "remove", "purge": "remove", "postpone": "claim"}
    steps = {same.get(s, s) for s in steps}
    assert verbs == (steps - {"move", "pull", "reprioritize"}) | {"put", "renew", "reap"}
