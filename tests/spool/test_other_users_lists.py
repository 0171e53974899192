"""A file of another user is one fault: a program that walks a listing handles all the others.

Such files are left when an administrator runs ``fsmq`` as root.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from fsmq.spool import Spool, Unavailable
from fsmq.spool.layout.uuids import derived_uuid7, uuid7
from fsmq.spool.log import upkeep
from fsmq.spool.moves.ended import KEEP_S, forget_ended
from fsmq.spool.schedules.scheduler import IDLE_S, Scheduler
from tests.spool.test_other_users import as_its_user, put_unreadable, shared

__all__ = ["shared"]
_NOW = 1_800_000_000.0


def as_daemon(root: Path, verb: Callable[[Spool], object]) -> str:
    """The result of a verb that the user of the daemons calls."""

    def work() -> str:
        with Spool(root, sync="none") as spool:
            return str(verb(spool))

    return as_its_user(work)


@pytest.mark.parametrize("suffix", ["json", "done"])
def test_moves_are_listed(shared: Path, suffix: str) -> None:
    put_unreadable(shared / "moves" / f"{uuid7()}.{suffix}")

    def move(spool: Spool) -> list[str]:
        spool.begin_move("jobs", "more")
        with suppress(Unavailable):  # of the other move
            spool.make_moves()
        return [move.status for move in spool.moves()]

    assert as_daemon(shared, move) == "['complete']"


def test_outcomes_of_moves_are_removed(shared: Path) -> None:
    old = [derived_uuid7(int((_NOW - 2 * KEEP_S) * 1e9), name) for name in (b"1", b"2")]
    for path in (f"{old[0]}.done", ".theirs.lock"):
        put_unreadable(shared / "moves" / path)
    (shared / "moves" / f"{old[1]}.done").touch()
    for ref in old:
        os.utime(shared / "moves" / f"{ref}.done", (_NOW - 2 * KEEP_S, _NOW - 2 * KEEP_S))
    assert as_daemon(shared, lambda spool: forget_ended(spool.tree, lambda: _NOW)) == "2"


def test_queues_are_counted(shared: Path) -> None:
    as_daemon(shared, lambda spool: spool.create_queue("theirs"))
    put_unreadable(shared / "config" / "theirs.json")
    assert as_daemon(shared, lambda spool: list(spool.survey())) == "['jobs']"


def test_schedules_are_listed(shared: Path) -> None:
    def define(spool: Spool) -> None:
        for name in ("mine", "marked"):
            spool.schedule(name).define("* * * * *", "jobs", b"x")

    def look(spool: Spool) -> list[tuple[str, bool]]:
        return [(one.name, one.problem is None) for one in spool.schedules()]

    as_daemon(shared, define)
    put_unreadable(shared / "schedules" / "theirs.json")
    put_unreadable(shared / "schedules" / "marked.done")
    assert as_daemon(shared, look) == "[('marked', False), ('mine', True), ('theirs', False)]"


def test_an_unreadable_marker_without_a_schedule_holds_up_no_schedule(shared: Path) -> None:
    put_unreadable(shared / "config" / "._schedule:gone.lock")
    put_unreadable(shared / "schedules" / "gone.done")

    def put(spool: Spool) -> int:
        now = [spool.context.clock()]
        spool.context.clock = lambda: now[0]
        spool.schedule("mine").define("* * * * * *", "jobs", b"x")
        faults: list[str] = []
        scheduler = Scheduler(spool.context, on_fault=lambda name, error: faults.append(name))
        scheduler.step()
        for _ in range(2):
            now[0] += IDLE_S + 1
            scheduler.step()
        before = spool.counts("jobs").total
        now[0] += 1
        scheduler.step()
        assert set(faults) == {"schedules/gone.done"}
        return spool.counts("jobs").total - before

    assert as_daemon(shared, put) == "1"


def test_a_topic_reaches_its_other_subscribers(shared: Path) -> None:
    as_daemon(shared, lambda spool: (spool.create_topic("news"), spool.create_queue("theirs")))
    put_unreadable(shared / "topics" / "news" / "theirs")

    def publish(spool: Spool) -> list[str]:
        spool.subscribe("news", "jobs")
        return sorted(spool.topic("news").publish(b"x"))

    assert as_daemon(shared, publish) == "['jobs', 'theirs']"


def test_topics_are_listed(shared: Path) -> None:
    (shared / "topics" / "theirs").mkdir(mode=0)
    (shared / "topics" / "theirs").chmod(0)

    def look(spool: Spool) -> dict[str, object]:
        spool.create_topic("news")
        return {topic: spool.subscriptions(topic) for topic in spool.topics()}

    assert as_daemon(shared, look) == "{'news': {}}"
    (shared / "topics" / "theirs").chmod(0o700)


def test_logs_are_tended(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = shared / "logs" / f".{uuid7()}"
    draft.mkdir(mode=0o700)
    monkeypatch.setattr(upkeep, "LEFT_AFTER_S", 0.0)

    def tend(spool: Spool) -> str:
        spool.log("users").create(retain_for=60.0)
        spool.log("users").publish(b"x")
        tended, faults = [], []
        monkeypatch.setattr(upkeep.Retention, "step", lambda self: tended.append(self))
        upkeep.Upkeep(spool.open_logs, lambda name, error: faults.append(name)).step()
        return f"{len(tended)} {faults == [f'logs/{draft.name}']}"

    if os.geteuid() == 0:  # otherwise the folder belongs to the user
        assert as_daemon(shared, tend) == "1 True"
