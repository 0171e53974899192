"""Crash states after a failed call, or after a program started at a call, of any verb.

Answers hold after a later power cut, whether the rollback of a verb or the actions of the other
program are durable or not.
"""

from __future__ import annotations

import pytest

from tests.replay.plans import HAPPENINGS, WITHOUT_HAPPENINGS, with_happening
from tests.replay.scenario import check_scenario
from tests.replay.verbs import VERBS

# The tests run each verb with one happening at one of its first calls; the soak runs all.
_CALLS = 11
_VERBS = [verb for verb in VERBS if verb not in WITHOUT_HAPPENINGS]
CASES = [
    (verb, HAPPENINGS[number % len(HAPPENINGS)], 5 * number % _CALLS)
    for number, verb in enumerate(_VERBS)
]
# Cases that found a fault.
CASES += [("stage", "fails", 15), ("stage", "meets a program that starts", 25)]
CASES += [("dead_bury", "fails", 1)]


@pytest.fixture(scope="module")
def seen() -> set[object]:
    """States that were inspected before."""
    return set()


@pytest.mark.parametrize(("verb", "happening", "at"), CASES)
def test_no_crash_state_breaks_a_promise(
    verb: str, happening: str, at: int, seen: set[object]
) -> None:
    assert check_scenario(with_happening(verb, happening, at), seen=seen).broken == []
