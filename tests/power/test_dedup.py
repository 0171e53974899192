"""The check of dedup queues finds each broken promise, and reports no correct history."""

from __future__ import annotations

import pytest

from tests.power import bodies, dedup
from tests.power.dedup import ACKS, POLLS, SENDS, Copy, DedupHistory
from tests.power.history import Op
from tests.power.test_history import NEVER, judged, kinds, op, post


def send(called: float, answered: float = NEVER, key: str = "k") -> Op:
    return op(SENDS, called, answered, keys=[key])


def poll(called: float, answered: float, until: float, id: str = "i") -> Op:
    return op(POLLS, called, answered, got=[[id, "k", until, ""]])


def ack(called: float, answered: float = NEVER, id: str = "i") -> Op:
    return op(ACKS, called, answered, ids=[id])


class Judge:
    """A history and the kinds of its findings."""

    def __init__(self, *ops: Op, horizon: float = 1000.0, gone: frozenset[str] = frozenset()):
        self.kinds: list[str] = []
        self.history = DedupHistory(
            ops,
            lambda op: op.status == 200 and op.answered < horizon,
            lambda kind, _: self.kinds.append(kind),
            set(gone),
        )
        self.history.check_load()

    def stored(self, *read: Copy, write: int = 0) -> list[str]:
        self.history.check_stored(read, [Copy(None, "k")] * write)
        return self.kinds


def test_a_correct_history_has_no_finding() -> None:
    life = [send(1, 2), send(3, 4), poll(5, 6, 60), poll(61, 62, 90), ack(63, 64)]
    assert Judge(*life).stored() == []
    assert Judge(*life, send(65, 66)).stored(write=1) == []
    assert Judge(*life, send(65, 66)).stored(Copy("j", "k")) == []
    assert Judge(send(1, 2)).stored(Copy("i", "k")) == []


@pytest.mark.parametrize("ops", [[send(1)], [send(1, 2), ack(8)], [send(1, 2), ack(8, 2000)]])
def test_an_unanswered_operation_may_have_happened_or_not(ops: list[Op]) -> None:
    shown = [poll(3, 4, 7)] if len(ops) > 1 else []
    assert Judge(*ops, *shown).stored() == []
    assert Judge(*ops, *shown).stored(Copy("i", "k", 7)) == []


def test_an_uncertain_poll_may_leave_its_message_on_the_write_side() -> None:
    assert Judge(send(1, 2), poll(3, 2000, 7)).stored(write=1) == []
    assert Judge(send(1, 2), poll(3, 4, 7), ack(5), send(6, 7)).stored(write=1) == []


def test_each_broken_promise_is_found() -> None:
    assert Judge(send(1, 2)).stored() == ["lost"]
    assert Judge(send(1, 2), poll(3, 4, 7)).stored() == ["lost"]
    assert Judge(send(1, 2), poll(3, 4, 7), ack(5, 6), send(8, 9)).stored() == ["lost"]
    assert Judge(send(1, 2), poll(3, 4, 7), ack(5, 6)).stored(Copy("i", "k", 7)) == ["resurrected"]
    assert Judge(send(1, 2), poll(3, 4, 7), ack(5, 6), poll(8, 9, 99)).kinds == ["resurrected"]
    assert Judge(send(1, 2), poll(3, 4, 70), poll(5, 6, 99)).kinds == ["held twice"]
    assert Judge(send(1, 2), poll(3, 4, 70)).stored(Copy("i", "k", 0)) == ["held twice"]
    assert Judge(send(1, 2), poll(3, 4, 70)).stored(write=1) == ["undone"]
    assert Judge(send(1, 2), poll(3, 4, 7)).stored(Copy("j", "k", 7)) == ["undone"]
    assert Judge(send(1, 2)).stored(Copy("i", "k"), write=1) == ["duplicated"]
    assert Judge(send(1, 2)).stored(Copy("i", "k"), Copy("j", "x")) == ["foreign"]
    assert Judge(send(1, 2)).stored(Copy("i", "k"), Copy("j", None)) == ["torn"]
    assert Judge(gone=frozenset("k")).stored(write=1) == ["resurrected"]
    judge = Judge(send(1, 2), send(1, 2, key="l"), poll(3, 4, 7))
    assert judge.stored(Copy("i", "l"), write=1) == ["mixed", "lost"]


def test_a_payload_has_its_key() -> None:
    text = dedup.make("k-1")
    assert dedup.payload_key(text) == "k-1"
    for broken in (text[:-4], "", None, 3, text + "AAAA"):
        with pytest.raises(bodies.BrokenBody):
            dedup.payload_key(broken)
    with pytest.raises(bodies.BrokenBody):
        dedup.key_of(b'"' + text.encode())


def test_a_moved_message_is_recognised_in_its_new_queue() -> None:
    move = op("move", 3, 4, to=["other"])
    history = judged(post(1, 2), move)
    [message] = history.messages.values()
    assert history.identify("other", "i", "k") is message
    assert history.identify("third", "i", "k") is None
    assert kinds(history) == ["mixed"]
    assert history.places(message) == {"q", "other"}
    assert history.is_moved(message)


@pytest.mark.parametrize(("posted", "called", "answered"), [(2, 3, NEVER), (4, 3, 5)])
def test_a_move_that_is_uncertain_or_too_early_promises_nothing(
    posted: float, called: float, answered: float
) -> None:
    history = judged(post(1, posted), op("move", called, answered, to=["other"]))
    [message] = history.messages.values()
    assert not history.is_moved(message)
