"""The inspection of queues and their settings after a crash."""

from __future__ import annotations

import pytest

from tests.harness.suite import Suite
from tests.power.history import History
from tests.power.inspection import Inspection
from tests.power.ops import Op
from tests.power.test_history import kinds, op
from tests.power.verbs import OverHttp

CUT = 5.0
NAMES = ("missing", "plain", "set")
"""A missing queue, one with default settings, and one that was set to 262 s."""


@pytest.fixture(scope="module")
def http(suite: Suite) -> OverHttp:
    http = OverHttp(suite.url)
    assert [http.create(queue) for queue in ("plain", "set")] == [201, 201]
    assert http.configure("set", 262) == 200
    return http


def found(suite: Suite, http: OverHttp, queue: str, *ops: Op) -> list[str]:
    """The kinds of findings on a queue after operations and a power cut."""
    for one in ops:
        one.queue = queue
    history = History(list(ops), CUT, set(), over=CUT + 1)
    settings: dict[str, set[float]] = {}
    history.visibilities(settings)
    Inspection(history, suite.root, http).check_queues(history.queues(), settings)
    return kinds(history)


def create(called: float, answered: float) -> Op:
    return op("create", called, answered, status=201)


def configure(called: float, answered: float = float("inf")) -> Op:
    return op("configure", called, answered, visibility=262.0)


@pytest.mark.parametrize("queue", NAMES)
def test_a_queue_whose_create_was_under_way_may_be_missing_with_its_settings(
    suite: Suite, http: OverHttp, queue: str
) -> None:
    """Seen on xfs: the answer to the create came during the cut."""
    ops = create(4.9, CUT + 0.1), configure(CUT + 0.2)
    assert found(suite, http, queue, *ops) == []


def test_unacknowledged_settings_may_be_stored_or_not(suite: Suite, http: OverHttp) -> None:
    ops = create(1, 2), configure(4.9)
    assert found(suite, http, "plain", *ops) == found(suite, http, "set", *ops) == []
    assert found(suite, http, "missing", *ops) == ["lost", "lost"]


def test_acknowledged_settings_must_be_stored(suite: Suite, http: OverHttp) -> None:
    ops = create(1, 2), configure(3, 4)
    assert found(suite, http, "set", *ops) == []
    assert found(suite, http, "plain", *ops) == ["lost"]
    assert found(suite, http, "missing", *ops) == ["lost", "lost"]


def test_an_unfinished_create_does_not_excuse_a_missing_queue(suite: Suite, http: OverHttp) -> None:
    ops = create(1, 2), configure(3), create(4.9, CUT + 0.1)
    assert found(suite, http, "missing", *ops) == ["lost", "lost"]
