"""Crash states behind a call that failed, or at which a program started, at any call of a verb.

What was answered holds, also if the power fails later: what a verb has taken back, or what the
other program has done, may be durable or not.
"""

from __future__ import annotations

import pytest

from tests.replay.plans import HAPPENINGS, WITHOUT_HAPPENINGS, with_happening
from tests.replay.scenario import check_scenario
from tests.replay.verbs import VERBS

# With the tests each verb has one of them, at one of its first calls; in the soak it has all.
_CALLS = 11
_VERBS = [verb for verb in VERBS if verb not in WITHOUT_HAPPENINGS]
CASES = [
    (verb, HAPPENINGS[number % len(HAPPENINGS)], 5 * number % _CALLS)
    for number, verb in enumerate(_VERBS)
]
# At which something was found.
CASES += [("stage", "fails", 15), ("stage", "meets a program that starts", 25)]
CASES += [("dead_bury", "fails", 1)]


@pytest.fixture(scope="module")
def seen() -> set[object]:
    """States that were looked at already."""
    return set()


@pytest.mark.parametrize(("verb", "what", "at"), CASES)
def test_no_crash_state_breaks_a_promise(verb: str, what: str, at: int, seen: set[object]) -> None:
    assert check_scenario(with_happening(verb, what, at), seen=seen).broken == []
