"""The life of a message, read from the segments of the journal."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fsmq import InvalidValue
from fsmq.spool import Spool
from fsmq.spool.layout.messages.dead_letter import MAX_NOTED_BYTES
from fsmq.spool.layout.uuids import derived_uuid7
from fsmq.spool.records import life
from fsmq.spool.records.gone import last_places
from fsmq.spool.records.life import LifeReader, LifeStep
from fsmq.spool.records.life_words import details, gap, label, span
from fsmq.spool.views.places import known_as

NOW_MS = 1_795_277_400_000


def uuid7(ms: int) -> str:
    """A new id of this time."""
    return derived_uuid7(ms * 1_000_000, os.urandom(8))


class Book:
    """A journal written by a test."""

    def __init__(self, root: Path) -> None:
        self.spool = Spool(root, delivers=False)
        self.spool.create_queue("jobs")
        self._folder = root / "journal"
        self._number = 0

    def segment(self, begun: float, *steps: dict[str, Any], host: str = "a", end: str = "") -> None:
        """A segment begun some seconds after now. end: an incomplete line of an open segment."""
        self._number += 1
        name = f"{int(NOW_MS + begun * 1000):013}-{host}-1-{self._number}.jsonl"
        lines = [json.dumps({"v": 1, **step}, separators=(",", ":")) + "\n" for step in steps]
        path = self._folder / (f".{name}" if end else name)
        path.write_text("".join(lines) + end)

    def life(self, message_id: str, queue: str = "jobs", **given: Any) -> list[tuple[str, str]]:
        found = self.spool.queue(queue).life(message_id, **{"budget": 600.0, **given})
        assert found.next is None
        return [(step.queue, step.event) for step in found.steps]

    def in_portions(self, message_id: str) -> list[list[str]]:
        """The events that each call returns when its time budget is zero."""
        portions, after = [], ""
        while after or not portions:
            found = self.spool.queue("jobs").life(message_id, after=after, budget=0)
            portions.append([step.event for step in found.steps])
            after = found.next or ""
        return portions


def step(
    at: float, event: str, message_id: str, queue: str = "jobs", **more: Any
) -> dict[str, Any]:
    at_ms = NOW_MS + round(at * 1000)
    return {"at": at_ms, "event": event, "queue": queue, "id": message_id, **more}


@pytest.fixture
def book(root: Path) -> Iterable[Book]:
    book = Book(root)
    with book.spool:
        yield book


@pytest.fixture
def message_id() -> str:
    return uuid7(ms=NOW_MS)


def test_every_step_of_a_real_message_is_found(root: Path) -> None:
    with Spool(root, journal=True) as spool:
        jobs = spool.queue("jobs", create=True)
        jobs.configure(max_deliveries=5, dead_letter_queue="jobs.dead")
        message_id = jobs.put(b"hello")
        other = jobs.put(b"another")
        [first, _] = jobs.claim(2, visibility=9)
        first.release()
        [again] = jobs.claim(1)
        again.bury()
        spool.queue("jobs.dead").move_to("jobs")
        [last] = jobs.claim(1)
        last.ack()
        spool.context.journal.flush()  # its segment is still open
        life = jobs.life(message_id)
        assert life.next is None
        events = "accepted delivered claimed released claimed buried moved claimed removed"
        assert [step.event for step in life.steps] == events.split()
        claimed = life.steps[2]
        assert (claimed.deliveries, claimed.via) == (1, "library")
        assert claimed.claim == pytest.approx(9, abs=1)
        assert (life.steps[5].target, life.steps[6].source) == ("jobs.dead", "jobs.dead")
        assert [step.event for step in jobs.life(other).steps][:2] == ["accepted", "delivered"]
        assert spool.queue("jobs.dead").life(message_id) == life
        assert jobs.life("unknown").steps == []


def test_steps_of_overlapping_segments_are_in_order(book: Book, message_id: str) -> None:
    book.segment(-8, step(0, "accepted", message_id), step(1.5, "claimed", message_id))
    book.segment(-5, step(0.5, "delivered", message_id), host="b")
    book.segment(1, step(3, "removed", message_id), host="b")
    book.segment(2, step(4, "reaped", message_id), host="c", end='{"v":1,"at":5,"eve')
    reader = LifeReader(book.spool.tree, "jobs", message_id)
    steps = [step for batch in reader.batches(5) for step in batch]
    assert [s.event for s in steps] == ["accepted", "delivered", "claimed", "removed", "reaped"]


def test_segments_older_than_the_message_are_not_read(book: Book, message_id: str) -> None:
    book.segment(-1000, step(0, "accepted", message_id))
    book.segment(0, step(0, "delivered", message_id))
    assert book.life(message_id) == [("jobs", "delivered")]


def test_an_id_with_a_wrong_time_or_none_is_found(book: Book) -> None:
    future = uuid7(ms=NOW_MS + 9_000_000)
    for name in ("plain", future):
        book.segment(0, step(0, "accepted", name))
        assert book.life(name) == [("jobs", "accepted")]


def test_a_move_that_changed_the_id_is_followed_both_ways(book: Book, message_id: str) -> None:
    later = uuid7(ms=NOW_MS + 600_000)
    moved = step(600, "moved", later, "there", **{"from": "jobs", "was": message_id})
    book.segment(0, step(0, "accepted", message_id))
    # In segments that were begun before the segment with the move.
    book.segment(595, step(601, "claimed", later, "there"), host="b")
    book.segment(598, moved)
    book.segment(605, step(606, "removed", later, "there"))
    whole = [("jobs", "accepted"), ("there", "moved"), ("there", "claimed"), ("there", "removed")]
    assert book.life(message_id) == whole
    assert book.life(later, "there") == whole


def test_a_burial_that_changed_the_id_is_followed_both_ways(book: Book) -> None:
    """Also to steps long before it."""
    for first, old in enumerate(("order-17", uuid7(ms=NOW_MS + 8_000_000))):
        at, new = first * 8000.0, uuid7(ms=NOW_MS + (7200 + first * 8000) * 1000)
        book.segment(at - 1, step(at, "accepted", old), step(at + 1, "claimed", old))
        buried = step(at + 7200, "buried", old, to="dead", was=new)
        book.segment(at + 7190, buried, step(at + 7201, "claimed", new, "dead"))
        events = [
            ("jobs", "accepted"),
            ("jobs", "claimed"),
            ("jobs", "buried"),
            ("dead", "claimed"),
        ]
        assert book.life(old) == events
        assert book.life(new, "dead") == events


def test_messages_with_the_same_id_in_two_queues_have_two_lives(book: Book) -> None:
    book.segment(
        0,
        step(0, "accepted", "order-1"),
        step(0, "accepted", "order-1", "mails"),
        step(1, "buried", "order-1", "jobs", to="dead"),
        step(2, "removed", "order-1", "mails"),
        step(3, "removed", "order-1", "dead"),
    )
    assert book.life("order-1") == [("jobs", "accepted"), ("jobs", "buried"), ("dead", "removed")]
    assert book.life("order-1", "mails") == [("mails", "accepted"), ("mails", "removed")]
    assert book.life("order-1", "dead") == book.life("order-1")


def test_reading_continues_after_the_budget_is_spent(book: Book, message_id: str) -> None:
    later = uuid7(ms=NOW_MS + 600_000)
    book.segment(0, step(0, "accepted", message_id))
    book.segment(100, step(100, "moved", later, "there", **{"from": "jobs", "was": message_id}))
    book.segment(200, step(200, "claimed", later, "there"))
    book.segment(300, step(300, "removed", later, "there"))
    assert book.in_portions(message_id) == [["accepted"], ["moved"], ["claimed"], ["removed"]]


def test_the_budget_also_limits_the_search_for_an_id_with_a_wrong_time(book: Book) -> None:
    future = uuid7(ms=NOW_MS + 9_000_000)
    for at, event in enumerate(("accepted", "claimed", "removed")):
        book.segment(100 * at, step(100 * at, event, future))
    assert book.in_portions(future) == [["accepted"], ["claimed"], ["removed"]]


def test_steps_before_the_time_of_an_id_are_found_without_a_budget(book: Book) -> None:
    late = uuid7(ms=NOW_MS + 1_000_000)
    for at, event in ((0, "accepted"), (100, "removed")):
        book.segment(at, step(at, event, late))
    for at in (1000, 1100, 1200):
        book.segment(at, step(at, "accepted", uuid7(ms=NOW_MS)))
    assert [e for part in book.in_portions(late) for e in part] == ["accepted", "removed"]


@pytest.mark.parametrize("after", ["x", "1.x", "-1.jobs:x", "1.:x", "٣.jobs:x", "9" * 20 + ".q:x"])
def test_an_invalid_place_to_continue_from_is_refused(book: Book, after: str) -> None:
    with pytest.raises(InvalidValue, match="after"):
        book.spool.queue("jobs").life("x", after=after)


def test_malformed_lines_are_skipped(book: Book, message_id: str) -> None:
    good = step(1, "accepted", message_id)
    book.segment(0, {**good, "at": "soon"}, {**good, "size": []}, {**good, "via": 1}, good)
    with (book.spool.tree.root / "journal" / f"{NOW_MS:013}-x-1-1.jsonl").open("wb") as file:
        file.write(b'"id":"%s"\n' % message_id.encode() + b"[" * 100_000 + b"\n")
        file.write(b'"id":"%s"' % message_id.encode() + bytes(3_000_000))
    os.mkfifo(book.spool.tree.root / "journal" / f"{NOW_MS:013}-x-1-2.jsonl")
    assert book.life(message_id) == [("jobs", "accepted")]


def test_only_lines_with_the_id_are_parsed(
    book: Book, message_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parsing a line takes microseconds, and a journal has millions."""
    filler = "".join(
        json.dumps({"v": 1, **step(0, "claimed", uuid7(ms=NOW_MS))}, separators=(",", ":")) + "\n"
        for _ in range(1000)
    )
    path = book.spool.tree.root / "journal" / f"{NOW_MS:013}-b-1-1.jsonl"
    path.write_text(filler * 20)
    book.segment(1, step(1, "accepted", message_id))
    parsed: list[bytes] = []
    loads = json.loads

    def noted(line: bytes) -> Any:
        parsed.append(line)
        return loads(line)

    monkeypatch.setattr(life, "json", SimpleNamespace(loads=noted))
    assert book.life(message_id) == [("jobs", "accepted")]
    assert len(parsed) == 1


@pytest.mark.parametrize("how", ["at once", "after a delay", "after a backoff"])
def test_a_life_says_why_a_message_is_tried_again(root: Path, how: str) -> None:
    with Spool(root, sync="none", journal=True) as spool:
        jobs = spool.queue("jobs", create=True)
        if how == "after a backoff":
            jobs.configure(retry_backoff=1)
        message_id = jobs.put(b"hello")
        reason = "Timeout: " + "é" * 300
        jobs.claim()[0].release(5 if how == "after a delay" else 0, reason=reason)
        spool.context.journal.flush()
        last = jobs.life(message_id).steps[-1]
    assert last.event == "released"
    assert (last.reason or "").startswith("Timeout: éé")
    assert len((last.reason or "").encode()) <= MAX_NOTED_BYTES
    assert f"“{last.reason}”" in details(last)


def test_a_life_says_why_a_message_was_buried(root: Path) -> None:
    with Spool(root, sync="none", journal=True) as spool:
        jobs = spool.queue("jobs", create=True)
        jobs.configure(max_deliveries=1, dead_letter_queue="dead")
        first, second = jobs.put(b"1"), jobs.put(b"2")
        jobs.claim()[0].bury("no address")
        jobs.claim()[0].release(reason="no answer")
        spool.context.journal.flush()
        reasons = [jobs.life(one).steps[-1].reason for one in (first, second)]
    assert reasons == ["no address", "max_deliveries: no answer"]


def test_a_step_survives_a_round_trip_through_json() -> None:
    line = step(1.234, "moved", "x", size=5, deliveries=2, claim_ms=1500, host="a", via="mover")
    line |= {"from": "a", "to": "b", "was": "y", "reason": "why"}
    assert LifeStep.from_json({"v": 1, **line}).as_json() == line


def test_steps_are_described_and_a_missing_beginning_is_noted() -> None:
    delivered = LifeStep.from_json(step(0, "delivered", "x", via="mover"))
    accepted = LifeStep.from_json(step(0.001, "accepted", "x", via="native", size=5))
    claimed = LifeStep.from_json(step(1, "claimed", "x", deliveries=2, claim_ms=30_000))
    moved = LifeStep.from_json(step(2, "moved", "y", "there", **{"from": "jobs", "was": "x"}))
    assert gap([delivered, accepted, claimed]) is None
    assert "its first steps are not" in str(gap([delivered, claimed]))
    assert "it is not" in str(gap([]))
    assert (label(claimed, 5), details(claimed)) == ("claimed, 2 of 5", "for 30.0 s")
    assert details(accepted) == "by native, 5 B"
    assert details(moved) == "from jobs to there as y"
    spans = [span(seconds) for seconds in (0.0021, 3, 150, 9000, 300_000)]
    assert spans == ["2 ms", "3.0 s", "2.5 min", "2.5 h", "3.5 d"]


def test_the_acceptance_comes_first_though_it_was_logged_later(book: Book, message_id: str) -> None:
    """A batch is logged once all of it is stored; a mover may deliver its first messages before."""
    book.segment(
        0,
        step(0.000, "delivered", message_id),
        step(0.004, "claimed", message_id),
        step(0.009, "accepted", message_id),
        step(7, "removed", message_id),
        # Another message with the same id, given by a client.
        step(7.001, "delivered", message_id),
        step(7.002, "reaped", message_id),
        step(7.003, "accepted", message_id),
    )
    book.segment(20)
    events = [event for _, event in book.life(message_id)]
    first = ["accepted", "delivered", "claimed", "removed"]
    assert events == [*first, "delivered", "reaped", "accepted"]


def test_steps_long_before_an_acceptance_stay_before_it(book: Book, message_id: str) -> None:
    book.segment(
        0, step(0, "claimed", message_id), step(0, "moved", message_id, was="x", **{"from": "old"})
    )
    book.segment(200, step(200, "accepted", message_id))
    assert [e for _, e in book.life(message_id)] == ["claimed", "moved", "accepted"]


def test_the_last_places_of_an_own_id_are_found(book: Book) -> None:
    moved = {"from": "jobs", "was": "p03.@order-1@.h"}
    book.segment(0, step(0, "accepted", "p03.@order-1@.h"), step(1, "accepted", "order-1"))
    book.segment(10, step(10, "removed", "order-1"), step(11, "accepted", "p03.@order-11@"))
    book.segment(20, step(20, "moved", "order-1", "there", **moved))
    tree = book.spool.tree
    everywhere = last_places(tree, "order-1", known_as("order-1"), 60)
    assert everywhere == ([("jobs", "order-1"), ("there", "order-1")], None)
    whole = last_places(tree, "p03.@order-1@.h", ["p03.@order-1@.h"], 60)
    assert whole.names == [("there", "order-1")]
    assert last_places(tree, "order-", known_as("order-"), 60).names == []
    # Without a budget only the newest segment is read.
    newest, since = last_places(tree, "order-1", known_as("order-1"), 0)
    assert newest == [("there", "order-1")]
    assert since is not None
