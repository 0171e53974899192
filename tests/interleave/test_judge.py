"""The check of interleavings distinguishes wrong histories from those that an order explains."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.interleave import model
from tests.interleave.judge import Log, judge
from tests.interleave.model import Clearing, Operation, Seen, World

QUEUE, OTHER = "q", "other"
BEGINNING = 1_000_000  # Unix milliseconds
FIRST = World(frozenset({QUEUE, OTHER}), frozenset())


class History:
    """A log of clients, written by hand."""

    def __init__(self) -> None:
        self.log = Log()
        self.log.time(BEGINNING)

    def begin(self, text: str, kind: type[Operation] = Operation) -> Operation:
        op = kind(len(self.log.entries) + 1, text)
        self.log.ask(op)
        return op

    def put(self, body: bytes, op: Operation | None = None) -> None:
        op = op or self.begin("put")
        op.must = [model.stores(op, QUEUE, "x", body)]
        self.log.answer(op)

    def claim(self, body: bytes, count: int = 1, op: Operation | None = None) -> Operation:
        """A claim for ten seconds."""
        op = op or self.begin("claim")
        op.must = [model.takes(op, QUEUE, "x", body, count, BEGINNING + 10_000)]
        self.log.answer(op)
        return op

    def remove(self, op: Operation | None = None) -> None:
        op = op or self.begin("remove")
        op.must = [model.goes(QUEUE, "x")]
        self.log.answer(op)

    def clear(self, *, drops: bool) -> Clearing:
        op = self.begin("purge, or delete the queue", Clearing)
        assert isinstance(op, Clearing)
        op.queue, op.drops = QUEUE, drops
        return op

    def move(self, source: str, target: str) -> None:
        op = self.begin(f"move {source} to {target}")
        op.often = [model.moves_any(op, source, target, True)]
        self.log.answer(op)

    def create_queue(self) -> None:
        op = self.begin("create the queue")
        op.must = [model.makes_queue(QUEUE)]
        self.log.answer(op)

    def look(self, *seen: tuple[bytes, int, int]) -> None:
        """Inspect the queue: bodies, times until which they are hidden, and counts."""
        op = self.begin("look")
        found = [Seen(QUEUE, "x", body, until, count) for body, until, count in seen]
        op.must = [model.looks(found, FIRST.queues, frozenset(), frozenset())]
        self.log.answer(op)

    def judged(self) -> str | None:
        return judge(self.log, FIRST)


def lose(h: History) -> None:
    h.put(b"1")
    h.look()


def deliver_twice(h: History) -> None:
    h.put(b"1")
    h.claim(b"1")
    h.claim(b"1", 2)


def resurrect(h: History) -> None:
    h.put(b"1")
    h.remove()
    h.look((b"1", 0, 0))


def remove_a_later_message(h: History) -> None:
    h.put(b"1")
    h.remove()
    h.put(b"2")
    h.look()


def deliver_another_body(h: History) -> None:
    h.put(b"1")
    h.remove()
    h.put(b"2")
    h.claim(b"1")


def store_an_id_twice(h: History) -> None:
    h.put(b"1")
    h.put(b"2")


def count_a_missing_claim(h: History) -> None:
    h.put(b"1")
    h.look((b"1", 0, 1))


def end_a_claim_early(h: History) -> None:
    h.put(b"1")
    h.claim(b"1")
    h.look((b"1", 0, 1))


def hide_a_free_message(h: History) -> None:
    h.put(b"1")
    h.look((b"1", BEGINNING + 10_000, 0))


def release_a_claim_of_another(h: History) -> None:
    h.put(b"1")
    mine = h.claim(b"1")
    h.log.time(BEGINNING + 10_000)
    theirs = h.begin("claim")
    theirs.must = [model.takes(theirs, QUEUE, "x", b"1", 2, BEGINNING + 20_000)]
    h.log.answer(theirs)
    back = h.begin("give back")
    back.must = [model.gives_back(back, mine.number, "x")]
    h.log.answer(back)


def keep_a_message_in_a_purge(h: History) -> None:
    h.put(b"1")
    h.log.answer(h.clear(drops=False))
    h.look((b"1", 0, 0))


def keep_a_moved_message_in_a_purge(h: History) -> None:
    h.put(b"1")
    h.move(QUEUE, OTHER)
    h.move(OTHER, QUEUE)
    h.log.answer(h.clear(drops=False))
    h.look((b"1", 0, 0))


def keep_a_message_for_the_next_queue(h: History) -> None:
    h.put(b"1")
    h.log.answer(h.clear(drops=True))
    h.create_queue()
    h.look((b"1", 0, 0))


FALSE = (
    lose,
    deliver_twice,
    resurrect,
    remove_a_later_message,
    deliver_another_body,
    store_an_id_twice,
    count_a_missing_claim,
    end_a_claim_early,
    hide_a_free_message,
    release_a_claim_of_another,
    keep_a_message_in_a_purge,
    keep_a_moved_message_in_a_purge,
    keep_a_message_for_the_next_queue,
)


@pytest.mark.parametrize("write", FALSE, ids=lambda write: write.__name__)
def test_a_wrong_history_is_found(write: Callable[[History], None]) -> None:
    history = History()
    write(history)
    assert str(history.judged()).startswith("nothing explains")


def remove_during_a_claim(h: History) -> None:
    h.put(b"1")
    claim = h.begin("claim")
    h.remove()
    h.claim(b"1", op=claim)
    h.look()


def put_during_a_removal(h: History) -> None:
    h.put(b"1")
    removal = h.begin("remove")
    h.remove()
    h.put(b"2")
    h.remove(removal)
    h.look()


def claim_when_the_first_claim_has_ended(h: History) -> None:
    h.put(b"1")
    h.claim(b"1")
    h.log.time(BEGINNING + 10_000)
    h.claim(b"1", 2)
    h.look((b"1", 0, 2))


def put_during_a_purge(h: History) -> None:
    purge = h.clear(drops=False)
    h.put(b"1")
    h.log.answer(purge)
    h.look((b"1", 0, 0))


def put_during_a_purge_that_takes_it(h: History) -> None:
    purge = h.clear(drops=False)
    h.put(b"1")
    h.log.answer(purge)
    h.look()


def purge_a_queue_whose_messages_are_away_for_a_while(h: History) -> None:
    h.put(b"1")
    purge = h.clear(drops=False)
    h.move(QUEUE, OTHER)
    h.move(OTHER, QUEUE)
    h.log.answer(purge)
    h.look((b"1", 0, 0))


def put_into_the_next_queue_while_the_first_is_deleted(h: History) -> None:
    h.put(b"1")
    deletion = h.clear(drops=True)
    h.log.answer(h.clear(drops=True))
    h.create_queue()
    h.put(b"2")
    h.log.answer(deletion)
    h.create_queue()
    h.look()


def store_without_an_answer(h: History) -> None:
    put = h.begin("put")
    put.once = [model.stores(put, QUEUE, "x", b"1")]
    put.lingers = True
    h.log.answer(put)
    h.look((b"1", 0, 0))


TRUE = (
    remove_during_a_claim,
    put_during_a_removal,
    claim_when_the_first_claim_has_ended,
    put_during_a_purge,
    put_during_a_purge_that_takes_it,
    purge_a_queue_whose_messages_are_away_for_a_while,
    put_into_the_next_queue_while_the_first_is_deleted,
    store_without_an_answer,
)


@pytest.mark.parametrize("write", TRUE, ids=lambda write: write.__name__)
def test_a_history_that_an_order_explains_is_no_finding(write: Callable[[History], None]) -> None:
    history = History()
    write(history)
    assert history.judged() is None
