"""The look at a spool after a crash: what it says of queues and of their settings."""

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
"""A queue that is not there, one with the settings of a new one, and one that was set to 262 s."""


@pytest.fixture(scope="module")
def http(suite: Suite) -> OverHttp:
    http = OverHttp(suite.url)
    assert [http.create(queue) for queue in ("plain", "set")] == [201, 201]
    assert http.configure("set", 262) == 200
    return http


def found(suite: Suite, http: OverHttp, queue: str, *ops: Op) -> list[str]:
    """The kinds of what is wrong with a queue, after operations on it and a power cut."""
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
    """As it was seen on xfs: the answer to the create came while the power was going."""
    ops = create(4.9, CUT + 0.1), configure(CUT + 0.2)
    assert found(suite, http, queue, *ops) == []


def test_a_queue_that_was_created_may_have_its_new_settings_or_not(
    suite: Suite, http: OverHttp
) -> None:
    ops = create(1, 2), configure(4.9)
    assert found(suite, http, "plain", *ops) == found(suite, http, "set", *ops) == []
    assert found(suite, http, "missing", *ops) == ["lost", "lost"]


def test_settings_that_were_acknowledged_must_be_there(suite: Suite, http: OverHttp) -> None:
    ops = create(1, 2), configure(3, 4)
    assert found(suite, http, "set", *ops) == []
    assert found(suite, http, "plain", *ops) == ["lost"]
    assert found(suite, http, "missing", *ops) == ["lost", "lost"]


def test_no_later_create_excuses_that_a_queue_is_missing(suite: Suite, http: OverHttp) -> None:
    ops = create(1, 2), configure(3), create(4.9, CUT + 0.1)
    assert found(suite, http, "missing", *ops) == ["lost", "lost"]
