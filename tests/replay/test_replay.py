"""Every crash state of every verb: no acknowledged operation is lost, torn, undone or repeated.

The calls of a scenario are recorded, and every tree is built that a filesystem may leave after any
of them. Unlike power cuts of ext4 and xfs, this finds a missing fsync of a folder even if an fsync
of any file follows. `tests.soak.power` runs more combinations of verbs.
"""

from __future__ import annotations

import re
from itertools import product

import pytest

from tests.power.syncs import SYNCS
from tests.replay.plans import BESIDE_A_MOVER, FAMILIES, UNSYNCED, WITH_SYNCFS
from tests.replay.recorder import Step, Sync
from tests.replay.scenario import Checked, Scenario, check_scenario, record
from tests.replay.verbs import VERBS

# Unsynced verbs of others, other than the verb itself, that make a sync of it necessary.
OTHERS = {"delete a queue": ("unsubscribe_jobs", "delete_topic")}
# Syncs that others need: of a removal at the end of a verb, and of the move in a dedup queue. And
# of new/, from where a message of a dedup queue came: renames of one message build upon each other,
# so this sync has no effect here.
NOT_ITS_OWN = {
    "stage": ("queue", "delay"),
    "dedup poll": ("new",),
    "dedup ack": ("new",),
    "move": ("queues", "remove"),
    "retry": ("queue", "delay", "remove"),  # of a concurrent move of its message
    "order a move": ("queues",),  # of the creation of the target
    "set a priority": ("new",),  # of the mover
    "redrive": ("new", "delay"),  # of the burial, or of the mover
    "bury": ("queues", "config"),  # of the setting that it needs
    "claim by id": ("new",),
    "renew by id": ("queue", "delay"),
}
EACH = [name for name in SYNCS if name not in ("folders", "all")]


@pytest.fixture(scope="module")
def seen() -> set[object]:
    """States that were inspected before."""
    return set()


@pytest.mark.parametrize("verb", VERBS)
def test_no_crash_state_of_a_verb_breaks_a_promise(verb: str, seen: set[object]) -> None:
    assert check_scenario(record([verb]), seen=seen).broken == []


@pytest.mark.parametrize("verb", BESIDE_A_MOVER)
def test_no_crash_state_beside_a_mover_breaks_a_promise(verb: str, seen: set[object]) -> None:
    assert check_scenario(record(BESIDE_A_MOVER[verb]), seen=seen).broken == []


@pytest.mark.parametrize("verb", FAMILIES["purge"] + FAMILIES["delete a queue"])
def test_no_crash_state_resurrects_a_removed_message(verb: str, seen: set[object]) -> None:
    assert check_scenario(record(["remove_ready"], others=[verb]), seen=seen).broken == []


@pytest.mark.parametrize("verb", UNSYNCED)
def test_no_crash_state_after_the_same_unsynced_verb_breaks_a_promise(
    verb: str, seen: set[object]
) -> None:
    assert check_scenario(record([verb], others=[verb]), seen=seen).broken == []


@pytest.mark.parametrize(("family", "other"), [(f, o) for f, os in OTHERS.items() for o in os])
def test_no_crash_state_after_another_unsynced_verb_breaks_a_promise(
    family: str, other: str, seen: set[object]
) -> None:
    for verb in FAMILIES[family]:
        assert check_scenario(record([verb], others=[other]), seen=seen).broken == []


@pytest.mark.parametrize("verb", WITH_SYNCFS)
def test_no_crash_state_with_syncfs_breaks_a_promise(verb: str, seen: set[object]) -> None:
    assert check_scenario(record(["deliver", verb], "syncfs"), seen=seen).broken == []


def without(name: str) -> re.Pattern[str]:
    return re.compile(SYNCS[name])


def uses(scenario: Scenario, pattern: re.Pattern[str]) -> bool:
    return any(isinstance(s, Sync) and pattern.fullmatch(s.path) for s in scenario.steps)


@pytest.mark.parametrize("family", FAMILIES)
def test_each_missing_sync_is_found(family: str) -> None:
    verbs = FAMILIES[family]
    scenarios = [record(["deliver"] * n + [verb]) for n, verb in product((0, 1), verbs)]
    scenarios += [record([v], others=[o]) for v, o in product(verbs, OTHERS.get(family, ()))]
    used = [name for name in EACH if any(uses(scenario, without(name)) for scenario in scenarios)]
    used = [name for name in used if name not in NOT_ITS_OWN.get(family, ())]
    assert used
    blind = [name for name in used if not any(breaks(scenario, name) for scenario in scenarios)]
    assert blind == [], "a missing sync is not found"


def breaks(scenario: Scenario, name: str) -> bool:
    pattern = without(name)

    def is_left_out(step: Step) -> bool:
        return isinstance(step, Sync) and pattern.fullmatch(step.path) is not None

    if not uses(scenario, pattern):
        return False
    checked: Checked = check_scenario(scenario, without=is_left_out, first_only=True)
    return checked.broken != []


def test_a_missing_sync_of_a_promotion_is_found() -> None:
    scenario = record(["put_promoted"])
    first = next(step for step in scenario.steps if isinstance(step, Sync))
    assert check_scenario(scenario, without=lambda step: step is first, first_only=True).broken


def test_without_syncs_messages_are_lost_and_resurrected() -> None:
    scenario = record(["put", "remove_held"], "none")
    broken = " ".join(check_scenario(scenario).broken)
    assert "lost" in broken
    assert "torn or resurrected" in broken
