"""No promise is broken if a verb is stopped before any of its calls, and others act meanwhile.

This is the part that fits a minute; ``python -m tests.interleave`` is all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.suite import HOME
from tests.interleave import gate
from tests.interleave.explore import Explorer
from tests.interleave.plans import quick
from tests.interleave.verbs import VERBS

# Those that neither look at a tree nor change it.
HARMLESS = {
    "fsencode",
    "fsdecode",
    "strerror",
    "urandom",
    "register_at_fork",
    "getpid",
    "geteuid",
    "access",
    "cpu_count",
    "sysconf",
    "uname",
    "major",
    "minor",
    "eventfd",  # by which threads of one process wake each other
    "eventfd_write",
}
# Neither which programs live, nor journals, nor tables of rejected rows: no client here has any.
ELSEWHERE = {"peers.py", "journal.py", "rejected.py"}
# None of these acts on a message: they look, or they write outside the tree.
NO_VERBS = {"fsck", "probe", "backup"}


@pytest.fixture
def explorer(scratch: Path) -> Iterator[Explorer]:
    with Explorer(scratch).running() as running:
        yield running


@pytest.mark.parametrize("verb", VERBS)
def test_no_interleaving_breaks_a_promise(explorer: Explorer, verb: str) -> None:
    for plan in quick(verb):
        done = explorer.explore(plan)
        for finding in done.findings[:1]:
            told = "\n".join(explorer.tell(finding).told)
            pytest.fail(f"{plan}, stopped before {finding.stops}:\n{told}\n=> {finding.what}")
        assert done.schedules > 1


def test_a_verb_can_be_stopped_before_each_call_of_the_spool() -> None:
    found = set()
    for path in (HOME / "fsmq" / "spool").rglob("*.py"):
        if path.name in ELSEWHERE or path.parent.name in NO_VERBS:
            continue
        found |= set(re.findall(r"\b(os|fcntl)\.([a-z_0-9]+)\(", path.read_text()))
    known = {("os", name) for name in (*gate.CALLS, *HARMLESS)} | set(gate.OTHER_CALLS)
    assert found <= known
