"""The check of the crash tests finds each broken promise, and reports no correct history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.power import bodies
from tests.power.history import History
from tests.power.ops import Op
from tests.power.reuse import CARRYING, PLAIN

NEVER = float("inf")


def op(verb: str, called: float, answered: float = NEVER, **more: Any) -> Op:
    """An operation with the same time on both clocks."""
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


def test_a_correct_history_has_no_finding() -> None:
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
def test_a_broken_promise_is_found(ops: list[Op], kind: str) -> None:
    assert kind in kinds(judged(*ops))


def in_claim(verb: str, called: float, status: int, claim: str = "c1-60", **more: Any) -> Op:
    return op(verb, called, called + 1, ids=["i"], claim=claim, status=status, **more)


def claimed(called: float, claim: str, deadline: float) -> Op:
    return op("fetch", called, called + 1, got=[["i", "k", deadline, "", claim]])


@pytest.mark.parametrize(
    ("ops", "kind"),
    [
        ([claimed(3, "c1-60", 5), claimed(6, "c2-90", 90)], "done in an ended claim"),
        ([claimed(3, "c1-60", 60), op("release", 5, 6, ids=["i"])], "done in an ended claim"),
        ([claimed(3, "c1-60", 60)], "claim lost"),
    ],
)
@pytest.mark.parametrize("verb", ["renew", "release", "delete"])
def test_results_in_a_claim_must_agree_with_its_end(ops: list[Op], kind: str, verb: str) -> None:
    wrong, right = (202, 409) if kind == "done in an ended claim" else (409, 202)
    assert kind in kinds(judged(post(), *ops, in_claim(verb, 10, wrong, deadline=99.0)))
    assert kinds(judged(post(), *ops, in_claim(verb, 10, right, deadline=99.0))) == []


@pytest.mark.parametrize("status", [202, 409])
def test_an_operation_during_a_release_may_succeed_or_fail(status: int) -> None:
    ops = [claimed(3, "c1-60", 60), op("release", 9, ids=["i"]), in_claim("delete", 10, status)]
    assert kinds(judged(post(), *ops)) == []


def test_a_message_of_an_earlier_round_is_resurrected() -> None:
    history = judged(fetch(3, 4, 60), gone=frozenset({"k"}))
    assert kinds(history) == ["resurrected"]


def test_an_unanswered_operation_may_have_happened_or_not() -> None:
    for ops in (
        [post(), fetch(3, 4, 60), op("release", 5, ids=["i"]), fetch(6, 7, 60)],
        [post(), fetch(3, 4, 60), op("renew", 5, ids=["i"]), fetch(6, 7, 60)],
        [post(), op("delete", 3, ids=["i"]), fetch(5, 6, 60)],
        [post(1, NEVER), fetch(5, 6, 60)],
    ):
        assert kinds(judged(*ops)) == []


def test_only_answers_before_the_horizon_count() -> None:
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


def test_an_answer_to_a_request_after_the_cut_counts() -> None:
    create = op("create", 6, 7, status=201)
    assert History([create], 4, set(), over=5).queues() == {"q": True}
    assert History([create], 4, set(), over=6.5).queues() == {"q": None}
    assert History([op("create", 6)], 4, set(), over=5).queues() == {"q": None}


def test_an_unanswered_operation_cannot_undo_the_state_that_it_would_set() -> None:
    made, ended = op("create", 1, 2, status=201), op("delete_queue", 1, 2)
    making, ending = op("create", 3), op("delete_queue", 3)
    assert History([made, making], 9, set()).queues() == {"q": True}
    assert History([ended, ending], 9, set()).queues() == {"q": False}
    assert History([made, ending], 9, set()).queues() == {"q": None}
    assert History([ended, making], 9, set()).queues() == {"q": None}
    assert History([making], 9, set()).queues({"q": True}) == {"q": True}
    assert History([], 9, set()).queues({"q": True}) == {"q": True}


def test_an_undone_release_is_found() -> None:
    history = judged(post(), claimed(3, "c1-00", 60), op("release", 5, 6, ids=["i"]))
    [message] = history.messages.values()
    assert history.is_undone_release(message, 60, "c1-00")
    assert not history.is_undone_release(message, 99, "c1-00")


def test_an_unanswered_claim_is_no_undone_release() -> None:
    renewal = op("renew", 4, 4.5, ids=["i"], deadline=70.0)
    history = judged(post(), claimed(3, "c1-00", 60), renewal, op("release", 5, 6, ids=["i"]))
    [message] = history.messages.values()
    assert history.is_undone_release(message, 70, "c1-00")
    assert not history.is_undone_release(message, 70, "c2-00")


@pytest.mark.parametrize("size", [0, 10, 5000])
def test_a_body_has_its_key(size: int) -> None:
    body = bodies.make("c1-7", size)
    assert bodies.key_of(body) == "c1-7"
    for broken in (b"", body[:-1], body + b"\0", bytes(len(body)), body[: len(body) // 2]):
        with pytest.raises(bodies.BrokenBody):
            bodies.key_of(broken)


def test_a_mixed_body_is_broken() -> None:
    one, two = bodies.make("a-1", 100), bodies.make("a-2", 100)
    with pytest.raises(bodies.BrokenBody):
        bodies.key_of(one[:50] + two[50:])


@pytest.mark.parametrize(
    ("restarts", "excused"),
    [([(1.5, 2.5)], False), ([(3.1, 3.2)], True), ([(2, 3.5)], True), ([(0, 1), (9, 10)], False)],
)
def test_a_404_is_excused_by_a_restart_of_the_server_during_the_request(
    restarts: list[tuple[float, float]], excused: bool
) -> None:
    history = judged(post(), op("delete", 3, 4, ids=["i"], status=404), restarts=restarts)
    [message] = history.messages.values()
    assert kinds(history) == ([] if excused else ["lost"])
    # The message may be gone; if it is still stored, the inspection reports it.
    assert history.excused == ([message] if excused else [])
    assert history.is_stored(message) is not excused


OWN, UUID = PLAIN[0], CARRYING[0]
REST = 99.0  # after all operations


def put(key: str, called: float, answered: float = NEVER, own: str = OWN, **more: Any) -> Op:
    return op("post", called, answered, keys=[key], own=own, **more)


def take(key: str, called: float, answered: float, until: float, own: str = OWN) -> Op:
    return op("fetch", called, answered, got=[[own, key, until, ""]])


def drop(called: float, answered: float = NEVER, own: str = OWN, **more: Any) -> Op:
    return op("delete", called, answered, ids=[own], **more)


def on(verb: str, called: float, answered: float = NEVER, **more: Any) -> Op:
    return op(verb, called, answered, ids=[OWN], **more)


def wrong(
    *ops: Op, stored: str | None = None, until: float = 0.0, own: str = OWN, **more: Any
) -> set[str]:
    """The kinds of findings. stored: the content that is stored in the end."""
    history = judged(*ops, **more)
    if stored is not None:
        history.reuse.add_stored(REST, "q", own, until, stored, "")
    history.reuse.check(looked=REST)
    return set(kinds(history))


LIVES: dict[str, tuple[list[Op], str | None]] = {
    "one after the other": (
        [put("a", 1, 2), take("a", 3, 4, 60), drop(5, 6), put("b", 7, 8), take("b", 9, 10, 60)],
        "b",
    ),
    "put while it is removed": ([put("a", 1, 2), drop(3, 6), put("b", 4, 5)], "b"),
    "removed while it is put": ([put("a", 1, 2), drop(3, 4), put("b", 3.5, 6), drop(5, 7)], None),
    "handed out while it is removed and put": (
        [put("a", 1, 2), take("a", 3, 9, 60), drop(4, 5), put("b", 6, 7)],
        "b",
    ),
    "a late removal takes the new one": (
        [put("a", 1, 2), take("a", 3, 4, 5), drop(6, 7), put("b", 8, 9), drop(10, 11)],
        None,
    ),
    "a retry of a stored message": ([put("a", 1, over=2), put("a", 3, 4, status=409)], "a"),
    "another content in the retry": ([put("a", 1, over=2), put("b", 3, 4)], "b"),
    "the first put was done": ([put("a", 1, over=2), put("b", 3, 4, status=409)], "a"),
    "a put of a killed client is stored late": ([put("a", 1), put("b", 3, 4), drop(5, 6)], "a"),
    "a claim that ended": ([put("a", 1, 2), take("a", 3, 4, 5), take("a", 6, 7, 60)], "a"),
    "released": ([put("a", 1, 2), take("a", 3, 4, 60), on("release", 5), take("a", 6, 7, 60)], "a"),
    "a purge removes messages that are put meanwhile": (
        [put("a", 1, 2), op("purge", 3, 9), put("b", 4, 5), put("c", 6, 7)],
        None,
    ),
    "a purge leaves a message that is put meanwhile": (
        [put("a", 1, 2), op("purge", 3, 9), put("b", 4, 5)],
        "b",
    ),
    "two clients put": ([put("a", 1, 4), put("b", 2, 3, status=409)], "a"),
    "an unfinished purge": ([put("a", 1, 2), op("purge", 3, over=4), put("b", 5, 6)], "b"),
}


@pytest.mark.parametrize("name", LIVES)
def test_a_correct_history_of_an_own_id_has_no_finding(name: str) -> None:
    ops, stored = LIVES[name]
    assert wrong(*ops, stored=stored, until=60) == set()


FALSE: dict[str, tuple[str, list[Op], str | None]] = {
    "a removed version comes back": (
        "resurrected",
        [put("a", 1, 2), drop(3, 4), put("b", 5, 6), drop(7, 8), take("a", 9, 10, 60)],
        None,
    ),
    "a removed version comes back beside the new one": (
        "resurrected",
        [put("a", 1, 2), drop(3, 4), put("b", 5, 6), take("a", 7, 8, 60)],
        "b",
    ),
    "a removed version is stored in the end": ("resurrected", [put("a", 1, 2), drop(3, 4)], "a"),
    "the ack of the old one removes the new one": (
        "lost",
        [put("a", 1, 2), take("a", 3, 4, 60), drop(5, 6), put("b", 7, 8)],
        None,
    ),
    "one ack removes both": ("lost", [put("a", 1, 2), drop(3, 8), put("b", 4, 5)], None),
    "the old body under the new id": (
        "resurrected",
        [put("a", 1, 2), drop(3, 4), put("b", 5, 6), take("a", 7, 8, 9)],
        "b",
    ),
    "two holders of one version": (
        "held twice",
        [put("a", 1, 2), drop(3, 4), put("b", 5, 6), take("b", 7, 8, 60), take("b", 9, 10, 60)],
        "b",
    ),
    "two holders, and one lets go": (
        "held twice",
        [put("a", 1, 2), take("a", 3, 4, 60), take("a", 5, 6, 7), on("release", 8, 9)],
        "a",
    ),
    "a renewal does not hold": (
        "held twice",
        [put("a", 1, 2), take("a", 3, 4, 5), on("renew", 4, 4.5, deadline=60), take("a", 6, 7, 60)],
        "a",
    ),
    "a delay does not hold": ("held twice", [put("a", 1, 2, delay=50.0), take("a", 3, 4, 60)], "a"),
    "a put overwrites a message": ("duplicated", [put("a", 1, 2), put("b", 3, 4)], "b"),
    "a retry stores a second one": (
        "resurrected",
        [
            put("a", 1, over=2),
            put("b", 3, 4),
            take("b", 5, 6, 60),
            drop(7, 8),
            take("a", 9, 10, 60),
        ],
        None,
    ),
    "a replaced version is stored in the end": (
        "resurrected",
        [put("a", 1, over=2), put("b", 3, 4), drop(5, 6)],
        "a",
    ),
    "a 409 though nothing is stored": (
        "resurrected",
        [put("a", 1, 2), drop(3, 4), put("b", 5, 6, status=409)],
        None,
    ),
    "a 409 and nothing is stored in the end": (
        "lost",
        [put("a", 1), put("b", 3, 4, status=409)],
        None,
    ),
    "a 404 though the message is stored": ("lost", [put("a", 1, 2), drop(3, 4, status=404)], "a"),
    "a purge leaves a message": ("resurrected", [put("a", 1, 2), op("purge", 3, 4)], "a"),
    "a renewal of a removed message": (
        "resurrected",
        [put("a", 1, 2), drop(3, 4), on("renew", 5, 6, deadline=60)],
        None,
    ),
    "an unknown message": ("foreign", [take("a", 3, 4, 60)], None),
    "a message of another id": (
        "mixed",
        [put("a", 1, 2, own=UUID), take("a", 3, 4, 60), drop(5, 6, UUID)],
        None,
    ),
    "a message of another queue": (
        "mixed",
        [put("a", 1, 2, queue="p"), take("a", 3, 4, 60), drop(5, 6)],
        None,
    ),
}


@pytest.mark.parametrize("name", FALSE)
def test_a_wrong_history_of_an_own_id_is_found(name: str) -> None:
    kind, ops, stored = FALSE[name]
    assert kind in wrong(*ops, stored=stored, until=60)


def test_content_of_an_earlier_round_under_a_reused_id_is_resurrected() -> None:
    ops = [put("b", 1, 2), take("a", 3, 4, 60)]
    assert wrong(*ops, stored="b", gone=frozenset({"a"})) == {"resurrected"}


def test_a_claim_must_hold_until_its_deadline() -> None:
    ops = [put("a", 1, 2), take("a", 3, 4, 60)]
    assert wrong(*ops, stored="a", until=60) == set()
    assert wrong(*ops, stored="a", until=59.9) == {"held twice"}
    assert wrong(*ops, stored="a", until=59.9, horizon=3.5) == set()


def test_only_answers_before_the_horizon_count_for_own_ids() -> None:
    ops = [put("a", 1, 2), drop(3, 8)]
    assert wrong(*ops, horizon=5) == wrong(*ops, horizon=5, stored="a") == set()
    assert wrong(put("a", 1, 2), horizon=5) == {"lost"}
    assert wrong(put("a", 1, 6), horizon=5) == set()
    # A later put that succeeded shows that the removal was done.
    assert wrong(*ops, put("b", 4, 4.5), horizon=5, stored="a") == {"resurrected"}


def test_tries_that_differ_in_an_attribute_are_distinguished() -> None:
    tries = [put("a", 1, over=2, own=UUID), put("a", 3, 4, own=UUID, attempt=1)]
    headed = f"{UUID}.h"
    assert wrong(*tries, stored="a#1", own=headed) == set()
    assert wrong(*tries, drop(5, 6, headed), stored="a", own=UUID) == {"resurrected"}
    # A 404 for the other name is right.
    assert wrong(*tries, drop(5, 6, UUID, status=404), stored="a#1", own=headed) == set()


def test_a_404_for_an_own_id_is_excused_by_a_restart_of_the_server() -> None:
    ops = [put("a", 1, 2), drop(3, 4, status=404)]
    assert wrong(*ops, restarts=[(3.1, 3.2)]) == set()
    assert wrong(*ops, restarts=[(3.1, 3.2)], stored="a") == {"resurrected"}
    assert wrong(*ops, restarts=[(4.5, 5.0)]) == {"lost"}
