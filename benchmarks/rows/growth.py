"""Growth: what a message costs with more connections, longer bodies and longer queues."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from .. import fill
from ..bench import QUEUE, Bench
from ..http_client import Connection, run
from ..load import Failed
from ..measure import Measure, Outcome, Plot, Series, number
from .post import connected, load, serial_floor

_CONNECTIONS = 64


def growth(bench: Bench) -> Outcome:
    """Microseconds for each message along three axes, as measures and as plots."""
    found = [_connections(bench), _bodies(bench), _depths(bench)]
    return Outcome(
        [measure for outcome in found for measure in outcome.measures],
        [plot for outcome in found for plot in outcome.plots],
    )


def _connections(bench: Bench) -> Outcome:
    measures: list[Measure] = []
    costs: list[tuple[float, float]] = []
    latencies: list[tuple[float, float]] = []
    for count in bench.sizes.connections:
        processes = 1 if count == 1 else bench.processes
        loads = [load(bench, count, processes, bench.sizes.body) for _ in range(bench.repeat)]
        measures.append(_cost(f"growth: POST, {connected(count)}", [1e6 / x.rate for x in loads]))
        costs.append(_point(count, measures[-1]))
        latencies.append((count, 1000 * statistics.median(x.p50_ms for x in loads)))
    plot = Plot(
        "growth-connections.svg",
        "A durable POST, by connections",
        "connections",
        "µs",
        [Series("for each message", costs), Series("latency, p50", latencies)],
    )
    return Outcome(measures, [plot])


def _bodies(bench: Bench) -> Outcome:
    measures: list[Measure] = []
    costs: list[tuple[float, float]] = []
    floors: list[tuple[float, float]] = []
    for size in bench.sizes.bodies:
        pairs = [
            (serial_floor(bench, size), load(bench, _CONNECTIONS, bench.processes, size).rate)
            for _ in range(bench.repeat)
        ]
        floor = statistics.median(1e6 / raw for raw, _ in pairs)
        measures.append(
            _cost(
                f"growth: POST of {_bytes(size)}, {_CONNECTIONS} connections",
                [1e6 / subject for _, subject in pairs],
                against=f"{number(floor, 'µs')} raw",
            )
        )
        costs.append(_point(size, measures[-1]))
        floors.append((size, floor))
    plot = Plot(
        "growth-bodies.svg",
        "A durable POST, by length of the body",
        "bytes",
        "µs for each message",
        [Series("fsmq, 64 connections", costs), Series("serial fsync loop", floors)],
    )
    return Outcome(measures, [plot])


def _depths(bench: Bench) -> Outcome:
    measures: list[Measure] = []
    posts: list[tuple[float, float]] = []
    fetches: list[tuple[float, float]] = []
    for depth in bench.sizes.depths:
        post, fetch = _at_depth(bench, depth)
        measures.append(_cost(f"growth: POST with {depth:,} waiting", post))
        posts.append(_point(depth, measures[-1]))
        measures.append(_cost(f"growth: fetch with {depth:,} waiting, 1 connection", fetch))
        fetches.append(_point(depth, measures[-1]))
    plot = Plot(
        "growth-depth.svg",
        "POST and fetch, by messages waiting",
        "messages waiting",
        "µs for each message",
        [Series("POST, 64 connections", posts), Series("fetch, 1 connection", fetches)],
    )
    return Outcome(measures, [plot])


def _at_depth(bench: Bench, depth: int) -> tuple[list[float], list[float]]:
    """µs for a POST and for a fetch, one of each for each repetition."""
    posts: list[float] = []
    fetches: list[float] = []

    def filled(root: Path) -> None:
        # Enough that it stays about as deep while some are fetched.
        fill.ready(root, depth + bench.repeat * bench.sizes.fetches // 2, bench.sizes.body)

    with bench.suite(fill=filled) as suite:
        for _ in range(bench.repeat):
            fetches.append(run(_fetch_us(suite.port, bench.sizes.fetches)))
            posts.append(1e6 / bench.load(suite, "post", _CONNECTIONS, bench.sizes.body).rate)
    return posts, fetches


async def _fetch_us(port: int, count: int) -> float:
    """The median time of a fetch, in µs; the first, which may load the index, does not count."""
    connection = await Connection.open(port)
    times = []
    for _ in range(count + 1):
        started = time.perf_counter()
        answer = await connection.request("GET", f"/{QUEUE}/messages?visibility=3600")
        times.append((time.perf_counter() - started) * 1e6)
        if answer.status != 200:
            raise Failed(f"a fetch was answered {answer.status}")
    connection.close()
    return statistics.median(times[1:])


def _cost(name: str, samples: list[float], against: str = "") -> Measure:
    return Measure(name, samples, "µs", against=against)


def _point(x: float, measure: Measure) -> tuple[float, float]:
    assert measure.median is not None
    return x, measure.median


def _bytes(size: int) -> str:
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size // factor} {unit}"
    return f"{size} B"
