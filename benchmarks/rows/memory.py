"""Memory: each daemon at rest, and mq with many messages ready."""

from __future__ import annotations

from pathlib import Path

from .. import fill
from ..bench import QUEUE, Bench
from ..http_client import Connection, run
from ..load import Failed
from ..measure import Bar, Measure, Outcome
from ..procfs import resident_mb

# MB of each at rest, and of mq with a million ready; a fiftieth more is the limit.
_IDLE = {"mq": 49.0, "mover": 29.0, "reaper": 29.0}
_MANY_READY = 194.0
_MARGIN = 1.02


def resident(bench: Bench) -> Outcome:
    """Resident memory; of mq after it has served a request."""
    idle: dict[str, list[float]] = {name: [] for name in _IDLE}
    for _ in range(bench.repeat):
        with bench.suite(processes=1, mover=True, reaper=True) as suite:
            run(_ask(suite.port, f"/{QUEUE}/messages", 204))
            for name in _IDLE:
                idle[name].append(resident_mb(suite[name].pid))
    measures = [
        Measure(f"memory: {name}, idle", idle[name], "MB", Bar("<=", _MARGIN * limit, "MB"))
        for name, limit in _IDLE.items()
    ]
    return Outcome([*measures, _many_ready(bench)])


def _many_ready(bench: Bench) -> Measure:
    sizes = bench.sizes

    def filled(root: Path) -> None:
        fill.ready(root, sizes.many, sizes.body)

    with bench.suite(processes=1, fill=filled) as suite:
        run(_ask(suite.port, f"/{QUEUE}/messages", 200))
        pid = suite["mq"].pid
        now, peak = resident_mb(pid), resident_mb(pid, peak=True)
    return Measure(
        f"memory: mq with {sizes.many:,} ready",
        [now],
        "MB",
        Bar("<=", _MARGIN * _MANY_READY, "MB"),
        note=f"{peak:.0f} MB at most while it listed them",
    )


async def _ask(port: int, path: str, status: int) -> None:
    connection = await Connection.open(port)
    answer = await connection.request("GET", path)
    connection.close()
    if answer.status != status:
        raise Failed(f"GET {path} was answered {answer.status}, not {status}")
