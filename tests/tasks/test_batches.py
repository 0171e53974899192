"""Batches: workers and senders that are killed at each step, and many of them at random."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from random import Random
from typing import Any

import pytest

from fsmq import Bury, DuplicateMessage, InvalidValue, Message, Retry, Spool
from fsmq.spool.claimed import Claim
from fsmq.tasks import NoResult, Tasks, batches, steps
from fsmq.tasks.running import Run
from tests.harness.suite import eventually
from tests.tasks import shop
from tests.tasks.conftest import Workers, left

PATIENCE_S = 60.0


class Killed(BaseException):
    """Where the process ends."""


class Small:
    """An application whose work is done step by step, in this process."""

    def __init__(self, spool: Spool) -> None:
        self.app = Tasks(spool, results="results")
        self.spool = spool
        self.runs: list[str] = []
        self.steps = 0  # done since the last kill

        @self.app.task(name="member")
        def member(n: int) -> int:
            self.runs.append(f"member {n}")
            return n

        @self.app.task(name="then")
        def then() -> None:
            self.runs.append("then")

        self.member, self.then = member, then

    def send(self, members: int, kill_at: int, batch: str = "b") -> None:
        """Send a batch; killed before a step."""
        calls = [self.member.call(n) for n in range(members)]
        self._do(self.app.batching(batch, calls, self.then.call()), kill_at)

    def work_one(self, kill_at: int) -> bool:
        """Work on one message as a worker does; False if there is none. Killed, it comes back."""
        if not self.spool.has_queue("tasks"):
            return False
        claimed = self.spool.queue("tasks").claim()
        if not claimed:
            return False
        [message] = claimed
        try:
            self._do(self.app.handling(message, Claim(60, asyncio.Event()), self._make), kill_at)
        except Killed:
            message.release()  # its claim ends
            raise
        message.ack()
        return True

    def _make(self, run: Run) -> Any:
        return run.task.function(*run.args, **run.kwargs)

    def _do(self, work: steps.Steps[Any], kill_at: int) -> None:
        self.steps = 0

        def counted(ask: Callable[[Any], Any]) -> Any:
            if self.steps == kill_at:
                raise Killed
            self.steps += 1
            return ask(self.spool)

        answer: Any = None
        error: Exception | None = None
        while True:
            try:
                ask = work.send(answer) if error is None else work.throw(error)
            except StopIteration:
                return
            answer = error = None
            try:
                answer = counted(ask)  # type: ignore[arg-type]
            except Exception as raised:
                error = raised


@pytest.fixture
def small(tmp_path: Any) -> Iterator[Small]:
    with Spool(tmp_path / "mq", sync="none") as spool:
        yield Small(spool)


@pytest.mark.parametrize("members", [0, 1, 2, 16, 17, 33])
def test_what_follows_runs_once_after_all_members(small: Small, members: int) -> None:
    small.send(members, kill_at=-1)
    while small.work_one(kill_at=-1):
        pass
    assert sorted(small.runs[:-1]) == sorted(f"member {n}" for n in range(members))
    assert small.runs[-1] == "then"


@pytest.mark.parametrize("members", [1, 3, 18])
def test_a_worker_is_killed_at_each_step_of_each_call(small: Small, members: int) -> None:
    small.send(members, kill_at=-1)
    small.spool.queue("tasks").configure(max_deliveries=99)
    kills = at = 0
    while True:
        try:
            if not small.work_one(kill_at=at):
                break
            at = 0
        except Killed:
            at += 1  # the next delivery gets one step further
            kills += 1
    assert kills > 3 * members
    assert {*small.runs} == {"then", *(f"member {n}" for n in range(members))}
    # What follows does not run before all members have.
    assert {*small.runs[: small.runs.index("then")]} == {f"member {n}" for n in range(members)}
    assert not left(small.app)


@pytest.mark.parametrize("members", [2, 17])
def test_one_kill_at_any_step_of_the_whole_batch(tmp_path: Any, members: int) -> None:
    """A kill after the mark of a member does not run it again."""
    total = 0
    at = 0
    while total == 0 or at < total:
        with Spool(tmp_path / f"mq-{at}", sync="none") as spool:
            small = Small(spool)
            small.send(members, kill_at=-1)
            budget = at
            killed = False
            done = 0
            while True:
                try:
                    if not small.work_one(kill_at=-1 if killed else budget):
                        break
                    done += small.steps
                    budget -= small.steps
                except Killed:
                    killed = True
            if not killed:
                total = done
            assert small.runs.count("then") in (1, 2)
            assert len(small.runs) <= members + 2
            assert {*small.runs} == {"then", *(f"member {n}" for n in range(members))}
        at += 1 if members < 3 else 7


def test_a_sender_that_is_killed_at_each_step_sends_the_rest_later(small: Small) -> None:
    at = 0
    while True:
        try:
            small.send(20, kill_at=at)
            break
        except Killed:
            at += 1
            with suppress(Killed):
                small.work_one(kill_at=-1)  # members end meanwhile
    assert at > 3
    while small.work_one(kill_at=-1):
        pass
    assert sorted(small.runs) == sorted(["then", *(f"member {n}" for n in range(20))])


def test_a_batch_is_sent_again_after_its_end_without_effect(small: Small) -> None:
    for _ in range(2):
        calls = [small.member.call(n) for n in range(5)]
        batch = small.app.batch(calls, then=small.then.call(), id="b")
        while small.work_one(kill_at=-1):
            pass
        batch.wait(0)
        assert [result.get(0) for result in batch.results] == [*range(5)]
    assert len(small.runs) == 6


def test_a_batch_of_which_some_members_were_not_stored_is_completed(small: Small) -> None:
    small.send(5, kill_at=-1)
    tasks = small.spool.queue("tasks")
    stored = tasks.peek()
    tasks.remove(stored[1], stored[4])
    small.send(5, kill_at=-1)
    while small.work_one(kill_at=-1):
        pass
    assert sorted(small.runs) == [*(f"member {n}" for n in range(5)), "then"]


def test_a_member_in_the_dead_letters_keeps_a_batch_open(small: Small) -> None:
    broken = [True]

    @small.app.task(name="breaks", retries=0)
    def breaks() -> None:
        if broken:
            raise ValueError

    small.app.batch([small.member.call(1), breaks.call()], then=small.then.call())
    claim = Claim(60, asyncio.Event())
    for message in small.spool.queue("tasks").claim(2):
        try:
            steps.run(small.app.handling(message, claim, small._make), small.spool)
            message.ack()
        except Bury as error:
            message.bury(str(error))
    assert "then" not in small.runs
    broken.clear()
    small.spool.queue("tasks.dead").redrive()
    while small.work_one(kill_at=-1):
        pass
    assert small.runs == ["member 1", "then"]


def test_a_member_that_is_tried_again_ends_later(small: Small) -> None:
    @small.app.task(name="twice", backoff=0)
    def twice() -> None:
        small.runs.append("twice")
        if small.runs.count("twice") < 2:
            raise Retry(0)

    small.app.batch([twice.call()], then=small.then.call())
    with pytest.raises(Retry):
        small.work_one(kill_at=-1)
    [claimed] = small.spool.queue("tasks").peek(state="in_flight")
    small.spool.queue("tasks").release(claimed)
    while small.work_one(kill_at=-1):
        pass
    assert small.runs == ["twice", "twice", "then"]


def test_unique_calls_are_not_for_batches(app: Tasks) -> None:
    with pytest.raises(InvalidValue, match="unique"):
        app.batch([shop.single.call("a")], then=shop.work.call(1))


def test_a_batch_survives_kills_of_its_workers(app: Tasks, workers: Workers) -> None:
    calls = 300
    batch = app.batch([shop.work.call(n) for n in range(calls)], then=shop.aside.call())
    with pytest.raises(NoResult):
        batch.wait(0)
    workers.kill_some("--concurrency=4", "--visibility=2s")
    assert left(app)
    batch.wait(PATIENCE_S)
    assert {int(n) for n, _ in shop.notes("work")} == {*range(calls)}
    eventually(lambda: shop.notes("aside"), PATIENCE_S)
    assert [result.get(20) for result in batch.results] == [n * n for n in range(calls)]
    eventually(lambda: not left(app) and not left(app, "aside"), PATIENCE_S)
    assert not left(app, "tasks.dead")


def test_marks_are_found_in_any_order_of_the_members(small: Small) -> None:
    """Each order in which members of two levels end lets the last one send what follows."""
    chance = Random(1)
    for number in range(5):
        small.runs.clear()
        batch = f"batch-{number}"
        parts = [batches.Part("tasks.batches", batch, str(n), 35) for n in range(35)]
        small.send(35, kill_at=-1, batch=batch)
        small.spool.queue("tasks").purge()
        chance.shuffle(parts)
        for part in parts:
            assert not small.spool.queue("tasks").peek()
            steps.run(batches.ended(small.app, part), small.spool)
        [then] = small.spool.queue("tasks").claim()
        assert isinstance(then, Message)
        assert then.attributes["Task"] == "then"
        then.ack()


def test_two_members_that_end_at_once_in_each_order_of_their_steps(small: Small) -> None:
    tasks = small.spool.queue("tasks", create=True)
    for number, order in enumerate(product([0, 1], repeat=8)):
        batch = f"batch-{number}"
        small.send(2, kill_at=-1, batch=batch)
        tasks.purge()
        ending = [
            batches.ended(small.app, batches.Part("tasks.batches", batch, str(n), 2))
            for n in (0, 1)
        ]
        asked = [next(work) for work in ending]
        left = {0, 1}
        for one in [*order, *[0] * 8, *[1] * 8]:
            if one in left:
                try:
                    asked[one] = ending[one].send(asked[one](small.spool))  # type: ignore[operator]
                except DuplicateMessage as error:
                    with suppress(StopIteration):
                        asked[one] = ending[one].throw(error)
                except StopIteration:
                    left.remove(one)
        assert not left
        assert [one.attributes["Task"] for one in tasks.peek()] == ["then"], order
        tasks.purge()
