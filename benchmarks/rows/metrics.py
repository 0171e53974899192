"""What the metrics cost: whole lives with them and without them."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ..bench import Bench
from ..measure import Measure, Outcome, number, rate, ratios, side_by_side
from ..procfs import cpu_seconds

_CONNECTIONS = 64
_DELETED = 202
_UNMEASURED = Path(__file__).resolve().parents[1] / "unmeasured"


def cost(bench: Bench) -> Outcome:
    """POST, GET and DELETE over 64 connections; the programs count, or do not.

    No option turns metrics off: the programs find a `sitecustomize` that does.
    """
    rates: dict[str, list[float]] = {"off": [], "on": []}

    def life_us(setting: str) -> float:
        """Microseconds of CPU time of mq for each message; its rate goes into ``rates``."""
        with bench.suite(processes=1, mover=True, reaper=True) as suite:
            before = cpu_seconds(suite["mq"].pid)
            load = replace(bench, warm_up=0.0).load(suite, "life", _CONNECTIONS, bench.sizes.body)
            used = cpu_seconds(suite["mq"].pid) - before
        rates[setting].append(load.rate_of(_DELETED))
        return used * 1e6 / max(load.statuses.get(_DELETED, 0), 1)

    def unmeasured() -> float:
        with _path_begins_with(_UNMEASURED):
            return life_us("off")

    found = side_by_side(bench.repeat, {"off": unmeasured, "on": lambda: life_us("on")})
    return Outcome(
        [
            Measure(
                "metrics: CPU time of mq for a whole life with them, against none",
                ratios(found["on"], found["off"]),
                measured=number(statistics.median(found["on"]), "µs"),
                against=number(statistics.median(found["off"]), "µs"),
                note="mq --processes=1",
            ),
            Measure(
                "metrics: whole lives with them, against none",
                ratios(rates["on"], rates["off"]),
                measured=rate(rates["on"]),
                against=rate(rates["off"]),
                note="of the same runs",
            ),
        ]
    )


@contextmanager
def _path_begins_with(folder: Path) -> Iterator[None]:
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), before]))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
