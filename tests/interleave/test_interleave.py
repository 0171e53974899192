"""No promise is broken if a verb is stopped before any of its calls while others act.

This part takes a minute; ``python -m tests.soak.interleavings`` runs all.
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

# Calls that neither read nor change a tree.
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
    "eventfd",  # threads of one process wake each other with it
    "eventfd_write",
}
# Modules of peers, journals and rejected rows, which no client here uses.
ELSEWHERE = {"peers.py", "journal.py", "rejected.py"}
# Packages that do not act on messages.
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
            trace = "\n".join(explorer.trace(finding).trace)
            pytest.fail(f"{plan}, stopped before {finding.stops}:\n{trace}\n=> {finding.what}")
        assert done.schedules > 1


def test_a_verb_can_be_stopped_before_each_call_of_the_spool() -> None:
    found = set()
    for path in (HOME / "fsmq" / "spool").rglob("*.py"):
        if path.name in ELSEWHERE or path.parent.name in NO_VERBS:
            continue
        found |= set(re.findall(r"\b(os|fcntl)\.([a-z_0-9]+)\(", path.read_text()))
    known = {("os", name) for name in (*gate.CALLS, *HARMLESS)} | set(gate.OTHER_CALLS)
    assert found <= known
