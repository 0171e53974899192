"""Long polling: thousands of waiters on one process."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from pathlib import Path

from fsmq.spool.layout.names import new_id

from ..bench import QUEUE, Bench
from ..http_client import Answer, Connection, run
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
            found = run(_Crowd(bench, suite.port, suite["mq"].pid, queue).run())
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
                bar=Bar("<=", 4.1, "ms"),
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
        self._count = max(1, round(bench.sizes.arrivals_per_s * bench.seconds))
        self._all_taken = asyncio.Event()
        self._arrived: dict[str, float] = {}
        self.idle_percent = 0.0
        self.latencies: list[float] = []  # ms

    async def run(self) -> _Crowd:
        """Let all wait, watch the idle CPU, then let messages arrive.

        Raises:
            Failed: a poll was refused, or arrivals were not answered.
        """
        links = await self._connect()
        started = time.perf_counter()
        # A task for each: to wait for the first of thousands at every arrival would cost more
        # than what is measured.
        polls = asyncio.gather(*(self._poll(link) for link in links))
        try:
            await self._watch_idle(started)
            # Our own collector would look through thousands of connections, for a tenth of a
            # second at a time, and that would be counted as the answer's.
            gc.collect()
            gc.freeze()
            arrivals = asyncio.ensure_future(self._arrive())
            await asyncio.wait(
                (polls, asyncio.ensure_future(self._all_taken.wait())),
                timeout=_WAIT_S + self._bench.seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            arrivals.cancel()
            if polls.done():
                polls.result()
            if not self._all_taken.is_set():
                answered = len(self.latencies)
                raise Failed(f"of {self._count} arrivals {answered} were answered")
        finally:
            polls.cancel()
            await asyncio.gather(polls, return_exceptions=True)
            for link in links:
                link.close()
        return self

    async def _poll(self, link: Connection) -> None:
        path = f"/{QUEUE}/messages?wait={_WAIT_S}&visibility=3600"
        while True:
            self._take(await link.request("GET", path), time.perf_counter())

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

    def _take(self, answer: Answer, now: float) -> None:
        if answer.status == 200:
            arrived = self._arrived.pop(answer.header("X-Message-Id") or "", None)
            if arrived is not None:
                self.latencies.append((now - arrived) * 1000)
                if len(self.latencies) == self._count:
                    self._all_taken.set()
        elif answer.status != 204:
            raise Failed(f"a poll was answered {answer.status}")

    async def _arrive(self) -> None:
        """Rename files into the queue's folder, as the mover does."""
        self._outside.mkdir(exist_ok=True)
        rate = self._bench.sizes.arrivals_per_s
        body = os.urandom(self._bench.sizes.body)
        begun = time.perf_counter()
        for index in range(self._count):
            await asyncio.sleep(max(0.0, begun + index / rate - time.perf_counter()))
            message_id = new_id()
            draft = self._outside / message_id
            draft.write_bytes(body)
            self._arrived[message_id] = time.perf_counter()
            draft.rename(self._queue / message_id)
