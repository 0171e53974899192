"""Worker processes: kills, long tasks, retries, limits of time, schedules, results."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fsmq.tasks import NoResult, TaskFailed, Tasks
from tests.harness.suite import eventually
from tests.tasks import shop
from tests.tasks.conftest import Workers, left

PATIENCE_S = 60.0


def test_no_call_is_lost_when_workers_are_killed(app: Tasks, workers: Workers) -> None:
    calls = 400
    for n in range(calls):
        shop.work.send(n)
    workers.kill_some("--concurrency=4", "--visibility=2s")
    assert left(app)
    eventually(lambda: not left(app), PATIENCE_S)
    assert {int(n) for n, _ in shop.notes("work")} == {*range(calls)}
    assert not left(app, "tasks.dead")


def test_a_long_task_runs_once_while_its_worker_lives(
    app: Tasks, workers: Workers, pipe: Path
) -> None:
    for _ in range(2):
        workers.start("--visibility=2s", "--concurrency=1")
    result = shop.hold.send(str(pipe))
    eventually(lambda: shop.notes("hold"))
    tasks = app.place.queue("tasks")
    first = tasks.peek(state="in_flight")[0].deadline
    # Three claims long, as the renewals show, while the other worker is idle.
    eventually(lambda: tasks.peek(state="in_flight")[0].deadline > first + 4)
    pipe.write_text("go")
    assert result.get(20) == "go"
    assert len(shop.notes("hold")) == 1


def test_a_worker_that_stops_lets_its_tasks_end(app: Tasks, workers: Workers, pipe: Path) -> None:
    worker = workers.start()
    result = shop.hold.send(str(pipe))
    eventually(lambda: shop.notes("hold"))
    worker.signal(signal.SIGTERM)
    pipe.write_text("go")
    assert worker.wait() == 0
    assert result.get(0) == "go"
    assert not left(app)


def test_a_call_whose_worker_is_killed_runs_again(app: Tasks, workers: Workers, pipe: Path) -> None:
    worker = workers.start("--visibility=1s")
    result = shop.hold.send(str(pipe))
    eventually(lambda: shop.notes("hold"))
    worker.end()
    workers.start("--visibility=1s")
    eventually(lambda: len(shop.notes("hold")) == 2)
    pipe.write_text("go")
    assert result.get(20) == "go"


def test_failures_are_tried_again_with_growing_pauses_up_to_the_dead_letters(
    app: Tasks, workers: Workers
) -> None:
    workers.start()
    with pytest.raises(TaskFailed) as raised:
        shop.fail.send("out of paper").get(30)
    assert (raised.value.kind, raised.value.reason) == ("ValueError", "out of paper")
    assert "raise ValueError(text)" in raised.value.traceback
    assert "fsmq/tasks/steps.py" not in raised.value.traceback
    tries = shop.notes("fail")
    assert [(n, last) for _, n, last in tries] == [
        ("1", "False"),
        ("2", "False"),
        ("3", "False"),
        ("4", "True"),
    ]
    pauses = [float(b[0]) - float(a[0]) for a, b in pairwise(tries)]
    for pause, backoff in zip(pauses, (0.2, 0.4, 0.8), strict=True):
        assert pause >= 0.8 * backoff
    [dead] = eventually(lambda: app.place.queue("tasks.dead").peek())
    assert dead.dead_letter.reason == "ValueError: out of paper"
    assert not left(app)


def test_a_task_decides_when_to_retry_and_that_no_retry_helps(app: Tasks, workers: Workers) -> None:
    workers.start()
    shop.ask.send("retry").get(20)  # more often than its retries
    assert [n for (n,) in shop.notes("ask")] == ["1", "2", "3", "4", "5", "6"]
    with pytest.raises(TaskFailed, match="no use"):
        shop.ask.send("bury").get(20)
    assert shop.notes("ask")[6:] == [["1"]]
    [dead] = eventually(lambda: app.place.queue("tasks.dead").peek())
    assert dead.dead_letter.reason == "no use"


@pytest.mark.parametrize("task", [shop.spin, shop.doze])
def test_a_timeout_ends_a_thread_or_a_coroutine(app: Tasks, workers: Workers, task: Any) -> None:
    workers.start()
    with pytest.raises(TaskFailed) as raised:
        task.send().get(20)
    assert raised.value.kind == "TimeLimit"
    assert "timeout of 0.2 s is over" in raised.value.reason
    assert shop.notes("swallowed") == []


@pytest.mark.parametrize("task", [shop.stuck, shop.blocked], ids=["in-c", "on-the-loop"])
def test_what_cannot_be_interrupted_costs_a_supervised_process(
    app: Tasks, workers: Workers, pipe: Path, task: Any
) -> None:
    workers.start("--processes=2", "--queues=stuck,tasks", "--visibility=1s")
    result = task.send(str(pipe))
    pids = eventually(lambda: len(shop.notes("stuck")) == 2 and shop.notes("stuck"), PATIENCE_S)
    assert pids[0] != pids[1]  # the first one was ended, and the call came back
    assert shop.work.send(3).get(20) == 9
    with pytest.raises(NoResult):
        result.get(0)


def test_a_killed_process_is_started_again(app: Tasks, workers: Workers) -> None:
    supervisor = workers.start("--processes=1", "--reload", "--visibility=1s")
    shop.work.send(1).get(20)
    [[_, pid]] = shop.notes("work")
    os.kill(int(pid), signal.SIGKILL)
    assert shop.work.send(2).get(20) == 4
    assert shop.notes("work")[1][1] != pid
    assert workers.stop(supervisor) == 0


def test_cron_makes_a_schedule_whose_runs_are_calls(app: Tasks, workers: Workers) -> None:
    for _ in range(2):
        workers.start()
    eventually(lambda: len(shop.notes("tick")) >= 3)
    schedule = app.place.schedule("tests.tasks.shop.tick")
    assert schedule.state().problem is None
    schedule.configure(paused=True)
    eventually(lambda: not left(app, "ticks"))
    ids = [one.id for one in app.place.queue("results").peek(100)]
    assert len(ids) == len(shop.notes("tick"))  # each moment once, though two workers look


def test_results_come_back_as_json(app: Tasks, workers: Workers) -> None:
    workers.start()
    assert shop.returns.send("tuple").get(20) == [1, 2]
    assert shop.returns.send("text").get(20) == "ä"
    assert shop.returns.send("none").get(20) is None
    assert shop.awaited.send(4).get(20) == -4
    with pytest.raises(TaskFailed, match="result: of type set is no application/json"):
        shop.returns.send("set").get(20)
    eventually(lambda: not left(app))  # the result is stored before the ack
    assert not left(app, "tasks.dead")  # it has run
    again = app.result(shop.work.send(5).id)
    assert again.get(20) == 25
    [kept, *_] = app.place.queue("results").peek()
    assert kept.expires_at is not None


def test_there_is_no_result_before_the_end(app: Tasks) -> None:
    with pytest.raises(NoResult, match=r"after 0\.05 seconds"):
        shop.work.send(1).get(0.05)


def test_a_worker_takes_only_the_queues_it_is_given(app: Tasks, workers: Workers) -> None:
    workers.start("--queues=aside:2,stu*")
    shop.work.send(1)
    shop.aside.send()
    eventually(lambda: shop.notes("aside"))
    assert shop.notes("work") == []
    assert len(app.place.queue("tasks").peek()) == 1


def test_a_hangup_starts_supervised_processes_again_after_their_tasks(
    app: Tasks, workers: Workers, pipe: Path
) -> None:
    supervisor = workers.start("--processes=1", "--reload")
    result = shop.hold.send(str(pipe))
    [[pid]] = eventually(lambda: shop.notes("hold"))
    supervisor.signal(signal.SIGHUP)
    pipe.write_text("go")
    assert result.get(20) == "go"
    eventually(lambda: shop.work.send(1).get(20) and shop.notes("work")[-1][1] != pid)
    assert shop.notes("held") == [[pid]]
