"""Applications for coroutines, over the async client."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest

from fsmq import AsyncClient, Bury
from fsmq.tasks import AsyncTasks, NoResult, TaskFailed, current_run
from tests.harness.suite import Suite, eventually_on_loop
from tests.tasks import shop
from tests.tasks.conftest import Workers

_numbers = count(1)


@pytest.fixture
async def app(suite: Suite) -> AsyncIterator[AsyncTasks]:
    name = f"tasks-{next(_numbers)}"
    async with AsyncTasks(suite.url, name, results=f"{name}.results") as opened:
        yield opened


async def at_work(app: AsyncTasks, **pace: float) -> tuple[object, asyncio.Task[None]]:
    worker = await app.worker(**pace)  # type: ignore[arg-type]
    return worker, asyncio.create_task(worker.run(signals=False))


async def stopped(work: tuple[object, asyncio.Task[None]]) -> None:
    work[0].stop()  # type: ignore[attr-defined]
    await work[1]


async def test_coroutines_run_on_the_loop_and_functions_in_threads(app: AsyncTasks) -> None:
    here = asyncio.get_running_loop()
    main = threading.get_ident()

    @app.task(name="on_loop")
    async def on_loop(n: int) -> int:
        assert asyncio.get_running_loop() is here
        return n + 1 if current_run() is not None else -n

    @app.task(name="in_thread")
    def in_thread(n: int) -> int:
        assert threading.get_ident() != main
        assert current_run() is not None
        return n + 2

    with pytest.raises(NoResult):
        await (await on_loop.send(0)).get(0)
    work = await at_work(app)
    assert await (await on_loop.send(1)).get(20) == 2
    assert await (await in_thread.send(n=1)).get(20) == 3
    assert await on_loop(5) == -5  # here and now
    await stopped(work)


async def test_failures_timeouts_and_dead_letters(app: AsyncTasks) -> None:
    @app.task(name="doze", timeout=0.1, retries=0)
    async def doze() -> None:
        await asyncio.Event().wait()

    @app.task(name="spin", timeout=0.1, retries=0)
    def spin() -> None:
        while True:
            pass

    @app.task(name="fail", retries=1, backoff=0)
    async def fail() -> None:
        raise OSError("no")

    @app.task(name="bury")
    async def bury() -> None:
        raise Bury("never")

    work = await at_work(app)
    for task, kind in ((doze, "TimeLimit"), (spin, "TimeLimit"), (fail, "OSError"), (bury, "Bury")):
        with pytest.raises(TaskFailed) as raised:
            await (await task.send()).get(20)
        assert raised.value.kind == kind
    await stopped(work)
    reasons = [one.dead_letter for one in await app.place.queue(f"{app.queue}.dead").peek()]
    assert len(reasons) == 4


async def test_a_cancelled_coroutine_comes_back(app: AsyncTasks) -> None:
    begun: list[int] = []

    @app.task(name="waits")
    async def waits() -> str:
        run = current_run()
        assert run is not None
        begun.append(run.deliveries)
        if run.deliveries == 1:
            await asyncio.Event().wait()
        return "done"

    told: list[str] = []
    app.on_error(lambda run, error, final: told.append(f"{type(error).__name__} {final}"))
    first = await at_work(app, stop_timeout=0.0)
    result = await waits.send()
    await eventually_on_loop(lambda: begun)
    await stopped(first)
    second = await at_work(app)
    assert await result.get(20) == "done"
    assert begun == [1, 2]
    assert told == ["CancelledError False"]
    await stopped(second)


async def test_unique_calls_and_batches(suite: Suite) -> None:
    ran: list[object] = []
    async with AsyncClient(suite.url) as client:
        app = AsyncTasks(client, "for-batches", results="for-batches.results")

        @app.task(name="one", unique=True)
        async def one(n: int) -> None:
            ran.append(n)

        @app.task(name="member")
        async def member(n: int) -> int:
            ran.append(n)
            return n

        first, second = await one.send(1), await one.send(1)
        assert first.id == second.id
        batch = await app.batch([member.call(n) for n in range(40)], then=member.call(99))
        work = await at_work(app, concurrency=8)
        await batch.wait(30)
        assert [await result.get(20) for result in batch.results] == [*range(40)]
        await eventually_on_loop(lambda: 99 in ran)
        await stopped(work)
    assert sorted(map(int, ran)) == sorted([1, *range(40), 99])  # type: ignore[call-overload]


async def test_eager_mode(suite: Suite) -> None:
    app = AsyncTasks("http://127.0.0.1:1", eager=True)

    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    @app.task
    def half(n: int) -> float:
        return n / 2

    assert await (await add.send(1, b=2)).get() == 3
    assert await (await half.send_later(100, 3)).get() == 1.5
    await app.batch([add.call(1, 2)], then=half.call(4))


async def test_worker_processes(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSMQ_TASKS_AT", suite.url)
    monkeypatch.setenv("FSMQ_TASKS_NOTES", str(tmp_path / "notes"))
    os.mkfifo(tmp_path / "pipe")
    workers = Workers(tmp_path)
    try:
        # A process stops in spite of a function that does not end.
        pace = ("--visibility=1s", "--concurrency=1", "--stop-timeout=100ms")
        options = ("--processes=2", *pace)
        supervisor = workers.start(*options, app="tests.tasks.async_shop")
        async with AsyncClient(suite.url) as client:
            app = AsyncTasks(client, "coroutines", results="values")
            double = app.task(name="tests.tasks.async_shop.double")(lambda n: 0)
            stuck = app.task(name="tests.tasks.async_shop.stuck")(lambda pipe: None)
            assert await (await double.send(4)).get(20) == 8
            await stuck.send(str(tmp_path / "pipe"))
            await eventually_on_loop(lambda: len({*map(tuple, shop.notes("stuck"))}) == 2, 60)
            assert await (await double.send(5)).get(20) == 10
            supervisor.signal(signal.SIGTERM)
            assert await asyncio.to_thread(supervisor.wait) == 0
    finally:
        workers.close()
