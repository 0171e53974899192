"""Schedules: one message for each run, despite wrong clocks and crashes."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import FsmqError, InvalidValue, NoSuchQueue, NoSuchSchedule, QueueFull, Spool
from fsmq.spool.errors import InUse
from fsmq.spool.fsck import check
from fsmq.spool.layout.tree import Tree
from fsmq.spool.schedules.crontab import Crontab
from fsmq.spool.schedules.putting import Putter
from fsmq.spool.schedules.schedule import Schedule
from fsmq.spool.schedules.schedule_files import ScheduleFiles
from fsmq.spool.schedules.schedule_settings import MAX_BODY_BYTES, ScheduleState
from fsmq.spool.schedules.scheduler import IDLE_S, Scheduler, SchedulerThread
from tests.harness.suite import eventually
from tests.spool.crashing import run_and_die
from tests.spool.helpers import Clock

JOBS, NAME = "jobs", "nightly"


def at(*of: int) -> float:
    return datetime(*of, tzinfo=UTC).timestamp()  # type: ignore[arg-type,misc]


@pytest.fixture
def clock() -> Clock:
    clock = Clock()
    clock.now = at(2026, 6, 1, 12)
    return clock


@pytest.fixture
def spool(tmp_path: Path, clock: Clock) -> Spool:
    opened = Spool(tmp_path / "mq", clock=clock, sync="none")
    opened.create_queue(JOBS)
    return opened


def claim_runs(spool: Spool, queue: str = JOBS) -> list[str]:
    """Claim and acknowledge all messages; the times of their runs."""
    found = []
    while messages := spool.queue(queue).claim(1000):
        for message in messages:
            assert message.created_at is not None
            found.append(datetime.fromtimestamp(message.created_at, UTC).strftime("%d %H:%M:%S"))
        spool.queue(queue).ack(*messages)
    return sorted(found)


def pass_time(spool: Spool, clock: Clock, seconds: float, step: float = 30.0) -> list[str]:
    """Let time pass, and return the runs."""
    end = clock.now + seconds
    found = []
    while clock.now < end:
        clock.now = min(end, clock.now + step)
        spool.run_schedules()
        found += claim_runs(spool)
    return found


def define(spool: Spool, cron: str = "*/10 * * * *", **more: object) -> Schedule:
    schedule = spool.schedule(NAME)
    schedule.define(cron, JOBS, "report", **more)  # type: ignore[arg-type]
    return schedule


def test_each_run_puts_a_message(spool: Spool, clock: Clock) -> None:
    schedule = define(spool, content_type="text/plain", attributes={"of": "night"}, priority=7)
    assert schedule.next(2) == [clock.now + 600, clock.now + 1200]
    assert pass_time(spool, clock, 1800) == ["01 12:10:00", "01 12:20:00", "01 12:30:00"]
    clock.advance(600)
    spool.run_schedules()
    [message] = spool.queue(JOBS).claim()
    assert (message.body, message.content_type) == (b"report", "text/plain")
    assert (message.attributes, message.priority) == ({"of": "night"}, 7)
    [state] = spool.schedules()
    assert (state.name, state.last, state.next) == (NAME, clock.now, clock.now + 600)
    assert state.settings is not None
    assert (state.problem, state.settings.catch_up) == (None, "last")


@pytest.mark.parametrize(
    ("cron", "begin", "hours", "expected"),
    [
        # Clocks go from 2:00 to 3:00 at 01:00 UTC on March 29.
        ("30 2 * * *", (2026, 3, 28, 0), 60, ["28 01:30:00", "29 01:00:00", "30 00:30:00"]),
        ("0,30 2 * * *", (2026, 3, 28, 12), 20, ["29 01:00:00"]),
        ("*/30 * * * *", (2026, 3, 29, 0), 2, ["29 00:30:00", "29 01:00:00", "29 01:30:00"]),
        # And from 3:00 to 2:00 at 01:00 UTC on October 25.
        ("30 2 * * *", (2026, 10, 24, 0), 60, ["24 00:30:00", "25 00:30:00", "26 01:30:00"]),
        ("30 * * * *", (2026, 10, 25, 0), 3, ["25 00:30:00", "25 01:30:00", "25 02:30:00"]),
    ],
)
@pytest.mark.parametrize("catch_up", ["last", "all"])
def test_both_changes_of_daylight_saving(
    spool: Spool, clock: Clock, cron: str, begin: Any, hours: int, expected: Any, catch_up: str
) -> None:
    clock.now = at(*begin)
    define(spool, cron, timezone="Europe/Berlin", catch_up=catch_up)
    found = pass_time(spool, clock, hours * 3600, 600)
    assert [one for one in found if one in expected] == expected
    assert len(found) == len(expected) + (cron == "*/30 * * * *") * 1


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Beirut", "UTC"])
@pytest.mark.parametrize("cron", ["30 2 * * *", "*/7 1-3 * * *", "0,30 0 * * *", "15 */2 * * *"])
def test_runs_do_not_depend_on_the_start_of_the_search(zone: str, cron: str) -> None:
    crontab = Crontab(cron, zone)
    for day in ((2026, 3, 28), (2026, 10, 24), (2026, 3, 7), (2026, 10, 31)):
        begin = int(at(*day))
        every = []
        for one in crontab.after(begin):
            if one > begin + 2 * 86_400:
                break
            every.append(one)
        assert every == sorted(set(every))
        for start in range(begin, begin + 86_400, 1733):
            assert crontab.next(start) == next(one for one in every if one > start)
            until = start + 50_000
            before = [one for one in every if start < one <= until]
            assert crontab.last(start, until) == (before[-1] if before else None)


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [
        ("none", []),
        ("last", ["01 14:50:00"]),
        ("all", [f"01 {hour}:{minute}0:00" for hour in (12, 13, 14) for minute in range(6)][1:]),
    ],
)
def test_a_host_that_was_down_catches_up(
    spool: Spool, clock: Clock, catch_up: str, expected: list[str]
) -> None:
    define(spool, catch_up=catch_up)
    clock.advance(3 * 3600 - 400)
    spool.run_schedules()
    assert claim_runs(spool) == expected
    assert pass_time(spool, clock, 600) == ["01 15:00:00"]


def test_runs_that_are_at_most_a_minute_late_are_not_missed(spool: Spool, clock: Clock) -> None:
    define(spool, "*/10 * * * * *", catch_up="none")
    clock.advance(3600)
    spool.run_schedules()
    assert claim_runs(spool) == [f"01 12:59:{second}0" for second in range(6)] + ["01 13:00:00"]


def test_a_clock_that_is_set_makes_no_second_message(spool: Spool, clock: Clock) -> None:
    define(spool, catch_up="all")
    assert pass_time(spool, clock, 1200) == ["01 12:10:00", "01 12:20:00"]
    clock.advance(-900)
    assert pass_time(spool, clock, 900) == []
    assert pass_time(spool, clock, 600) == ["01 12:30:00"]
    clock.advance(3600)  # the runs in between count as missed
    expected = [f"01 {time}:00" for time in ["12:40", "12:50", "13:00", "13:10", "13:20", "13:30"]]
    assert pass_time(spool, clock, 30) == expected
    clock.advance(-3600)
    assert pass_time(spool, clock, 3570) == []
    assert pass_time(spool, clock, 600) == ["01 13:40:00"]
    clock.advance(-86_400)
    [state] = spool.schedules()
    assert state.problem is not None
    assert "ahead of this clock" in state.problem


def pause_and_resume(spool: Spool, clock: Clock) -> None:
    spool.schedule(NAME).configure(paused=True)
    spool.schedule(NAME).configure(paused=False)


def change_line(spool: Spool, clock: Clock) -> None:
    spool.schedule(NAME).configure(cron="*/5 * * * *")


def define_with_another_line(spool: Spool, clock: Clock) -> None:
    define(spool, "*/5 * * * *", catch_up="all")


def edit_file(spool: Spool, clock: Clock) -> None:
    path = Path(f"{spool.tree.root}/schedules/{NAME}.json")
    path.write_text(path.read_text().replace("*/10", "*/5"))
    os.utime(path, (clock.now, clock.now))


@pytest.mark.parametrize(
    "change", [pause_and_resume, change_line, define_with_another_line, edit_file]
)
def test_no_run_is_repeated_when_a_host_whose_clock_is_behind_changes_a_schedule(
    spool: Spool, clock: Clock, change: Callable[[Spool, Clock], None]
) -> None:
    define(spool, catch_up="all")
    assert pass_time(spool, clock, 1200) == ["01 12:10:00", "01 12:20:00"]
    clock.advance(-900)
    change(spool, clock)
    clock.advance(901)
    spool.run_schedules()
    assert claim_runs(spool) == []
    assert pass_time(spool, clock, 600)[-1] == "01 12:30:00"


def test_two_hosts_whose_clocks_differ_put_one_message(spool: Spool, clock: Clock) -> None:
    define(spool, catch_up="all")
    ahead = Clock()
    found: list[str] = []
    with Spool(spool.tree.root, clock=ahead, sync="none") as other:
        for _ in range(200):
            clock.advance(60)
            ahead.now = clock.now + 1000
            for one in (spool, other):
                one.run_schedules()
                found += claim_runs(one)
    assert len(set(found)) == len(found) == 200 // 10 + 1


def test_many_movers_put_one_message_for_each_run(spool: Spool, clock: Clock) -> None:
    """A consumer removes the messages at once."""
    clock.now = float(int(datetime.now(UTC).timestamp()))
    spool.schedule(NAME).define("* * * * * *", JOBS, "x", catch_up="all")
    clock.advance(20)
    others = [Spool(spool.tree.root, clock=clock, sync="none", delivers=False) for _ in range(3)]
    faults: list[object] = []
    threads = [
        SchedulerThread(one.context, lambda *of: faults.append(of), lambda *of: faults.append(of))
        for one in others
    ]
    found: Counter[str] = Counter()

    def is_done() -> bool:
        clock.advance(1)
        found.update(claim_runs(spool))
        return len(found) >= 100

    try:
        eventually(is_done)
    finally:
        for thread in threads:
            thread.close()
        for one in others:
            one.close()
    found.update(claim_runs(spool))
    assert set(found.values()) == {1}
    assert faults == []


def test_runs_during_a_pause_are_skipped(spool: Spool, clock: Clock) -> None:
    schedule = define(spool, catch_up="all")
    assert pass_time(spool, clock, 600) == ["01 12:10:00"]
    assert schedule.configure(paused=True).paused
    assert schedule.state().next is None
    assert pass_time(spool, clock, 900) == []
    clock.advance(3600)  # no mover runs
    schedule.configure(paused=False)
    assert pass_time(spool, clock, 600) == ["01 13:30:00"]
    settings = json.loads(Path(f"{spool.tree.root}/schedules/{NAME}.json").read_text())
    assert "paused" not in settings


@pytest.mark.parametrize(
    ("catch_up", "runs"), [("all", ["01 12:10:00", "01 12:20:00", "01 12:30:00"]), ("none", [])]
)
def test_runs_missed_before_a_pause_are_caught_up(
    spool: Spool, clock: Clock, catch_up: str, runs: list[str]
) -> None:
    schedule = define(spool, catch_up=catch_up)
    clock.advance(1900)  # no mover runs
    schedule.configure(paused=True)
    clock.advance(1200)
    schedule.configure(paused=False)
    spool.run_schedules()
    assert claim_runs(spool) == runs


def test_a_failure_is_retried_after_the_clock_is_set_back(spool: Spool, clock: Clock) -> None:
    define(spool)
    spool.delete_queue(JOBS)
    scheduler = Scheduler(spool.context)
    clock.advance(3600)
    scheduler.step()  # it fails, because there is no queue
    clock.advance(-3600)
    spool.create_queue(JOBS)
    for _ in range(21):
        clock.advance(30)
        scheduler.step()
    assert claim_runs(spool) == ["01 12:10:00"]


def test_a_new_cron_line_restarts_the_schedule(spool: Spool, clock: Clock) -> None:
    schedule = define(spool, catch_up="all")
    clock.advance(3600)
    assert not schedule.define("*/10 * * * *", JOBS, "other", catch_up="all")
    spool.run_schedules()
    assert len(claim_runs(spool)) == 6
    clock.advance(3600)
    schedule.configure(cron="*/20 * * * *")
    spool.run_schedules()
    assert claim_runs(spool) == []
    assert pass_time(spool, clock, 1200) == ["01 14:20:00"]


def test_delay_and_ttl_count_from_the_scheduled_time(spool: Spool, clock: Clock) -> None:
    define(spool, catch_up="all", delay=900, ttl=1800)
    clock.advance(4200)
    spool.run_schedules()
    spool.deliver()
    [ready] = spool.queue(JOBS).claim(10)  # of 12:50; older ones have expired
    assert ready.created_at == clock.now - 1200
    assert ready.expires_at == clock.now + 600
    assert spool.queue(JOBS).counts().delayed == 2


def test_put_now_puts_an_additional_message(spool: Spool, clock: Clock) -> None:
    schedule = define(spool)
    message_id = schedule.put_now()
    assert spool.queue(JOBS).find(message_id) is not None
    [message] = spool.queue(JOBS).claim()
    assert (message.id, message.body) == (message_id, b"report")
    spool.queue(JOBS).ack(message)
    assert pass_time(spool, clock, 600) == ["01 12:10:00"]


def test_a_file_written_by_hand_counts_from_its_time(spool: Spool, clock: Clock) -> None:
    path = Path(f"{spool.tree.root}/schedules/{NAME}.json")
    path.write_text('{"cron": "*/10 * * * *", "queue": "jobs", "catch_up": "all"}')
    os.utime(path, (clock.now - 1500, clock.now - 1500))
    spool.run_schedules()
    assert claim_runs(spool) == ["01 11:40:00", "01 11:50:00", "01 12:00:00"]
    path.with_suffix(".done").write_text("rubbish")
    assert [f.kind.value for f in check(spool.tree, pause=0).findings] == ["bad-schedule"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"queue": "jobs"}',
        '{"cron": "* * * * *"}',
        '{"cron": "61 * * * *", "queue": "jobs"}',
        '{"cron": "* * * * *", "queue": "jobs", "timezone": "Mars/Base"}',
        '{"cron": "* * * * *", "queue": "jobs", "timezone": "../../etc/passwd"}',
        '{"cron": "* * * * *", "queue": "jobs", "catchup": "all"}',
        '{"cron": "* * * * *", "queue": "jobs", "catch_up": 7}',
        '{"cron": "* * * * *", "queue": "_jobs"}',
        '{"cron": "* * * * *", "queue": "jobs", "body": 7}',
        '{"cron": "* * * * *", "queue": "jobs", "body": "a", "body_base64": "YQ=="}',
        '{"cron": "* * * * *", "queue": "jobs", "body_base64": "?"}',
        '{"cron": "* * * * *", "queue": "jobs", "delay": true}',
        '{"cron": "* * * * *", "queue": "jobs", "attributes": {"a b": "c"}}',
    ],
)
def test_an_invalid_file_affects_no_other(spool: Spool, clock: Clock, text: str) -> None:
    define(spool)
    path = Path(f"{spool.tree.root}/schedules/bad.json")
    path.write_text(text)
    os.utime(path, (clock.now, clock.now))
    reported: list[str] = []
    scheduler = Scheduler(spool.context, on_problem=lambda name, reason: reported.append(name))
    for _ in range(40):
        clock.advance(30)
        scheduler.step()
    assert reported == ["schedules/bad.json"]
    assert claim_runs(spool) == ["01 12:10:00", "01 12:20:00"]
    state = spool.schedule("bad").state()
    assert state.settings is None
    assert state.problem
    assert [f.kind.value for f in check(spool.tree, pause=0).findings] == ["bad-schedule"]
    with pytest.raises(InvalidValue):
        spool.schedule("bad").put_now()
    spool.schedule("bad").define("@daily", JOBS)
    assert spool.schedule("bad").state().problem is None


def test_the_largest_schedule_is_read_again(spool: Spool, clock: Clock) -> None:
    """JSON takes six bytes for a control character."""
    body, attributes = b"\0" * MAX_BODY_BYTES, {"a": '"' * 65_000}
    schedule = spool.schedule(NAME)
    schedule.define("* * * * *", JOBS, body=body, attributes=attributes)
    state = schedule.state()
    assert state.problem is None
    assert state.settings is not None
    assert (state.settings.body, state.settings.attributes) == (body, attributes)
    assert schedule.configure(paused=True).body == body


def test_a_missing_queue_is_reported_and_awaited(spool: Spool, clock: Clock) -> None:
    schedule = define(spool, catch_up="all")
    spool.delete_queue(JOBS)
    reported: list[str] = []
    scheduler = Scheduler(spool.context, on_problem=lambda name, reason: reported.append(reason))
    for _ in range(60):
        clock.advance(30)
        assert scheduler.step() > 0
    assert len(reported) == 1
    assert "no queue named 'jobs'" in reported[0]
    assert "no queue named 'jobs'" in str(schedule.state().problem)
    assert "schedule-without-queue" in [f.kind.value for f in check(spool.tree, pause=0).findings]
    with pytest.raises(NoSuchQueue):
        schedule.put_now()
    spool.create_queue(JOBS)
    clock.advance(30)
    scheduler.step()
    assert claim_runs(spool) == ["01 12:10:00", "01 12:20:00", "01 12:30:00"]


def test_a_message_of_a_dead_mover_does_not_reach_a_recreated_fifo_queue(
    spool: Spool, clock: Clock
) -> None:
    define(spool)
    clock.advance(600)
    child = os.fork()
    if not child:
        Putter._publish = lambda *of: os._exit(9)  # type: ignore[assignment,method-assign]
        spool.run_schedules()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    folder = Path(f"{spool.tree.root}/schedules")
    assert [name for name in os.listdir(folder) if name.startswith(f".{NAME}:")]
    spool.delete_queue(JOBS)
    spool.create_queue(JOBS, fifo=True)
    with suppress(FsmqError):  # it takes no message without a group
        spool.run_schedules()
    spool.deliver()
    assert spool.queue(JOBS).claim() == []
    assert os.listdir(f"{spool.tree.root}/new") == []
    assert [name for name in os.listdir(folder) if name.startswith(f".{NAME}:")] == []


def test_a_put_to_a_full_queue_is_retried(spool: Spool, clock: Clock) -> None:
    define(spool, catch_up="all")
    # A file that changed just now would be read again at once.
    os.utime(f"{spool.tree.root}/schedules/{NAME}.json", (0, 0))
    spool.configure(JOBS, {"max_depth": 1})
    spool.queue(JOBS).put(b"x")
    faults: list[Exception] = []
    scheduler = Scheduler(spool.context, on_fault=lambda name, error: faults.append(error))
    clock.advance(600)
    scheduler.step()
    assert type(faults[0]) is QueueFull
    tries = len(faults)
    assert scheduler.step() > 0
    assert len(faults) == tries  # not yet
    spool.queue(JOBS).purge()
    spool.configure(JOBS, {"max_depth": None})
    clock.advance(60)
    scheduler.step()
    assert claim_runs(spool) == ["01 12:10:00"]


@pytest.mark.parametrize(("cron", "catch_up"), [("* * * * * *", "last"), ("* * * * *", "all")])
def test_more_runs_than_a_queue_takes_come_as_it_has_room(
    spool: Spool, clock: Clock, cron: str, catch_up: str
) -> None:
    """Otherwise a queue that was full for a while would never get a message again."""
    schedule = define(spool, cron, catch_up=catch_up)
    spool.configure(JOBS, {"max_depth": 3})
    due = schedule.next(8)
    clock.now = due[-1]
    found = []
    for number in (3, 3, 2):
        # Another process, which has not counted the messages before.
        with Spool(spool.tree.root, clock=clock, sync="none") as mover, suppress(QueueFull):
            mover.run_schedules()
        messages = spool.queue(JOBS).claim(1000)
        found += [message.created_at for message in messages]
        assert spool.queue(JOBS).ack(*messages) == number
    assert found == due


def test_a_folder_without_schedules_is_listed_once_a_minute(
    spool: Spool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []
    names = Tree.names

    def counted(tree: Tree, path: str) -> list[str]:
        listed.append(path)
        return names(tree, path)

    monkeypatch.setattr(Tree, "names", counted)
    scheduler = Scheduler(spool.context)
    end = clock.now + 600
    steps = 0
    while clock.now < end:
        steps += 1
        clock.advance(scheduler.step())
    assert steps == 600 // IDLE_S
    assert len(listed) <= steps
    (spool.tree.root / "schedules").rmdir()
    listed.clear()
    scheduler.rescan()
    assert scheduler.step() == IDLE_S
    assert listed == []


def test_a_recreated_schedule_starts_anew(spool: Spool, clock: Clock) -> None:
    schedule = define(spool, catch_up="all")
    assert pass_time(spool, clock, 600) == ["01 12:10:00"]
    schedule.delete()
    assert os.listdir(spool.tree.root / "schedules") == []
    with pytest.raises(NoSuchSchedule):
        schedule.delete()
    for verb in (schedule.state, schedule.next, schedule.put_now, schedule.configure):
        with pytest.raises(NoSuchSchedule):
            verb()  # type: ignore[operator]
    clock.advance(3600)
    assert define(spool, catch_up="all").state().last is None
    assert pass_time(spool, clock, 600) == ["01 13:20:00"]


def test_a_marker_without_its_schedule_is_removed_later(spool: Spool, clock: Clock) -> None:
    define(spool)
    scheduler = Scheduler(spool.context)
    scheduler.step()
    path = Path(f"{spool.tree.root}/schedules/{NAME}.json")
    text = path.read_text()
    path.unlink()  # as an editor does before it writes the file again
    scheduler.rescan()
    scheduler.step()
    path.write_text(text)
    clock.advance(600)
    scheduler.rescan()
    scheduler.step()
    assert claim_runs(spool) == ["01 12:10:00"]
    path.unlink()
    for _ in range(3):
        clock.advance(IDLE_S)
        scheduler.step()
    assert os.listdir(path.parent) == []


@pytest.mark.parametrize("name", ["", "_x", ".x", "a/b", "x" * 101])
def test_a_name_is_checked(spool: Spool, name: str) -> None:
    with pytest.raises(InvalidValue):
        spool.schedule(name)


def after_kills(
    folder: Path, clock: Clock, verb: Callable[[Spool], object], waits: float, **settings: object
) -> Iterator[tuple[int, Spool]]:
    """Define a schedule, and kill ``verb`` before each of its calls, each time with a new copy.

    The number of each call, and the spool afterwards. waits: the seconds before the verb.
    """
    root, first, start = folder / "mq", folder / "first", clock.now
    with Spool(first, clock=clock) as spool:
        spool.create_queue(JOBS)
        define(spool, catch_up="all", **settings)
    call, ended = 0, False
    while not ended:
        call += 1
        clock.now = start + waits
        shutil.copytree(first, root)
        ended = run_and_die(root, verb, call, clock) is None
        with Spool(root, clock=clock) as spool:
            yield call, spool
        shutil.rmtree(root)


def test_each_run_has_one_message_wherever_a_mover_dies(tmp_path: Path, clock: Clock) -> None:
    """The message is consumed before the next mover starts."""
    expected = ["01 12:10:00", "01 12:20:00"]
    for call, spool in after_kills(tmp_path, clock, Spool.run_schedules, 1200):
        found = claim_runs(spool)
        spool.run_schedules()
        found += claim_runs(spool)
        spool.run_schedules()
        assert sorted(found + claim_runs(spool)) == expected, call
        assert not spool.tree.names("new")
        left = {n for n in spool.tree.names("schedules") if not n.endswith(".tmp")}
        assert left == {f"{NAME}.done", f"{NAME}.json"}
    assert call > 15


def test_runs_of_a_pause_are_skipped_wherever_its_end_dies(tmp_path: Path, clock: Clock) -> None:
    def resume(spool: Spool) -> None:
        spool.schedule(NAME).configure(paused=False)

    for call, spool in after_kills(tmp_path, clock, resume, 1500, paused=True):
        spool.run_schedules()
        assert claim_runs(spool) == [], call
    assert call > 8


def test_a_restored_cron_line_starts_now_wherever_its_change_died(
    tmp_path: Path, clock: Clock
) -> None:
    """Between the new line and its marker: the old marker has the line that is restored."""

    def change(spool: Spool) -> None:
        spool.schedule(NAME).configure(cron="@daily")

    lines = set()
    for call, spool in after_kills(tmp_path, clock, change, 0):
        clock.advance(1500)
        settings = spool.schedule(NAME).state().settings
        assert settings is not None
        lines.add(settings.cron)
        define(spool, catch_up="all")
        spool.run_schedules()
        assert len(claim_runs(spool)) == 2 * (settings.cron != "@daily"), call
    assert len(lines) == 2


def test_a_schedule_that_is_reported_missing_is_durably_deleted(
    root: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its deletion died before its sync: a power cut would bring it back.
    nightly = spool.schedule("nightly")
    nightly.define("0 3 * * *", "jobs")
    (root / "schedules" / "nightly.json").unlink()
    synced: list[str] = []
    monkeypatch.setattr(spool.tree, "sync_folder", synced.append)
    with pytest.raises(NoSuchSchedule):
        nightly.delete()
    assert synced == ["schedules"]
    assert os.listdir(root / "schedules") == []


def test_a_refused_user_changes_nothing(spool: Spool) -> None:
    def refuse(state: ScheduleState | None) -> None:
        raise InvalidValue(str(state and state.settings), "is not yours")

    refused = Schedule(spool.context, spool.complete, NAME, refuse)
    again = partial(refused.define, "@daily", JOBS)
    with pytest.raises(InvalidValue, match="None"):
        again()
    define(spool)
    before = spool.schedules()
    for verb in (again, partial(refused.configure, paused=True), refused.delete, refused.put_now):
        with pytest.raises(InvalidValue, match="report"):
            verb()
    assert spool.schedules() == before
    assert claim_runs(spool) == []


def test_nothing_is_defined_or_put_without_locks(
    spool: Spool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two movers at once would lose a message."""
    schedule = define(spool)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with monkeypatch.context() as patched:
        patched.setattr("fcntl.flock", refuse)
        clock.advance(600)
        with pytest.raises(FsmqError, match="ENOLCK"):
            spool.run_schedules()
        with pytest.raises(FsmqError, match="ENOLCK"):
            schedule.configure(paused=True)
    assert pass_time(spool, clock, 30) == ["01 12:10:00"]


def test_a_refused_lock_of_a_schedule_stays_with_its_holder(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of NFS can refuse one for a moment; the next try must not be beside the holder."""
    schedule = define(spool)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with ScheduleFiles(spool.context).held(NAME):
        with monkeypatch.context() as patched:
            patched.setattr("fcntl.flock", refuse)
            with pytest.raises(FsmqError, match="ENOLCK"):
                schedule.configure(paused=True)
        with pytest.raises(InUse), ScheduleFiles(spool.context).held(NAME, 0.0):
            pass
