"""The mover: deliveries a second, POST to fetchable, timers, and its restart."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from tests.harness.suite import Suite, eventually

from .. import fill
from ..bench import QUEUE, Bench
from ..http_client import Connection, run
from ..load import Failed
from ..measure import Bar, Measure, Outcome, number, percentile

_CLOCK_REALTIME_COARSE = 5  # Linux; Python has no name for it
_POSTERS = 32
_CONSUMERS = 64
# File times come from a clock that stands still between two ticks, so a ctime may be so much too
# early; it counts against us.
_TICK_MS = time.clock_getres(_CLOCK_REALTIME_COARSE) * 1000


def deliveries(bench: Bench) -> Outcome:
    """Deliveries a second on a filled ``new/``, its listing included."""
    rates = []
    for _ in range(bench.repeat):
        names: list[str] = []
        with bench.suite(
            mover=True,
            start=False,
            fill=partial(_fill_new, bench, names),
        ) as suite:
            started = time.time() + start_time(bench)
            suite.start("mover")
            # They are served in order: when the last one stands in its queue, all do.
            last = suite.root / "queues" / QUEUE / names[-1].rpartition(":")[2]
            eventually(last.exists, patience=300)
            # The rename's own time, so that it does not matter how often we look.
            rates.append(len(names) / max(last.stat().st_ctime - started, 1e-3))
    measure = Measure(
        f"mover: deliveries, {bench.sizes.new:,} in new/",
        rates,
        unit="/s",
        bar=Bar(">=", 20_000, "/s"),
        note="the listing of new/ included, the start of the interpreter not",
    )
    return Outcome([measure])


def _fill_new(bench: Bench, names: list[str], root: Path) -> None:
    names += fill.new(root, bench.sizes.new, bench.sizes.body)


def start_time(bench: Bench) -> float:
    """Seconds until the mover is ready where there is nothing to do."""
    with bench.suite(mover=True, start=False) as suite:
        started = time.perf_counter()
        suite.start("mover")
        return time.perf_counter() - started


def latency(bench: Bench) -> Outcome:
    """POST to fetchable, and POST to fetched by a waiting long poll, at a steady rate."""
    fetchable: list[list[float]] = []
    fetched: list[list[float]] = []
    stored: list[float] = []
    for _ in range(bench.repeat):
        with bench.suite(mover=True, reaper=True, processes=1) as suite:
            posted = run(_Paced(suite.port, bench, consumers=0).run())
            fetchable.append(_until_ready(suite, posted.sent_at))
        stored.append(percentile(posted.until_stored, 0.5))
        with bench.suite(mover=True, reaper=True, processes=1) as suite:
            polled = run(_Paced(suite.port, bench, consumers=_CONSUMERS).run())
        fetched.append(polled.until_fetched)
    at = f"at {bench.sizes.posts_per_s:,} posts/s"
    half, nearly = (partial(percentile, share=share) for share in (0.5, 0.99))
    alone = number(statistics.median(stored), "ms")
    return Outcome(
        [
            Measure(f"POST to fetchable, {at}: p50", [half(r) for r in fetchable], unit="ms"),
            Measure(
                f"POST to fetchable, {at}: p99",
                [nearly(r) for r in fetchable],
                unit="ms",
                bar=Bar("<=", 9.5, "ms"),
                note="from the first byte of the POST to the rename into the queue, whose"
                f" ctime is exact to {_TICK_MS:.0f} ms (counted as late); the POST alone takes"
                f" {alone} (p50)",
            ),
            Measure(f"POST to fetched by a long poll, {at}: p50", [half(r) for r in fetched], "ms"),
            Measure(
                f"POST to fetched by a long poll, {at}: p99",
                [nearly(r) for r in fetched],
                "ms",
                note="the same and a durable claim, up to the answer of the GET",
            ),
        ]
    )


def _until_ready(suite: Suite, sent_at: dict[str, float]) -> list[float]:
    """How long after its POST was sent each message stood in its queue, in milliseconds."""
    queue = suite.root / "queues" / QUEUE
    eventually(lambda: len(os.listdir(queue)) == len(sent_at))
    return [
        (queue / message_id).stat().st_ctime_ns / 1e6 + _TICK_MS - sent * 1000
        for message_id, sent in sent_at.items()
    ]


class _Paced:
    """Posts at a steady rate over many connections, and long polls that take the messages."""

    def __init__(self, port: int, bench: Bench, consumers: int) -> None:
        self._port = port
        self._consumers = consumers
        self._interval = 1 / bench.sizes.posts_per_s
        self._count = max(1, round(bench.sizes.posts_per_s * bench.seconds))
        self._padding = b" " * bench.sizes.body
        self._size = bench.sizes.body
        self._next = 0
        self._fetched = asyncio.Event()
        self.until_stored: list[float] = []  # ms
        self.until_fetched: list[float] = []
        self.sent_at: dict[str, float] = {}  # Unix seconds, by id

    async def run(self) -> _Paced:
        """Post all messages and fetch them.

        Raises:
            Failed: a request was refused, or messages did not come.
        """
        links = [await Connection.open(self._port) for _ in range(_POSTERS + self._consumers)]
        consumers = [asyncio.ensure_future(self._consume(link)) for link in links[_POSTERS:]]
        await asyncio.sleep(0.2)  # until the polls wait: nothing tells us when they do
        started = time.perf_counter()
        try:
            await asyncio.gather(*(self._post(link, started) for link in links[:_POSTERS]))
            if self._consumers:
                await asyncio.wait_for(self._fetched.wait(), 20)
        except TimeoutError:
            come = len(self.until_fetched)
            raise Failed(f"of {self._count} messages {come} came back") from None
        finally:
            for consumer in consumers:
                consumer.cancel()
            await asyncio.gather(*consumers, return_exceptions=True)
            for link in links:
                link.close()
        return self

    async def _post(self, link: Connection, started: float) -> None:
        while self._next < self._count:
            due = started + self._next * self._interval
            self._next += 1
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            sent, sent_at = time.perf_counter(), time.time()
            body = (repr(sent).encode() + self._padding)[: max(self._size, 24)]
            answer = await link.request("POST", f"/{QUEUE}/messages", body)
            if answer.status != 201:
                raise Failed(f"a POST was answered {answer.status}")
            self.until_stored.append((time.perf_counter() - sent) * 1000)
            self.sent_at[answer.header("X-Message-Id") or ""] = sent_at

    async def _consume(self, link: Connection) -> None:
        while True:
            answer = await link.request("GET", f"/{QUEUE}/messages?wait=20")
            now = time.perf_counter()
            if answer.status != 200:
                continue
            self.until_fetched.append((now - float(answer.body)) * 1000)
            if len(self.until_fetched) >= self._count:
                self._fetched.set()


def timers(bench: Bench) -> Outcome:
    """How late timers fire: the time of the rename against the deadline in the stamp."""
    p50: list[float] = []
    p99: list[float] = []
    for _ in range(bench.repeat):
        with bench.suite(mover=True, start=False, fill=lambda root: _fill_timers(bench, root)) as s:
            s.start("mover")
            lateness = _lateness(s, bench.sizes.timers)
        p50.append(percentile(lateness, 0.5))
        p99.append(percentile(lateness, 0.99))
    within = f"{bench.sizes.timers:,} timers within {bench.sizes.timers_within_s:g} s"
    return Outcome(
        [
            Measure(f"mover: {within}, late by: p50", p50, unit="ms"),
            Measure(
                f"mover: {within}, late by: p99",
                p99,
                unit="ms",
                bar=Bar("<=", 50.0, "ms"),
                note=f"from the deadline to the rename's ctime, which is exact to {_TICK_MS:.0f} ms"
                " (counted as late)",
            ),
        ]
    )


def _fill_timers(bench: Bench, root: Path) -> None:
    sizes = bench.sizes
    # Written first and stamped then: the deadlines count from when all are there.
    names = fill.delayed(root, sizes.timers, sizes.body, lambda _: fill.in_ms(3600))
    bench.place.settle()
    first_ms = fill.in_ms(sizes.head_start_s)
    step_ms = sizes.timers_within_s * 1000 / sizes.timers
    fill.stamp(root / "delay", names, lambda index: first_ms + int(index * step_ms))


def _lateness(suite: Suite, count: int) -> list[float]:
    """Wait for all timers; how late each fired, in milliseconds."""
    delay, queue = suite.root / "delay", suite.root / "queues" / QUEUE
    with suppress(FileNotFoundError, ValueError):  # one has fired already, or all have
        last_s = max(entry.stat().st_mtime for entry in os.scandir(delay))
        # To look while they fire would disturb what is measured.
        time.sleep(max(0.0, last_s - time.time()))
    eventually(lambda: not os.listdir(delay), patience=120)
    late = []
    for entry in os.scandir(queue):
        found = entry.stat()
        late.append(found.st_ctime_ns / 1e6 + _TICK_MS - found.st_mtime_ns // 1_000_000)
    if len(late) != count:
        raise Failed(f"of {count} timers {len(late)} fired")
    return late


def restart(bench: Bench) -> Outcome:
    """From the start of the mover until it is ready, with many messages in ``delay/``."""
    sizes = bench.sizes
    times = []

    def filled(root: Path) -> None:
        fill.delayed(root, sizes.delayed, sizes.body, lambda _: fill.in_ms(86_400))

    with bench.suite(mover=True, start=False, fill=filled) as suite:
        was_cold = True
        for _ in range(bench.repeat):
            was_cold &= bench.place.chill()
            started = time.perf_counter()
            suite.start("mover")
            times.append(time.perf_counter() - started)
            suite.kill("mover")
    measure = Measure(
        f"mover: restart with {sizes.delayed:,} in delay/",
        times,
        unit="s",
        bar=Bar("<=", 15.0, "s"),
        note="page cache dropped before" if was_cold else "page cache warm: no right to drop it",
    )
    return Outcome([measure])
