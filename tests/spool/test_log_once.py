"""Numbered batches of a writer are stored once, even when processes die."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import Spool
from fsmq.spool.errors import InvalidValue, NoSuchLog
from fsmq.spool.log import idempotent
from fsmq.spool.log.idempotent import publish_once
from fsmq.spool.log.log import Log, LogEntry
from fsmq.spool.log.store import Store
from tests.harness.suite import eventually
from tests.spool.helpers import Clock
from tests.spool.logs import MODES, bodies
from tests.spool.running import start_python


@pytest.fixture
def log(spool: Spool) -> Log:
    return spool.log("users", create=True)


def batch(*bodies: bytes) -> list[LogEntry]:
    return [LogEntry(body) for body in bodies]


def test_a_batch_is_stored_once(log: Log, clock: Clock) -> None:
    log.publish(b"other")
    assert publish_once(log, "job", 0, batch(b"a", b"b")) == range(1, 3)
    log.publish(b"other")
    clock.advance(100_000)  # long after the log's dedupe_window
    assert publish_once(log, "job", 0, batch(b"a", b"b")) == range(1, 3)
    assert publish_once(log, "job", 1, batch(b"c")) == range(4, 5)
    assert publish_once(log, "job", 0, batch(b"a", b"b")) is None
    assert publish_once(log, "another", 0, batch(b"d")) == range(5, 6)
    assert publish_once(log, "job", 2, []) == range(6, 6)
    assert bodies(log) == [b"other", b"a", b"b", b"other", b"c", b"d"]
    with pytest.raises(InvalidValue):
        publish_once(log, "job", 3, [LogEntry(b"x", id="own")])


def refuse(last: idempotent.Noted) -> None:
    raise InvalidValue("job", f"{last.run}")


def test_a_writer_sees_the_note_of_its_last_batch(log: Log) -> None:
    seen: list[Any] = []

    def publish(number: int, run: dict[str, Any], *given: bytes) -> None:
        publish_once(log, "job", number, batch(*given), run=run, check=lambda n: seen.append(n.run))

    publish(3, {"rows": 2}, b"a", b"b")
    assert seen == []
    for number in (3, 4, 4, 2):
        publish(number, {"rows": number}, b"c")
    assert seen == [{"rows": 2}, {"rows": 2}, {"rows": 4}, {"rows": 4}]
    with pytest.raises(InvalidValue, match="'rows': 4"):
        publish_once(log, "job", 5, batch(b"d"), check=refuse)
    assert bodies(log) == [b"a", b"b", b"c"]


def test_the_note_of_an_unpublished_batch_is_replaced(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "publish", lambda self, entries: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        publish_once(log, "job", 0, batch(b"a"), run={"rows": 1})
    monkeypatch.undo()
    assert publish_once(log, "job", 0, batch(b"b", b"c"), run={"rows": 2}, check=refuse) == range(2)
    with pytest.raises(InvalidValue, match="'rows': 2"):
        publish_once(log, "job", 0, batch(b"b"), check=refuse)


def test_the_first_batch_of_a_writer_adds_no_names_to_the_folder_of_the_log(
    log: Log, spool: Spool
) -> None:
    """The folder of writers was made durable with the log."""
    folder = spool.tree.root / "logs/users"
    names = sorted(os.listdir(folder))
    assert publish_once(log, "job", 0, batch(b"a")) == range(1)
    assert sorted(os.listdir(folder)) == names


def test_a_batch_that_was_noted_but_not_published_is_published_by_a_retry(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "publish", lambda self, entries: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        publish_once(log, "job", 0, batch(b"a"))
    monkeypatch.undo()
    log.publish(b"other")
    assert publish_once(log, "job", 0, batch(b"a")) == range(1, 2)
    assert bodies(log) == [b"other", b"a"]


PROGRAM = """
import sys
from fsmq.spool import Spool
from fsmq.spool.log.log import LogEntry
from fsmq.spool.log.idempotent import publish_once
with Spool(sys.argv[1], delivers=False) as spool, open(sys.argv[2], "a+", buffering=1) as answers:
    answers.seek(0)
    number = len(answers.readlines())  # Spark's checkpoint
    while True:
        publish_once(spool.log("users"), "job", number, [LogEntry(b"%d" % number)] * 3)
        print(number, file=answers)
        number += 1
"""


def test_killed_writers_publish_each_batch_once(tmp_path: Path) -> None:
    root, answers = tmp_path / "mq", tmp_path / "answers"
    with Spool(root) as spool:
        log = spool.log("users")
        log.create(dedupe_window=0)
        size = 0
        for round_ in range(6):
            process = start_python(PROGRAM, root, answers)
            try:
                eventually(lambda s=size: answers.exists() and answers.stat().st_size > s + 30)
                time.sleep(0.003 * round_)
            finally:
                process.kill()
                process.wait()
            size = answers.stat().st_size
        number = len(answers.read_text().splitlines())
        publish_once(log, "job", number, batch(b"%d" % number) * 3)
        found = [int(body) for body in bodies(log)]
        assert found == [n for n in range(number + 1) for _ in range(3)]


@MODES
def test_a_batch_whose_writer_died_before_its_sync_is_found_long_after(
    spool: Spool, clock: Clock, writers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The retry comes from a process that has the log open and knows its durable end."""
    log = spool.log("events")
    log.create(writers=writers)
    publish_once(log, "job", 1, batch(b"one"))
    with Spool(spool.tree.root, clock=clock) as other, monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", lambda fd: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            publish_once(other.log("events"), "job", 2, batch(b"two"))
    clock.advance(100_000)  # long after the log's dedupe_window
    assert publish_once(log, "job", 2, batch(b"two")) == range(1, 2)
    assert bodies(log) == [b"one", b"two"]


@pytest.mark.parametrize("moment", ["before the note", "after the note"])
def test_a_batch_is_stored_once_in_a_log_that_is_recreated_during_the_call(
    log: Log, spool: Spool, clock: Clock, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    log.publish_many([b"old"] * 5)
    write = idempotent._write

    def recreate() -> None:
        monkeypatch.undo()
        with Spool(spool.tree.root, sync="none", clock=clock) as other:
            other.log("users").delete()
            other.log("users").create()

    def stopped(*given: Any) -> None:
        if moment == "before the note":
            recreate()
        write(*given)
        if moment == "after the note":
            recreate()

    monkeypatch.setattr(idempotent, "_write", stopped)
    with suppress(NoSuchLog):
        publish_once(log, "job", 7, batch(b"a"))
    for _ in range(2):
        assert publish_once(log, "job", 7, batch(b"a")) == range(1)
        clock.advance(100_000)  # long after the log's dedupe_window
    assert bodies(log) == [b"a"]
