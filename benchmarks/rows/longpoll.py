"""Long polling: thousands of waiters on one process."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from fsmq.spool.names import new_id

from ..bench import QUEUE, Bench
from ..http_client import Answer, Connection
from ..load import Failed
from ..measure import Bar, Measure, Outcome, percentile
from ..procfs import cpu_seconds

_WAIT_S = 20
# Connections that are opened at once; more would overrun the listen queue of a small machine.
_AT_ONCE = 256


def waiters(bench: Bench) -> Outcome:
    """Idle CPU while all wait, then arrivals at a modest rate: how long until one is answered."""
    idle: list[float] = []
    p50: list[float] = []
    p99: list[float] = []
    with bench.suite(processes=1) as suite:
        queue = suite.root / "queues" / QUEUE
        for _ in range(bench.repeat):
            found = asyncio.run(_Crowd(bench, suite.port, suite["mq"].pid, queue).run())
            idle.append(found.idle_percent)
            p50.append(percentile(found.latencies, 0.5))
            p99.append(percentile(found.latencies, 0.99))
    crowd = f"long polling, {bench.sizes.waiters:,} waiters on one process"
    return Outcome(
        [
            Measure(
                f"{crowd}: idle CPU",
                idle,
                unit="%",
                bar=Bar("<=", 2.0, "%"),
                note=f"between the polls: each is asked again after {_WAIT_S} s",
            ),
            Measure(f"{crowd}: arrival to answer, p50", p50, unit="ms"),
            Measure(
                f"{crowd}: arrival to answer, p99",
                p99,
                unit="ms",
                bar=Bar("<=", 20.0, "ms"),
                note=f"{bench.sizes.arrivals_per_s} arrivals/s; from the rename into the queue to"
                " the answer, a durable claim included",
            ),
        ]
    )


class _Crowd:
    """All waiters of one repetition."""

    def __init__(self, bench: Bench, port: int, pid: int, queue: Path) -> None:
        self._bench = bench
        self._port = port
        self._pid = pid
        self._queue = queue
        self._outside = queue.parent.parent / "arrivals"
        self._arrived: dict[str, float] = {}
        self.idle_percent = 0.0
        self.latencies: list[float] = []  # ms

    async def run(self) -> _Crowd:
        links = await self._connect()
        polls: dict[asyncio.Future[Answer], Connection] = {}
        polls.update((asyncio.ensure_future(_poll(link)), link) for link in links)
        started = time.perf_counter()
        try:
            await self._watch_idle(started)
            await self._measure(polls)
        finally:
            for poll in polls:
                poll.cancel()
            await asyncio.gather(*polls, return_exceptions=True)
            for link in links:
                link.close()
        return self

    async def _connect(self) -> list[Connection]:
        links: list[Connection] = []
        while (left := self._bench.sizes.waiters - len(links)) > 0:
            more = (Connection.open(self._port) for _ in range(min(left, _AT_ONCE)))
            links += await asyncio.gather(*more)
        return links

    async def _watch_idle(self, started: float) -> None:
        # Until mq has taken in every request: its CPU time stands still then.
        before = -1.0
        while (now := cpu_seconds(self._pid)) != before:
            before = now
            await asyncio.sleep(0.3)
        # No poll may end within this window.
        left = _WAIT_S - 2 - (time.perf_counter() - started)
        window = min(left, 2 * self._bench.seconds)
        if window <= 0:
            raise Failed(f"the waiters took longer than {_WAIT_S} s to connect")
        begun = time.perf_counter()
        await asyncio.sleep(window)
        used = cpu_seconds(self._pid) - before
        self.idle_percent = 100 * used / (time.perf_counter() - begun)

    async def _measure(self, polls: dict[asyncio.Future[Answer], Connection]) -> None:
        rate = self._bench.sizes.arrivals_per_s
        count = max(1, round(rate * self._bench.seconds))
        arrivals = asyncio.ensure_future(self._arrive(count, 1 / rate))
        try:
            async with asyncio.timeout(_WAIT_S + self._bench.seconds):
                while len(self.latencies) < count:
                    done, _ = await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
                    now = time.perf_counter()
                    for poll in done:
                        self._take(poll.result(), now)
                        link = polls.pop(poll)
                        polls[asyncio.ensure_future(_poll(link))] = link
        except TimeoutError:
            raise Failed(f"of {count} arrivals {len(self.latencies)} were answered") from None
        finally:
            arrivals.cancel()

    def _take(self, answer: Answer, now: float) -> None:
        if answer.status == 200:
            arrived = self._arrived.pop(answer.header("X-Message-Id") or "", None)
            if arrived is not None:
                self.latencies.append((now - arrived) * 1000)
        elif answer.status != 204:
            raise Failed(f"a poll was answered {answer.status}")

    async def _arrive(self, count: int, interval: float) -> None:
        """Rename files into the queue's folder, as the mover does."""
        self._outside.mkdir(exist_ok=True)
        body = os.urandom(self._bench.sizes.body)
        begun = time.perf_counter()
        for index in range(count):
            await asyncio.sleep(max(0.0, begun + index * interval - time.perf_counter()))
            message_id = new_id()
            draft = self._outside / message_id
            draft.write_bytes(body)
            self._arrived[message_id] = time.perf_counter()
            draft.rename(self._queue / message_id)


async def _poll(link: Connection) -> Answer:
    return await link.request("GET", f"/{QUEUE}/messages?wait={_WAIT_S}&visibility=3600")
