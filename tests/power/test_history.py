"""The judge of the crash tests sees each kind of broken promise, and does not cry wolf."""

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
def test_what_is_done_in_a_claim_tells_whether_it_holds(
    ops: list[Op], kind: str, verb: str
) -> None:
    wrong, right = (202, 409) if kind == "done in an ended claim" else (409, 202)
    assert kind in kinds(judged(post(), *ops, in_claim(verb, 10, wrong, deadline=99.0)))
    assert kinds(judged(post(), *ops, in_claim(verb, 10, right, deadline=99.0))) == []


@pytest.mark.parametrize("status", [202, 409])
def test_what_is_done_while_a_claim_is_released_may_be_too_late(status: int) -> None:
    ops = [claimed(3, "c1-60", 60), op("release", 9, ids=["i"]), in_claim("delete", 10, status)]
    assert kinds(judged(post(), *ops)) == []


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


def test_what_is_under_way_undoes_nothing_of_what_was_so_before() -> None:
    made, ended = op("create", 1, 2, status=201), op("delete_queue", 1, 2)
    making, ending = op("create", 3), op("delete_queue", 3)
    assert History([made, making], 9, set()).queues() == {"q": True}
    assert History([ended, ending], 9, set()).queues() == {"q": False}
    assert History([made, ending], 9, set()).queues() == {"q": None}
    assert History([ended, making], 9, set()).queues() == {"q": None}
    assert History([making], 9, set()).queues({"q": True}) == {"q": True}
    assert History([], 9, set()).queues({"q": True}) == {"q": True}


def test_a_release_that_was_undone_is_seen() -> None:
    history = judged(post(), claimed(3, "c1-00", 60), op("release", 5, 6, ids=["i"]))
    [message] = history.messages.values()
    assert history.is_undone_release(message, 60, "c1-00")
    assert not history.is_undone_release(message, 99, "c1-00")


def test_a_claim_that_nobody_was_told_of_is_no_release_that_was_undone() -> None:
    renewal = op("renew", 4, 4.5, ids=["i"], deadline=70.0)
    history = judged(post(), claimed(3, "c1-00", 60), renewal, op("release", 5, 6, ids=["i"]))
    [message] = history.messages.values()
    assert history.is_undone_release(message, 70, "c1-00")
    assert not history.is_undone_release(message, 70, "c2-00")


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


# -- own ids, which are used again -----------------------------------------------------------------

OWN, UUID = PLAIN[0], CARRYING[0]
REST = 99.0  # a moment after everything


def put(key: str, called: float, answered: float = NEVER, own: str = OWN, **more: Any) -> Op:
    return op("post", called, answered, keys=[key], own=own, **more)


def take(key: str, called: float, answered: float, until: float, own: str = OWN) -> Op:
    return op("fetch", called, answered, got=[[own, key, until, ""]])


def drop(called: float, answered: float = NEVER, own: str = OWN, **more: Any) -> Op:
    return op("delete", called, answered, ids=[own], **more)


def on(verb: str, called: float, answered: float = NEVER, **more: Any) -> Op:
    return op(verb, called, answered, ids=[OWN], **more)


def wrong(
    *ops: Op, stands: str | None = None, until: float = 0.0, own: str = OWN, **more: Any
) -> set[str]:
    """The kinds of what is found wrong; stands: the content that is there in the end."""
    history = judged(*ops, **more)
    if stands is not None:
        history.reuse.stands(REST, "q", own, until, stands, "")
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
    "a retry of what was stored": ([put("a", 1, over=2), put("a", 3, 4, status=409)], "a"),
    "another content in the retry": ([put("a", 1, over=2), put("b", 3, 4)], "b"),
    "the first one stood": ([put("a", 1, over=2), put("b", 3, 4, status=409)], "a"),
    "a client that died: stored at last": ([put("a", 1), put("b", 3, 4), drop(5, 6)], "a"),
    "a claim that ended": ([put("a", 1, 2), take("a", 3, 4, 5), take("a", 6, 7, 60)], "a"),
    "released": ([put("a", 1, 2), take("a", 3, 4, 60), on("release", 5), take("a", 6, 7, 60)], "a"),
    "a purge meets what is put meanwhile": (
        [put("a", 1, 2), op("purge", 3, 9), put("b", 4, 5), put("c", 6, 7)],
        None,
    ),
    "or it does not": ([put("a", 1, 2), op("purge", 3, 9), put("b", 4, 5)], "b"),
    "two clients put": ([put("a", 1, 4), put("b", 2, 3, status=409)], "a"),
    "a purge that nobody finished": ([put("a", 1, 2), op("purge", 3, over=4), put("b", 5, 6)], "b"),
}


@pytest.mark.parametrize("name", LIVES)
def test_an_orderly_life_of_an_own_id_has_no_finding(name: str) -> None:
    ops, stands = LIVES[name]
    assert wrong(*ops, stands=stands, until=60) == set()


FALSE: dict[str, tuple[str, list[Op], str | None]] = {
    "a removed version comes back": (
        "resurrected",
        [put("a", 1, 2), drop(3, 4), put("b", 5, 6), drop(7, 8), take("a", 9, 10, 60)],
        None,
    ),
    "it does, beside the new one": (
        "resurrected",
        [put("a", 1, 2), drop(3, 4), put("b", 5, 6), take("a", 7, 8, 60)],
        "b",
    ),
    "it stands in the end": ("resurrected", [put("a", 1, 2), drop(3, 4)], "a"),
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
    "put over what stands": ("duplicated", [put("a", 1, 2), put("b", 3, 4)], "b"),
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
    "it stands in the end, after the retry": (
        "resurrected",
        [put("a", 1, over=2), put("b", 3, 4), drop(5, 6)],
        "a",
    ),
    "stored already, it is told, and nothing is": (
        "resurrected",
        [put("a", 1, 2), drop(3, 4), put("b", 5, 6, status=409)],
        None,
    ),
    "the answer was that it stands": ("lost", [put("a", 1), put("b", 3, 4, status=409)], None),
    "nothing there, it is told": ("lost", [put("a", 1, 2), drop(3, 4, status=404)], "a"),
    "a purge spares it": ("resurrected", [put("a", 1, 2), op("purge", 3, 4)], "a"),
    "a renewal of what is gone": (
        "resurrected",
        [put("a", 1, 2), drop(3, 4), on("renew", 5, 6, deadline=60)],
        None,
    ),
    "of no one": ("foreign", [take("a", 3, 4, 60)], None),
    "of another id": (
        "mixed",
        [put("a", 1, 2, own=UUID), take("a", 3, 4, 60), drop(5, 6, UUID)],
        None,
    ),
    "of another queue": (
        "mixed",
        [put("a", 1, 2, queue="p"), take("a", 3, 4, 60), drop(5, 6)],
        None,
    ),
}


@pytest.mark.parametrize("name", FALSE)
def test_a_false_life_of_an_own_id_is_seen(name: str) -> None:
    kind, ops, stands = FALSE[name]
    assert kind in wrong(*ops, stands=stands, until=60)


def test_content_of_an_earlier_round_under_an_id_that_is_used_again_is_seen() -> None:
    ops = [put("b", 1, 2), take("a", 3, 4, 60)]
    assert wrong(*ops, stands="b", gone=frozenset({"a"})) == {"resurrected"}


def test_a_claim_must_stand_as_long_as_it_was_told() -> None:
    ops = [put("a", 1, 2), take("a", 3, 4, 60)]
    assert wrong(*ops, stands="a", until=60) == set()
    assert wrong(*ops, stands="a", until=59.9) == {"held twice"}
    assert wrong(*ops, stands="a", until=59.9, horizon=3.5) == set()


def test_of_own_ids_only_answers_before_the_horizon_are_promises() -> None:
    ops = [put("a", 1, 2), drop(3, 8)]
    assert wrong(*ops, horizon=5) == wrong(*ops, horizon=5, stands="a") == set()
    assert wrong(put("a", 1, 2), horizon=5) == {"lost"}
    assert wrong(put("a", 1, 6), horizon=5) == set()
    # A put that was answered before tells that the removal was done, whatever became of its answer.
    assert wrong(*ops, put("b", 4, 4.5), horizon=5, stands="a") == {"resurrected"}


def test_tries_that_differ_in_an_attribute_are_told_apart() -> None:
    tries = [put("a", 1, over=2, own=UUID), put("a", 3, 4, own=UUID, attempt=1)]
    headed = f"{UUID}.h"
    assert wrong(*tries, stands="a#1", own=headed) == set()
    assert wrong(*tries, drop(5, 6, headed), stands="a", own=UUID) == {"resurrected"}
    # Under the other name nothing stands: that is true.
    assert wrong(*tries, drop(5, 6, UUID, status=404), stands="a#1", own=headed) == set()


def test_a_404_for_an_own_id_is_excused_by_a_restart_of_the_server() -> None:
    ops = [put("a", 1, 2), drop(3, 4, status=404)]
    assert wrong(*ops, restarts=[(3.1, 3.2)]) == set()
    assert wrong(*ops, restarts=[(3.1, 3.2)], stands="a") == {"resurrected"}
    assert wrong(*ops, restarts=[(4.5, 5.0)]) == {"lost"}
