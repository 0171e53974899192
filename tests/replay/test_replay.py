"""Every crash state of every verb: nothing acknowledged is lost, torn, held twice or back again.

Needs no root: the calls of a scenario are recorded, and every tree is built that a filesystem may
leave if everything ends after any of them. This sees what ext4 and xfs forgive: a missing fsync of
a folder, which the next fsync of any file makes up for there. In which company verbs are looked at
is a part of what `tests.soak.power` looks at.
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

# What another has done and not synced, beyond the verb itself, that makes a sync necessary.
OTHERS = {"delete a queue": ("unsubscribe_jobs", "delete_topic")}
# Syncs that others need: of the removal with which one of these ends, and of a dedup queue's move.
# And new/, that a message of a dedup queue left before: the renames of one message build upon each
# other, so that this is beyond what can be seen here.
NOT_ITS_OWN = {
    "stage": ("queue", "delay"),
    "dedup poll": ("new",),
    "dedup ack": ("new",),
    "move": ("queues", "remove"),
    "retry": ("queue", "delay", "remove"),  # of who has moved its message meanwhile
    "order a move": ("queues",),  # of who created the target
    "set a priority": ("new",),  # of the mover
    "redrive": ("new", "delay"),  # of the burial, or of the mover
    "bury": ("queues", "config"),  # of the setting that it needs
    "claim by id": ("new",),
    "renew by id": ("queue", "delay"),
}
EACH = [name for name in SYNCS if name not in ("folders", "all")]


@pytest.fixture(scope="module")
def seen() -> set[object]:
    """States that were looked at already."""
    return set()


@pytest.mark.parametrize("verb", VERBS)
def test_no_crash_state_of_a_verb_breaks_a_promise(verb: str, seen: set[object]) -> None:
    assert check_scenario(record([verb]), seen=seen).broken == []


@pytest.mark.parametrize("verb", BESIDE_A_MOVER)
def test_nor_beside_a_mover_that_syncs_nothing(verb: str, seen: set[object]) -> None:
    assert check_scenario(record(BESIDE_A_MOVER[verb]), seen=seen).broken == []


@pytest.mark.parametrize("verb", FAMILIES["purge"] + FAMILIES["delete a queue"])
def test_what_is_said_to_be_gone_stays_so(verb: str, seen: set[object]) -> None:
    assert check_scenario(record(["remove_ready"], others=[verb]), seen=seen).broken == []


@pytest.mark.parametrize("verb", UNSYNCED)
def test_nor_where_another_has_done_it_and_not_synced(verb: str, seen: set[object]) -> None:
    assert check_scenario(record([verb], others=[verb]), seen=seen).broken == []


@pytest.mark.parametrize(("family", "other"), [(f, o) for f, os in OTHERS.items() for o in os])
def test_nor_where_another_has_done_a_part_of_it(
    family: str, other: str, seen: set[object]
) -> None:
    for verb in FAMILIES[family]:
        assert check_scenario(record([verb], others=[other]), seen=seen).broken == []


@pytest.mark.parametrize("verb", WITH_SYNCFS)
def test_nor_with_syncfs(verb: str, seen: set[object]) -> None:
    assert check_scenario(record(["deliver", verb], "syncfs"), seen=seen).broken == []


def without(name: str) -> re.Pattern[str]:
    return re.compile(SYNCS[name])


def uses(scenario: Scenario, pattern: re.Pattern[str]) -> bool:
    return any(isinstance(s, Sync) and pattern.fullmatch(s.path) for s in scenario.steps)


@pytest.mark.parametrize("family", FAMILIES)
def test_each_sync_that_is_left_out_is_seen(family: str) -> None:
    verbs = FAMILIES[family]
    scenarios = [record(["deliver"] * n + [verb]) for n, verb in product((0, 1), verbs)]
    scenarios += [record([v], others=[o]) for v, o in product(verbs, OTHERS.get(family, ()))]
    used = [name for name in EACH if any(uses(scenario, without(name)) for scenario in scenarios)]
    used = [name for name in used if name not in NOT_ITS_OWN.get(family, ())]
    assert used
    blind = [name for name in used if not any(breaks(scenario, name) for scenario in scenarios)]
    assert blind == [], "what is left out here is not noticed"


def breaks(scenario: Scenario, name: str) -> bool:
    pattern = without(name)

    def is_left_out(step: Step) -> bool:
        return isinstance(step, Sync) and pattern.fullmatch(step.path) is not None

    if not uses(scenario, pattern):
        return False
    checked: Checked = check_scenario(scenario, without=is_left_out, first_only=True)
    return checked.broken != []


def test_a_promotion_that_is_not_synced_is_seen() -> None:
    scenario = record(["put_promoted"])
    first = next(step for step in scenario.steps if isinstance(step, Sync))
    assert check_scenario(scenario, without=lambda step: step is first, first_only=True).broken


def test_without_syncs_nothing_holds() -> None:
    scenario = record(["put", "remove_held"], "none")
    told = " ".join(check_scenario(scenario).broken)
    assert "lost" in told
    assert "torn, or back" in told
