"""Durable POSTs: against the raw floor, beanstalkd and Redis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .. import rivals
from ..bench import Bench
from ..floor import floor, language, stored
from ..load import Load
from ..measure import Bar, Measure, Outcome, rate, ratios, side_by_side

# The contenders, beside the rivals.
_STORED, _SERIAL, _FSMQ, _SUITE = "stored", "serial", "fsmq", "suite"


def post_64(bench: Bench) -> Outcome:
    """64 connections."""
    bars = {_STORED: Bar(">=", 0.75), _SERIAL: Bar(">=", 2.0), rivals.BEANSTALKD: Bar(">=", 2.5)}
    return _post(bench, 64, bench.processes, bars, (rivals.BEANSTALKD, rivals.REDIS))


def post_8(bench: Bench) -> Outcome:
    """8 connections, against the raw floors alone."""
    return _post(bench, 8, bench.processes, {_STORED: Bar(">=", 0.6)})


def post_1(bench: Bench) -> Outcome:
    """One connection, which one process answers."""
    bars = {_SERIAL: Bar(">=", 0.65)}
    return _post(bench, 1, 1, bars, (rivals.BEANSTALKD, rivals.REDIS))


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

    def contenders(self, others: Sequence[str]) -> dict[str, Callable[[], float]]:
        """All that run: the floors, ours, and those of the other systems that are installed."""
        runs = {
            _STORED: self._stored,
            _SERIAL: lambda: serial_floor(self._bench, self._bench.sizes.body),
            _FSMQ: self._fsmq,
            _SUITE: lambda: self._load(everything=True).rate,
        }
        of_others = {rivals.BEANSTALKD: self._beanstalkd, rivals.REDIS: self._redis}
        return runs | {name: of_others[name] for name in others if not rivals.missing(name)}

    def note(self, other: str) -> str:
        """What a reader of the ratio to a contender has to know."""
        if other == rivals.BEANSTALKD:
            return f"its client used {max(self.client_cpu):.0%} of a CPU"
        if other == _SERIAL:
            return ""
        latencies = sorted((load.p50_ms, load.p99_ms) for load in self.loads)
        p50, p99 = latencies[len(latencies) // 2]
        ours = f"mq --processes={self._processes}; p50 {p50:.1f} ms, p99 {p99:.1f} ms"
        return f"the floor in {language()}; {ours}" if other == _STORED else ""

    def _stored(self) -> float:
        """The floor with as many files in a group as requests may arrive together."""
        bench = self._bench
        with bench.place.fresh("floor") as folder:
            return stored(folder, bench.seconds, bench.sizes.body, self._connections)

    def _fsmq(self) -> float:
        self.loads.append(self._load())
        return self.loads[-1].rate

    def _load(self, *, everything: bool = False) -> Load:
        size = self._bench.sizes.body
        return load(self._bench, self._connections, self._processes, size, everything=everything)

    def _beanstalkd(self) -> float:
        bench = self._bench
        work = rivals.Work("put", self._connections, bench.seconds, bench.sizes.body)
        told = rivals.beanstalkd(bench.place, work)
        self.client_cpu.append(told["cpu"])
        return told["rate"]

    def _redis(self) -> float:
        bench = self._bench
        return rivals.redis(bench.place, self._connections, bench.seconds, bench.sizes.body)


def _post(
    bench: Bench,
    connections: int,
    processes: int,
    bars: Mapping[str, Bar],
    others: Sequence[str] = (),
) -> Outcome:
    """One row: the bars are by contender, and one without a bar is shown all the same."""
    runs = _Runs(bench, connections, processes)
    found = side_by_side(bench.repeat, runs.contenders(others))
    name = f"durable POST, {connected(connections)}"
    each = "an fsync for each" if connections == 1 else f"one syncfs for each {connections}"

    def against(other: str, title: str, subject: str = _FSMQ) -> Measure:
        bar = bars.get(other) if subject == _FSMQ else None
        if other not in found:
            return Measure(f"{name}, against {title}", [], bar=bar, note=rivals.missing(other))
        return Measure(
            f"{name}, against {title}",
            ratios(found[subject], found[other]),
            bar=bar,
            measured=rate(found[subject]),
            against=rate(found[other]),
            note=runs.note(other) if subject == _FSMQ else "",
        )

    titles = {rivals.BEANSTALKD: "beanstalkd -f 0", rivals.REDIS: "Redis, appendfsync always"}
    return Outcome(
        [
            against(_STORED, f"files written, {each}, and renamed"),
            against(_STORED, "the same, mover and reaper running", _SUITE),
            against(_SERIAL, "the serial fsync loop"),
            *(against(other, titles[other]) for other in others),
        ]
    )
