"""Each step of a message is counted and written to the journal once, when it is durable."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import pytest

from fsmq.spool import NewMessage, Queue, Spool, prepare
from fsmq.spool.layout import transitions
from fsmq.spool.layout.transitions import STEPS, State, Step, Transition
from fsmq.spool.records.journal import Details, NoJournal
from fsmq.spool.records.metrics import METRICS
from fsmq.spool.verbs import dedup
from fsmq.spool.verbs.deliver import deliver_one
from tests.harness.suite import HOME

ROWS = {name: row for name, row in vars(transitions).items() if isinstance(row, Transition)}


class Noted(NoJournal):
    """A journal in memory: the events in order."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def note_all(self, event: str, queue: str, messages: Sequence[tuple[str, Details]]) -> None:
        for _, details in messages:
            assert set(details) <= set(Details.__annotations__)
            self.events.append(event)


@pytest.fixture
def noted(spool: Spool) -> Iterator[Noted]:
    spool.context.journal = journal = Noted()
    yield journal
    counted = Counter(
        {key[0]: number for key, number in spool.context.metrics.snapshot().counts.items()}
    )
    metrics = {step.event: step.metric for step in STEPS}
    expected = Counter(metric for e in journal.events if (metric := metrics[e]) is not None)
    for metric in filter(None, metrics.values()):
        assert counted[metric] == expected[metric], "metrics and journal differ"


def test_an_aborted_claim_is_not_recorded(spool: Spool, jobs: Queue, noted: Noted) -> None:
    jobs.put(b"x")
    spool.deliver()
    before = list(noted.events)
    claim = prepare.claim(spool.context, "jobs")
    assert noted.events == before
    claim.dirty.close()
    claim.abort()
    assert noted.events == before


def test_a_step_is_recorded_when_it_is_durable(spool: Spool, jobs: Queue, noted: Noted) -> None:
    jobs.configure(max_deliveries=5, dead_letter_queue="dead")
    ids = jobs.put_many([b"1", b"2"])
    jobs.claim(2)
    before = list(noted.events)
    released = prepare.release_many(spool.context, "jobs", ids[:1])
    buried = prepare.bury(spool.context, "jobs", ids[1])
    assert noted.events == before
    spool.complete(released)
    spool.complete(buried)
    assert noted.events == [*before, "released", "buried"]


def test_a_delivery_by_another_verb_is_recorded(spool: Spool, jobs: Queue, noted: Noted) -> None:
    [message_id] = spool.complete(prepare.put(spool.context, "jobs", [NewMessage(b"x")]))
    deliver_one(spool.context, "jobs", message_id)
    assert noted.events == ["accepted", "delivered"]


def test_a_pull_to_the_read_side_is_a_move(spool: Spool, noted: Noted) -> None:
    for side in (dedup.read_side("jobs"), dedup.write_side("jobs")):
        spool.create_queue(side)
    spool.complete(prepare.dedup_send(spool.context, "jobs", [b"x"]))
    spool.deliver()
    spool.complete(dedup.poll(spool.context, "jobs", 1, 0.0))
    spool.deliver()
    spool.complete(dedup.poll(spool.context, "jobs", 1, 60.0))
    assert noted.events == ["accepted", "delivered", "moved", "claimed", "redelivered", "claimed"]


def test_rows_of_the_table_differ_in_their_step_or_rename() -> None:
    same = {frozenset((a, b)) for a in ROWS for b in ROWS if a != b and ROWS[a] == ROWS[b]}
    assert same == set(map(frozenset, combinations(("PULL", "MOVE_READY", "REPRIORITIZE"), 2)))
    assert {row.step for row in ROWS.values()} <= set(STEPS)
    assert {s for s in vars(transitions).values() if isinstance(s, Step)} == set(STEPS)
    assert {step.metric for step in STEPS} - {None} <= set(METRICS)


def test_the_page_of_the_journal_lists_every_step() -> None:
    page = (HOME / "docs" / "journal.md").read_text()
    table = page.partition("| event | step |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [step.event for step in STEPS]


def test_only_the_context_records_steps() -> None:
    recorders = {
        path.relative_to(HOME).as_posix()
        for path in (HOME / "fsmq").rglob("*.py")
        if "journal.note(" in path.read_text()
    }
    assert recorders == {"fsmq/spool/context.py"}


def test_the_page_of_the_format_lists_every_row() -> None:
    page = (HOME / "docs" / "format.md").read_text()
    listed = page.partition("\n## 2. ")[2].partition("\n## ")[0].replace("\n  ", " ")
    found = []
    for source, target, names in re.findall(r"(?m)^- (\S+) → `(\w+)/`: (.*)$", listed):
        for name, event in re.findall(r"([a-z][a-z ]*) \(`(\w+)`", names):
            if source == "any":  # one row for each state, which is in its name
                found += [(f"{name} {one.value}", one.value, target, event) for one in _ANY]
            else:
                found.append((name, source.strip("`/"), target, event))
    folders = {State.READY.value: "queues"}
    assert sorted((name, folders.get(s, s), t, event) for name, s, t, event in found) == sorted(
        (
            name.lower().replace("_", " "),
            folders.get(row.source.value, row.source.value),
            folders.get(row.target.value, row.target.value),
            row.step.event,
        )
        for name, row in ROWS.items()
    )


_ANY = (State.NEW, State.READY, State.DELAY)


def test_views_change_nothing() -> None:
    reading = [
        "folder",
        "path",
        "stat",
        "has_queue",
        "queues",
        "names",
        "walk",
        "ready_names",
        "show_ready",
        "open",
    ]
    for path in (HOME / "fsmq/spool/views").rglob("*.py"):
        text = path.read_text()
        assert set(re.findall(r"\btree\.(\w+)\(", text)) <= set(reading), path
        assert not re.search(r"\bcontext\.(make|record)\(", text), path


def test_files_are_moved_only_by_rows_of_the_table() -> None:
    # `verbs.move`, `verbs.removal` and the latch rename first and record once it is durable.
    callers = {
        path.relative_to(HOME / "fsmq/spool").as_posix()
        for path in Path(HOME / "fsmq/spool").rglob("*.py")
        if re.search(r"\btree\.move\(", path.read_text())
    }
    verbs = {f"verbs/{name}.py" for name in ("latch", "removal", "moves/move")}
    assert callers == {"context.py", *verbs}
