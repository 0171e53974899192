"""The judge of the crash tests sees each kind of broken promise, and does not cry wolf."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.power import bodies
from tests.power.history import History, Op

NEVER = float("inf")


def op(verb: str, called: float, answered: float = NEVER, **more: Any) -> Op:
    """An operation whose two clocks are the same, for simplicity."""
    status = more.pop("status", 200) if answered < NEVER else 0
    made = Op(verb, more.pop("queue", "q"), "c", called, called, **more)
    made.answered = made.answered_wall = answered
    made.status = status
    return made


def post(called: float = 1, answered: float = 2, **more: Any) -> Op:
    return op("post", called, answered, keys=["k"], ids=["i"], **more)


def fetch(called: float, answered: float, deadline: float) -> Op:
    return op("fetch", called, answered, got=[["i", "k", deadline, ""]])


def judged(
    *ops: Op,
    horizon: float = NEVER,
    gone: frozenset[str] = frozenset(),
    restarts: Sequence[tuple[float, float]] = (),
) -> History:
    history = History(list(ops), horizon, set(gone), restarts=restarts)
    history.check_load()
    return history


def kinds(history: History) -> list[str]:
    return [finding.kind for finding in history.findings]


def test_an_orderly_life_has_no_finding() -> None:
    history = judged(
        post(),
        fetch(3, 4, 60),
        op("renew", 5, 6, ids=["i"], deadline=90.0),
        op("release", 7, 8, ids=["i"]),
        fetch(9, 10, 20),
        fetch(21, 22, 80),
        op("delete", 23, 24, ids=["i"]),
        op("delete", 25, 26, ids=["i"], status=404),
    )
    assert kinds(history) == []


@pytest.mark.parametrize(
    ("ops", "kind"),
    [
        ([post(), fetch(3, 4, 60), fetch(5, 6, 60)], "held twice"),
        ([post(delay=100.0), fetch(3, 4, 60)], "held twice"),
        ([post(), op("delete", 3, 4, ids=["i"]), fetch(5, 6, 60)], "resurrected"),
        ([post(), op("purge", 3, 4), fetch(5, 6, 60)], "resurrected"),
        ([post(), op("delete", 3, 4, ids=["i"], status=404)], "lost"),
        ([op("fetch", 3, 4, got=[["i", "k", 60, ""]])], "foreign"),
        ([post(), op("fetch", 3, 4, got=[["i", None, 60, "torn"]])], "torn"),
        ([post(), op("fetch", 3, 4, queue="other", got=[["i", "k", 60, ""]])], "mixed"),
        ([post(), op("fetch", 3, 4, got=[["j", "k", 60, ""]])], "mixed"),
    ],
)
def test_a_broken_promise_is_seen(ops: list[Op], kind: str) -> None:
    assert kind in kinds(judged(*ops))


def test_what_was_deleted_in_an_earlier_round_must_not_come_back() -> None:
    history = judged(fetch(3, 4, 60), gone=frozenset({"k"}))
    assert kinds(history) == ["resurrected"]


def test_what_is_under_way_may_have_happened_or_not() -> None:
    for ops in (
        [post(), fetch(3, 4, 60), op("release", 5, ids=["i"]), fetch(6, 7, 60)],
        [post(), fetch(3, 4, 60), op("renew", 5, ids=["i"]), fetch(6, 7, 60)],
        [post(), op("delete", 3, ids=["i"]), fetch(5, 6, 60)],
        [post(1, NEVER), fetch(5, 6, 60)],
    ):
        assert kinds(judged(*ops)) == []


def test_only_answers_before_the_horizon_are_promises() -> None:
    history = judged(post(1, 2), op("delete", 3, 8, ids=["i"]), horizon=5)
    [message] = history.messages.values()
    assert not history.is_stored(message)
    assert history.removed_by(message) == []
    history = judged(post(1, 2), horizon=5)
    [message] = history.messages.values()
    assert history.is_stored(message)
    history = judged(post(1, 6), horizon=5)
    [message] = history.messages.values()
    assert not history.is_stored(message)


def test_what_was_asked_after_the_cut_and_answered_is_a_promise() -> None:
    create = op("create", 6, 7, status=201)
    assert History([create], 4, set(), over=5).queues() == {"q": True}
    assert History([create], 4, set(), over=6.5).queues() == {"q": None}
    assert History([op("create", 6)], 4, set(), over=5).queues() == {"q": None}


def test_a_release_that_was_undone_is_seen() -> None:
    history = judged(post(), fetch(3, 4, 60), op("release", 5, 6, ids=["i"]))
    [message] = history.messages.values()
    assert history.is_undone_release(message, 60)
    assert not history.is_undone_release(message, 99)


def test_a_retry_with_an_own_id_is_one_message() -> None:
    history = judged(post(1, NEVER), post(3, 4, status=409), fetch(5, 6, 60))
    [message] = history.messages.values()
    assert history.is_stored(message)
    assert kinds(history) == []


@pytest.mark.parametrize("size", [0, 10, 5000])
def test_a_body_knows_itself(size: int) -> None:
    body = bodies.make("c1-7", size)
    assert bodies.key_of(body) == "c1-7"
    for broken in (b"", body[:-1], body + b"\0", bytes(len(body)), body[: len(body) // 2]):
        with pytest.raises(bodies.BrokenBody):
            bodies.key_of(broken)


def test_another_bodys_bytes_are_no_body() -> None:
    one, two = bodies.make("a-1", 100), bodies.make("a-2", 100)
    with pytest.raises(bodies.BrokenBody):
        bodies.key_of(one[:50] + two[50:])


@pytest.mark.parametrize(
    ("restarts", "excused"),
    [([(1.5, 2.5)], False), ([(3.1, 3.2)], True), ([(2, 3.5)], True), ([(0, 1), (9, 10)], False)],
)
def test_a_404_is_excused_by_a_restart_of_the_server_while_it_was_asked(
    restarts: list[tuple[float, float]], excused: bool
) -> None:
    history = judged(post(), op("delete", 3, 4, ids=["i"], status=404), restarts=restarts)
    [message] = history.messages.values()
    assert kinds(history) == ([] if excused else ["lost"])
    # The message may be gone; if it stands, the one that looks at the end says so.
    assert history.told_gone == ([message] if excused else [])
    assert history.is_stored(message) is not excused
