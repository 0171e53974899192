"""Fetches: from a short and from a long queue, after a cold start, and by many at once."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from functools import partial
from pathlib import Path

from tests.harness.suite import Suite

from .. import fill
from ..bench import QUEUE, Bench, make_queue
from ..http_client import Connection, run
from ..load import Failed, Load
from ..measure import Bar, Measure, Outcome, number, ratios

_CONSUMERS = 64
# For so many seconds of a run and its warm-up `Sizes.contested` messages are enough.
_FILLED_FOR_S = 4.0


async def _fetch(connection: Connection, queue: str) -> float:
    """One fetch; its time in milliseconds."""
    started = time.perf_counter()
    answer = await connection.request("GET", f"/{queue}/messages?visibility=3600")
    if answer.status != 200:
        raise Failed(f"a fetch from {queue} was answered {answer.status}")
    return (time.perf_counter() - started) * 1000


def depth(bench: Bench) -> Outcome:
    """One fetch with many messages waiting against one with few, and the first of all."""
    sizes = bench.sizes
    names = {"few": "few", "many": QUEUE}

    def filled(root: Path) -> None:
        make_queue(root, names["few"])
        # The fetches of all repetitions take theirs from the same queue.
        fill.ready(root, sizes.few + bench.repeat * sizes.fetches // 2, sizes.body, names["few"])
        fill.ready(root, sizes.many, sizes.body)

    with bench.suite(processes=1, fill=filled, start=False) as suite:
        cold, was_cold = _cold_starts(bench, suite)
        medians = run(_alternate(bench, suite, names))
    few, many = statistics.median(medians["few"]), statistics.median(medians["many"])
    return Outcome(
        [
            Measure(
                f"one fetch, {sizes.many:,} waiting against {sizes.few:,}",
                ratios(medians["many"], medians["few"]),
                bar=Bar("<=", 1.5),
                measured=number(many, "ms"),
                against=number(few, "ms"),
            ),
            Measure(
                f"first fetch after a cold start, {sizes.many:,} waiting",
                cold,
                unit="s",
                bar=Bar("<=", 10.0, "s"),
                note="from the start of mq to the answer; page cache "
                + ("dropped before" if was_cold else "warm: no right to drop it"),
            ),
        ]
    )


def _cold_starts(bench: Bench, suite: Suite) -> tuple[list[float], bool]:
    """Times from start to first answer, in seconds. The last start stays up."""
    times = []
    was_cold = True
    for turn in range(bench.repeat):
        if turn:
            suite.kill("mq")
        was_cold &= bench.place.chill()
        started = time.perf_counter()
        suite.start("mq")
        run(_first(suite.port))
        times.append(time.perf_counter() - started)
    return times, was_cold


async def _first(port: int) -> None:
    connection = await Connection.open(port)
    await _fetch(connection, QUEUE)
    connection.close()


async def _alternate(bench: Bench, suite: Suite, queues: dict[str, str]) -> dict[str, list[float]]:
    connection = await Connection.open(suite.port)
    medians: dict[str, list[float]] = {depth: [] for depth in queues}
    for queue in queues.values():
        await _fetch(connection, queue)
    for _ in range(bench.repeat):
        times: dict[str, list[float]] = {depth: [] for depth in queues}
        # One from each in turn: whatever slows the machine for a moment slows both.
        for _ in range(bench.sizes.fetches):
            for depth, queue in queues.items():
                times[depth].append(await _fetch(connection, queue))
        for depth in queues:
            medians[depth].append(statistics.median(times[depth]))
    connection.close()
    return medians


def races(bench: Bench) -> Outcome:
    """64 consumers on one queue and two processes: the share of claims that lost their rename."""
    shares: list[float] = []
    rates: list[float] = []
    for _ in range(bench.repeat):
        with bench.suite(processes=2, fill=partial(fill_for, bench)) as suite:
            load = none_in_vain(bench.load(suite, "fetch", _CONSUMERS))
            suite.terminate("mq")
            counted = counts_at_stop(suite, "mq")
        if counted["claim"] < load.statuses[200]:
            raise Failed("not every process logged its counts")
        shares.append(100 * counted["lost_race"] / (counted["claim"] + counted["lost_race"]))
        rates.append(load.rate_of(200))
    measure = Measure(
        f"fetches by {_CONSUMERS} consumers on one queue, 2 processes: lost races",
        shares,
        unit="%",
        bar=Bar("<=", 5.0, "%"),
        measured=number(statistics.median(rates), "/s"),
        note="fetched",
    )
    return Outcome([measure])


def get_64(bench: Bench) -> Outcome:
    """Claims over 64 connections of a queue that was filled before, each durable."""
    loads: list[Load] = []
    for _ in range(bench.repeat):
        with bench.suite(fill=partial(fill_for, bench)) as suite:
            loads.append(none_in_vain(bench.load(suite, "fetch", _CONSUMERS)))
    rates = [load.rate_of(200) for load in loads]
    p50, p99 = sorted((load.p50_ms, load.p99_ms) for load in loads)[len(loads) // 2]
    measure = Measure(
        f"GET of a message that waits, {_CONSUMERS} connections",
        rates,
        unit="/s",
        bar=Bar(">=", 9_000.0, "/s"),
        note=f"mq --processes={bench.processes}; p50 {p50:.1f} ms, p99 {p99:.1f} ms",
    )
    return Outcome([measure])


def fill_for(bench: Bench, root: Path) -> None:
    """Fill the queue with enough for the consumers of a run and of its warm-up."""
    long = max(1.0, (bench.seconds + bench.warm_up) / _FILLED_FOR_S)
    fill.ready(root, round(long * bench.sizes.contested), bench.sizes.body)


def none_in_vain(load: Load) -> Load:
    """The load itself. Raises Failed where the queue ran empty."""
    if load.statuses.get(204):
        raise Failed("the queue ran empty: fill it with more messages")
    return load


def counts_at_stop(suite: Suite, name: str) -> Counter[str]:
    """What all processes of a program counted, from the lines that they log when they stop."""
    total: Counter[str] = Counter()
    stops = [event for event in suite.logs(name) if "counted" in event]
    if not stops:
        raise Failed(f"{name} logged no counts at its stop")
    for event in stops:
        total.update(event["counted"])
    return total
