"""Workers of the clients and the library, with handlers in threads and on the loop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fsmq import AsyncClient, Bury, Claim, Client, InvalidValue, Message, NoSuchQueue, Retry, Spool
from tests.client.helpers import Work, worker_of
from tests.harness.suite import HOME, PATIENCE_S, Suite, eventually_on_loop

ARRIVAL_S = 20.0
# A claim is renewed after a third of this time, and lost after all of it.
HELD_S = 12.0


class Team:
    """Workers of one kind, whose handlers are coroutines. root: the spool of the library."""

    def __init__(self, url: str, threads: bool, root: Path | None = None) -> None:
        self.threads = threads
        self.url = url
        self._spool = None if root is None else Spool(root, delivers=False)
        self.workers: list[tuple[Any, asyncio.Task[None]]] = []
        self._clients: list[AsyncClient] = []

    def start(self, queue: str, work: Work, **pace: Any) -> Any:
        """Start a worker that awaits ``work`` for each message, in a thread or on the loop."""
        place: Any = self._spool
        if place is None:
            place = Client(self.url) if self.threads else AsyncClient(self.url)
        if not self.threads:
            self._clients.append(place)
        worker = worker_of(place, place.queue(queue), work, **pace)
        running = asyncio.to_thread(worker.run) if self.threads else worker.run()
        self.workers.append((worker, asyncio.create_task(running)))
        return worker

    async def stopped(self) -> None:
        """Stop all workers and wait for them."""
        workers, self.workers = self.workers, []
        for worker, _ in workers:
            worker.stop()
        for _, running in workers:
            await running
        for client in self._clients:
            await client.close()

    def close(self) -> None:
        """Close the spool."""
        if self._spool is not None:
            self._spool.close()


@pytest.fixture(params=["threads", "loop", "library"])
async def team(request: pytest.FixtureRequest, suite: Suite) -> AsyncIterator[Team]:
    kind = request.param
    made = Team(suite.url, kind != "loop", suite.root if kind == "library" else None)
    yield made
    await made.stopped()
    made.close()


@pytest.fixture
async def jobs(suite: Suite, queue: str) -> AsyncIterator[Any]:
    async with AsyncClient(suite.url) as client:
        yield client.queue(queue)


async def emptied(jobs: Any) -> None:
    """Wait until a queue has no messages."""

    async def is_empty() -> bool:
        return not sum(await jobs.counts())

    await eventually_on_loop(is_empty)


async def test_every_message_is_handed_over_once_and_removed(team: Team, jobs: Any) -> None:
    seen: Counter[bytes] = Counter()
    running = most = 0
    lock = threading.Lock()

    async def work(message: Message, claim: Claim) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            seen[message.body] += 1
        await eventually_on_loop(lambda: most >= 5)  # five run at the same time
        with lock:
            running -= 1

    await jobs.put_many([b"%d" % n for n in range(60)])
    team.start(jobs.name, work, concurrency=5)
    await emptied(jobs)
    assert seen == Counter(b"%d" % n for n in range(60))
    assert most == 5


async def test_an_exception_retries_with_growing_pauses(team: Team, jobs: Any) -> None:
    tries: list[tuple[float, int | None]] = []

    async def work(message: Message, claim: Claim) -> None:
        tries.append((time.monotonic(), message.deliveries))
        if len(tries) < 4:
            raise ValueError("not yet")

    await jobs.put(b"x")
    team.start(jobs.name, work, backoff=0.25, backoff_max=0.5)
    await emptied(jobs)
    assert [deliveries for _, deliveries in tries] == [1, 2, 3, 4]
    pauses = [b - a for (a, _), (b, _) in pairwise(tries)]
    for pause, least in zip(pauses, (0.2, 0.4, 0.4), strict=True):
        assert least <= pause < least + 20


async def test_retry_sets_the_pause(team: Team, jobs: Any) -> None:
    tries: list[float] = []

    async def work(message: Message, claim: Claim) -> None:
        tries.append(time.monotonic())
        if len(tries) == 1:
            raise Retry(0.3)

    await jobs.put(b"x")
    team.start(jobs.name, work, backoff=100, backoff_max=100)
    await emptied(jobs)
    assert 0.3 <= tries[1] - tries[0] < 30


async def test_a_dead_letter_has_the_last_exception(team: Team, jobs: Any) -> None:
    async def work(message: Message, claim: Claim) -> None:
        raise ValueError(f"no customer {message.deliveries}")

    await jobs.configure(max_deliveries=2, dead_letter_queue=f"{jobs.name}.dead")
    await jobs.put(b"x")
    team.start(jobs.name, work, backoff=0.1)
    await emptied(jobs)
    [letter] = await jobs.client.queue(f"{jobs.name}.dead").peek()
    assert letter.dead_letter.reason == "max_deliveries: ValueError: no customer 2"


async def test_a_message_that_cannot_be_buried_is_retried(team: Team, jobs: Any) -> None:
    tries = []

    async def work(message: Message, claim: Claim) -> None:
        tries.append(message.deliveries)
        if len(tries) == 1:
            raise Bury("there are no dead letters")

    await jobs.put(b"x")
    team.start(jobs.name, work, backoff_max=0.1)
    await emptied(jobs)
    assert tries == [1, 2]


async def test_a_claim_is_renewed_while_its_handler_runs(suite: Suite, jobs: Any) -> None:
    """Three kinds of workers at once, with one message each."""
    seen: list[tuple[bytes, int | None]] = []

    async def work(message: Message, claim: Claim) -> None:
        seen.append((message.body, message.deliveries))
        [deadline] = (suite.root / "delay").glob(f"*{message.id}*")
        # Renewed more than once.
        await eventually_on_loop(lambda: deadline.stat().st_mtime > began + 1.5 * HELD_S)
        assert not claim.lost

    await jobs.put_many([b"1", b"2", b"3"])
    began = time.time()
    teams = [Team(suite.url, threads) for threads in (True, False)]
    teams.append(Team(suite.url, True, suite.root))
    for one in teams:
        one.start(jobs.name, work, visibility=HELD_S, concurrency=1)
    await emptied(jobs)
    for one in teams:
        await one.stopped()
        one.close()
    assert sorted(seen) == [(b"1", 1), (b"2", 1), (b"3", 1)]


async def test_a_handler_learns_that_its_claim_is_lost(team: Team, jobs: Any) -> None:
    noticed = threading.Event()

    async def work(message: Message, claim: Claim) -> None:
        if team.threads:
            assert claim.wait_lost(20)
            noticed.set()
            return
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            assert claim.lost
            noticed.set()
            raise

    put = await jobs.put(b"x")
    team.start(jobs.name, work, visibility=0.6)

    async def is_held() -> bool:
        return bool(await jobs.peek(state="in_flight"))

    await eventually_on_loop(is_held)
    await jobs.remove(put)
    assert await asyncio.to_thread(noticed.wait, 20)


async def test_a_lost_claim_is_left_to_the_other_consumer(team: Team, jobs: Any) -> None:
    began, finish = threading.Event(), threading.Event()

    async def work(message: Message, claim: Claim) -> None:
        began.set()
        await asyncio.shield(asyncio.to_thread(finish.wait, 20))

    put = await jobs.put(b"x")
    worker = team.start(jobs.name, work, visibility=60, concurrency=1)
    await eventually_on_loop(began.is_set)
    await jobs.release(put)  # by another client, without the name of the claim
    [other] = await jobs.claim(visibility=600, wait=20)
    finish.set()
    await team.stopped()
    assert worker.lost == 1
    assert (await jobs.counts()).in_flight == 1
    assert await other.ack()


async def test_a_stop_lets_handlers_finish_and_claims_nothing_new(team: Team, jobs: Any) -> None:
    began, finish = threading.Event(), threading.Event()
    done = []

    async def work(message: Message, claim: Claim) -> None:
        began.set()
        await asyncio.to_thread(finish.wait, 20)
        assert claim.stopping
        done.append(message.body)

    await jobs.put(b"1")
    worker = team.start(jobs.name, work, concurrency=1)
    await eventually_on_loop(began.is_set)
    await jobs.put(b"2")
    worker.stop()
    [(_, running)] = team.workers
    assert await asyncio.wait({running}, timeout=0.1) == (set(), {running})
    finish.set()
    await running
    assert done == [b"1"]
    # The second message was not claimed.
    [left] = await jobs.claim(wait=ARRIVAL_S)
    assert (left.body, left.deliveries) == (b"2", 1)


async def test_an_idle_worker_stops_at_once_and_claims_nothing(team: Team, jobs: Any) -> None:
    async def work(message: Message, claim: Claim) -> None:
        raise AssertionError("nothing was there")

    team.start(jobs.name, work)
    [(_, running)] = team.workers
    assert await asyncio.wait({running}, timeout=0.3) == (set(), {running})
    started = time.monotonic()
    await team.stopped()
    assert time.monotonic() - started < 18
    await jobs.put(b"x")
    [claimed] = await jobs.claim(wait=ARRIVAL_S)
    assert claimed.deliveries == 1


async def test_handlers_are_abandoned_after_the_stop_timeout(team: Team, jobs: Any) -> None:
    began, finish = threading.Event(), threading.Event()

    async def work(message: Message, claim: Claim) -> None:
        began.set()
        if team.threads:
            finish.wait(20)
        else:
            await asyncio.Event().wait()

    await jobs.put(b"x")
    team.start(jobs.name, work, stop_timeout=0.2, visibility=20)
    await eventually_on_loop(began.is_set)
    started = time.monotonic()
    await team.stopped()
    assert time.monotonic() - started < 18
    # A cancelled coroutine releases its message at once; a thread keeps its claim.
    back = await jobs.claim(wait=0.5 if team.threads else ARRIVAL_S)
    assert [m.deliveries for m in back] == ([] if team.threads else [2])
    finish.set()


async def test_a_missing_queue_ends_the_worker(team: Team) -> None:
    async def work(message: Message, claim: Claim) -> None: ...

    team.start("nowhere", work)
    [(_, running)] = team.workers
    team.workers.clear()
    with pytest.raises(NoSuchQueue):
        await running


async def test_a_crash_and_restart_of_mq_loses_no_work(tmp_path: Path) -> None:
    """Both kinds of workers at once, while mq is killed and restarted twice."""
    with Suite(tmp_path / "mq") as own:
        (own.root / "queues" / "q").mkdir()
        teams = [Team(own.url, threads) for threads in (True, False)]
        done: Counter[bytes] = Counter()
        lock = threading.Lock()

        async def work(message: Message, claim: Claim) -> None:
            await asyncio.sleep(0.02)
            with lock:
                done[message.body] += 1

        bodies = {b"%d" % n for n in range(300)}
        async with AsyncClient(own.url) as client:
            await client.queue("q").put_many(sorted(bodies))
            for one in teams:
                # Claims whose answers are lost with mq end after their visibility timeout.
                one.start("q", work, concurrency=8, visibility=5)
            for part in (50, 150):
                await eventually_on_loop(lambda part=part: len(done) >= part)
                own.kill("mq")
                await asyncio.to_thread(own.restart, "mq")
            await eventually_on_loop(lambda: len(done) == len(bodies))
            await emptied(client.queue("q"))
        for one in teams:
            await one.stopped()
    assert set(done) == bodies
    # At least once: only messages that were claimed at a crash are repeated.
    assert sum(done.values()) - len(bodies) <= 2 * 16


async def test_work_that_ends_while_mq_is_down_is_acknowledged_later(tmp_path: Path) -> None:
    with Suite(tmp_path / "mq") as own:
        (own.root / "queues" / "q").mkdir()
        for threads in (True, False):
            team = Team(own.url, threads)
            began, finish = threading.Event(), threading.Event()
            seen = []

            async def work(
                message: Message,
                claim: Claim,
                seen: list[Any] = seen,
                began: threading.Event = began,
                finish: threading.Event = finish,
            ) -> None:
                seen.append(message.deliveries)
                began.set()
                await asyncio.to_thread(finish.wait, 20)

            async with AsyncClient(own.url) as client:
                await client.queue("q").put(b"x")
                team.start("q", work, visibility=60)
                await eventually_on_loop(began.is_set)
                own.kill("mq")
                finish.set()
                [(_, running)] = team.workers
                assert await asyncio.wait({running}, timeout=0.3) == (set(), {running})
                await asyncio.to_thread(own.restart, "mq")
                await emptied(client.queue("q"))
            await team.stopped()
            assert seen == [1]


PROGRAM = """
import asyncio, sys
from fsmq import AsyncClient, Client

url, kind = sys.argv[1:]

def handle(message, claim):
    print("began", flush=True)
    sys.stdin.readline()
    print("ended", flush=True)

async def handle_on_loop(message, claim):
    print("began", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print("ended", flush=True)

async def main():
    async with AsyncClient(url) as client:
        await client.queue("{queue}").worker(handle_on_loop).run()
    print("stopped", flush=True)

if kind == "threads":
    Client(url).queue("{queue}").worker(handle).run()
    print("stopped", flush=True)
else:
    asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("kind", "number"),
    [("threads", signal.SIGTERM), ("loop", signal.SIGTERM), ("loop", signal.SIGINT)],
)
async def test_a_signal_stops_a_program_after_its_work(
    jobs: Any, suite: Suite, kind: str, number: signal.Signals
) -> None:
    await jobs.put(b"x")
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.replace("{queue}", jobs.name), suite.url, kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=HOME,
        env=os.environ | {"PYTHONPATH": str(HOME)},
    )
    try:
        assert program.stdout is not None
        assert await asyncio.to_thread(program.stdout.readline) == "began\n"
        program.send_signal(number)
        printed, _ = await asyncio.to_thread(program.communicate, "go on\n", PATIENCE_S)
        assert program.returncode == 0
    finally:
        program.kill()
        program.communicate()
    assert printed == "ended\nstopped\n"
    await emptied(jobs)


def test_handlers_of_the_wrong_kind_are_refused() -> None:
    queue, loop_queue = (
        Client("http://localhost").queue("q"),
        AsyncClient("http://localhost").queue("q"),
    )

    async def on_loop(message: Message, claim: Claim) -> None: ...

    async def one(message: Message) -> None: ...

    for refused in (
        lambda: queue.worker(on_loop),
        lambda: queue.worker(lambda message: None),
        lambda: queue.worker("print"),
        lambda: loop_queue.worker(lambda message, claim: None),  # type: ignore[arg-type,return-value]
        lambda: loop_queue.worker(one),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError, match=r"handler"):
            refused()


@pytest.mark.parametrize(
    "pace",
    [
        {"concurrency": 0},
        {"concurrency": 1001},
        {"visibility": 0},
        {"visibility": 1e9},
        {"backoff": -1},
        {"backoff_max": -1},
        {"stop_timeout": float("nan")},
    ],
)
def test_invalid_options_of_a_worker_are_refused(pace: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue) as caught:
        Client("http://localhost").queue("q").worker(lambda message, claim: None, **pace)
    assert caught.value.field in pace


async def test_a_worker_runs_once(team: Team, jobs: Any) -> None:
    began, may_end = threading.Event(), threading.Event()

    async def work(message: Message, claim: Claim) -> None:
        began.set()
        while not may_end.is_set():
            await asyncio.sleep(0.01)

    async def run_again() -> None:
        with pytest.raises(RuntimeError, match="once"):
            await (asyncio.to_thread(worker.run) if team.threads else worker.run())

    await jobs.put(b"x")
    worker = team.start(jobs.name, work)
    await eventually_on_loop(began.is_set)
    await run_again()
    # The refused run does not affect the first one.
    may_end.set()
    await team.stopped()
    assert sum(await jobs.counts()) == 0
    await run_again()


async def test_a_worker_that_is_stopped_before_it_runs_does_nothing(team: Team, jobs: Any) -> None:
    seen = []

    async def work(message: Message, claim: Claim) -> None:
        seen.append(message)

    await jobs.put(b"x")
    team.start(jobs.name, work).stop()
    await team.stopped()
    assert not seen


async def test_a_cancelled_worker_releases_its_messages(jobs: Any) -> None:
    began = asyncio.Event()

    async def work(message: Message, claim: Claim) -> None:
        began.set()
        await asyncio.Event().wait()

    put = await jobs.put(b"x")
    running = asyncio.create_task(jobs.worker(work).run())
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [m.id for m in await jobs.claim(wait=ARRIVAL_S)] == [put]
