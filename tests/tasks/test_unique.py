"""Calls that are one while one of them waits or runs; and sends that are options of one call."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fsmq import InvalidValue
from fsmq.tasks import Tasks
from tests.harness.suite import eventually
from tests.tasks import shop
from tests.tasks.conftest import Workers, left


def test_an_equal_call_is_stored_once(app: Tasks) -> None:
    first = shop.single.send("a")
    assert shop.single.send(key="a").id == first.id
    assert shop.single.send("a", pipe="").id == first.id
    assert shop.single.options(priority=7, ttl=100).send("a").id == first.id
    assert shop.single.send_later(60, "a").id == first.id
    other = shop.single.send("b")
    assert other.id != first.id
    assert len(left(app)) == 2


def test_equal_arguments_may_be_ordered_otherwise(app: Tasks) -> None:
    keep = shop.returns.options(unique=True)
    first = keep.call({"a": 1, "b": 2})  # type: ignore[arg-type]
    assert app.send(first).id == app.send(keep.call({"b": 2, "a": 1})).id  # type: ignore[arg-type]


def test_a_function_says_what_is_equal(app: Tasks) -> None:
    assert shop.by_key.send("a", 1).id == shop.by_key.send("a", 2).id
    assert shop.by_key.send("b", 1).id != shop.by_key.send("a", 3).id


def test_it_is_one_while_it_runs_and_new_after_its_end(
    app: Tasks, workers: Workers, pipe: Path
) -> None:
    workers.start()
    first = shop.single.send("a", str(pipe))
    eventually(lambda: shop.notes("single"))
    assert shop.single.send("a", str(pipe)).id == first.id
    pipe.write_text("go")
    first.get(20)
    eventually(lambda: not left(app))
    second = shop.single.send("a", str(pipe))
    assert second.id != first.id
    pipe.write_text("go")
    second.get(20)
    assert len(shop.notes("single")) == 2


def test_a_dead_letter_does_not_block_the_next_one(app: Tasks, workers: Workers) -> None:
    @app.task(unique=True, retries=0, name="breaks")
    def breaks() -> None: ...

    try:
        for n in (1, 2):
            breaks.send()  # unknown to the worker, which buries it
            if n == 1:
                workers.start()
            eventually(lambda n=n: len(left(app, "tasks.dead")) == n)  # type: ignore[misc]
        reason = app.place.queue("tasks.dead").peek()[0].dead_letter.reason
        assert reason == "this worker knows no task 'breaks'"
    finally:
        del app.tasks["breaks"]


def test_a_send_may_be_later_first_or_elsewhere(app: Tasks) -> None:
    shop.work.send_later(timedelta(hours=1), 1)
    shop.work.send_later(datetime.now(UTC) + timedelta(hours=2), 2)
    shop.work.options(priority=4, ttl=1000).send(3)
    shop.work.options(queue="slow").send(4)
    tasks = app.place.queue("tasks")
    assert len(tasks.peek(state="delayed")) == 2
    [ready] = tasks.peek()
    assert ready.priority == 4
    assert ready.expires_at is not None
    assert len(app.place.queue("slow").peek()) == 1
    assert app.place.queue("slow").settings().dead_letter_queue == "slow.dead"
    with pytest.raises(InvalidValue, match="time zone"):
        shop.work.send_later(datetime(2030, 1, 1), 1)
    with pytest.raises(InvalidValue, match="must be seconds"):
        shop.work.send_later("soon", 1)  # type: ignore[arg-type]


def test_settings_of_a_person_are_kept(app: Tasks, workers: Workers) -> None:
    app.place.create_queue("tasks", index=True)
    app.place.queue("tasks").configure(max_deliveries=7, dead_letter_queue="graves")
    workers.start()
    assert shop.work.send(1).get(20) == 1
    settings = app.place.queue("tasks").settings()
    assert (settings.max_deliveries, settings.dead_letter_queue) == (7, "graves")
