"""Durable POSTs: against the raw floor, beanstalkd and Redis."""

from __future__ import annotations

from collections.abc import Callable

from .. import rivals
from ..bench import Bench
from ..floor import floor
from ..load import Load
from ..measure import Bar, Measure, Outcome, rate, ratios, side_by_side


def post_64(bench: Bench) -> Outcome:
    """64 connections."""
    return _post(bench, 64, bench.processes, Bar(">=", 2.0), Bar(">=", 1.2))


def post_1(bench: Bench) -> Outcome:
    """One connection, which one process answers."""
    return _post(bench, 1, 1, Bar(">=", 0.4), None)


def load(
    bench: Bench, connections: int, processes: int, size: int, *, everything: bool = False
) -> Load:
    """One run on a fresh root; ``everything`` is with mover and reaper beside mq."""
    with bench.suite(processes=processes, mover=everything, reaper=everything) as suite:
        return bench.load(suite, "post", connections, size)


def serial_floor(bench: Bench, size: int) -> float:
    """The raw serial fsync loop: files a second."""
    with bench.place.fresh("floor") as folder:
        return floor(folder, bench.seconds, size)


def connected(count: int) -> str:
    return f"{count} connection" if count == 1 else f"{count} connections"


class _Runs:
    """The contenders of one row, and what else their runs told."""

    def __init__(self, bench: Bench, connections: int, processes: int) -> None:
        self._bench = bench
        self._connections = connections
        self._processes = processes
        self.loads: list[Load] = []
        self.client_cpu: list[float] = []

    def contenders(self) -> dict[str, Callable[[], float]]:
        all_of_them = {
            "floor": lambda: serial_floor(self._bench, self._bench.sizes.body),
            "fsmq": self._fsmq,
            "suite": lambda: self._load(everything=True).rate,
            rivals.BEANSTALKD: self._beanstalkd,
            rivals.REDIS: self._redis,
        }
        return {name: run for name, run in all_of_them.items() if not _missing(name)}

    def _fsmq(self) -> float:
        self.loads.append(self._load())
        return self.loads[-1].rate

    def _load(self, *, everything: bool = False) -> Load:
        size = self._bench.sizes.body
        return load(self._bench, self._connections, self._processes, size, everything=everything)

    def _beanstalkd(self) -> float:
        bench = self._bench
        told = rivals.beanstalkd(bench.place, self._connections, bench.seconds, bench.sizes.body)
        self.client_cpu.append(told["cpu"])
        return told["rate"]

    def _redis(self) -> float:
        bench = self._bench
        return rivals.redis(bench.place, self._connections, bench.seconds, bench.sizes.body)


def _missing(name: str) -> str:
    return rivals.missing(name) if name in (rivals.BEANSTALKD, rivals.REDIS) else ""


def _post(
    bench: Bench, connections: int, processes: int, bar: Bar, rival_bar: Bar | None
) -> Outcome:
    runs = _Runs(bench, connections, processes)
    found = side_by_side(bench.repeat, runs.contenders())
    name = f"durable POST, {connected(connections)}"
    latency = sorted((load.p50_ms, load.p99_ms) for load in runs.loads)[len(runs.loads) // 2]

    def against(other: str, title: str, limit: Bar | None, subject: str = "fsmq") -> Measure:
        if other not in found:
            return Measure(f"{name}, against {title}", [], bar=limit, note=_missing(other))
        return Measure(
            f"{name}, against {title}",
            ratios(found[subject], found[other]),
            bar=limit,
            measured=rate(found[subject]),
            against=rate(found[other]),
            note=_note(other, subject, processes, latency, runs),
        )

    return Outcome(
        [
            against("floor", "the serial fsync loop", bar),
            against("floor", "the same, mover and reaper running", None, "suite"),
            against(rivals.BEANSTALKD, "beanstalkd -f 0", rival_bar),
            against(rivals.REDIS, "Redis, appendfsync always", None),
        ]
    )


def _note(
    other: str, subject: str, processes: int, latency: tuple[float, float], runs: _Runs
) -> str:
    if other == rivals.BEANSTALKD:
        return f"its client used {max(runs.client_cpu):.0%} of a CPU"
    if other == "floor" and subject == "fsmq":
        p50, p99 = latency
        return f"mq --processes={processes}; p50 {p50:.1f} ms, p99 {p99:.1f} ms"
    return ""
