"""A slow neighbour: another process writes to the same filesystem."""

from __future__ import annotations

import statistics

from ..bench import Bench
from ..load import Load
from ..measure import Bar, Measure, Outcome, number
from ..writer import neighbour

_CONNECTIONS = 16
_METHODS = ("fsync", "syncfs", "auto")


def slow(bench: Bench) -> Outcome:
    """POST latency with each ``--sync``, alone and beside the neighbour."""
    alone: dict[str, list[Load]] = {method: [] for method in _METHODS}
    beside: dict[str, list[Load]] = {method: [] for method in _METHODS}
    for _ in range(bench.repeat):
        for method in _METHODS:
            alone[method].append(_run(bench, method, noisy=False))
            beside[method].append(_run(bench, method, noisy=True))
    measures = []
    for method in _METHODS:
        measures += _latencies(bench, method, alone[method], beside[method])
    best = [
        min(fsync.p50_ms, syncfs.p50_ms)
        for fsync, syncfs in zip(beside["fsync"], beside["syncfs"], strict=True)
    ]
    measures.append(
        Measure(
            "neighbour: --sync auto against the better of the two, p50",
            [load.p50_ms / p50 for load, p50 in zip(beside["auto"], best, strict=True)],
            bar=Bar("<=", 1.25),
            measured=number(statistics.median(load.p50_ms for load in beside["auto"]), "ms"),
            against=number(statistics.median(best), "ms"),
        )
    )
    return Outcome(measures)


def _run(bench: Bench, method: str, *, noisy: bool) -> Load:
    with bench.suite(processes=1, options=[f"--sync={method}"]) as suite:
        if not noisy:
            return bench.load(suite, "post", _CONNECTIONS, bench.sizes.body)
        with neighbour(suite.root.parent / "neighbour", bench.sizes.neighbour_mb_per_s):
            return bench.load(suite, "post", _CONNECTIONS, bench.sizes.body)


def _latencies(bench: Bench, method: str, alone: list[Load], beside: list[Load]) -> list[Measure]:
    title = f"neighbour, {bench.sizes.neighbour_mb_per_s} MB/s: POST with --sync {method}"
    calm_p50 = statistics.median(load.p50_ms for load in alone)
    calm_p99 = statistics.median(load.p99_ms for load in alone)
    rate = statistics.median(load.rate for load in beside)
    calm_rate = statistics.median(load.rate for load in alone)
    return [
        Measure(
            f"{title}, p50",
            [load.p50_ms for load in beside],
            "ms",
            against=f"{number(calm_p50, 'ms')} alone",
            note=f"{rate:,.0f} posts/s over {_CONNECTIONS} connections, {calm_rate:,.0f}/s alone",
        ),
        Measure(
            f"{title}, p99",
            [load.p99_ms for load in beside],
            "ms",
            against=f"{number(calm_p99, 'ms')} alone",
        ),
    ]
