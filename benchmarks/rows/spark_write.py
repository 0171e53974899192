"""Spark's write of a DataFrame into a queue."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ..bench import Bench
from ..floor import floor
from ..measure import Bar, Measure, Outcome, rate, side_by_side
from .spark import why_not

_HOME = Path(__file__).resolve().parents[2]


def durable(bench: Bench) -> Outcome:
    """df.write of 1 KiB messages, beside raw groups with one syncfs in the same run."""
    if (reason := why_not()) is not None:
        return Outcome([Measure("Spark: write", [], note=reason)])
    sizes = bench.sizes

    def raw() -> float:
        with bench.place.fresh("floor") as folder:
            return floor(folder, bench.seconds, sizes.body, sizes.group)

    def subject() -> float:
        with bench.place.fresh("spark") as folder:
            command = [sys.executable, "-m", "benchmarks.spark_write", str(folder.resolve())]
            command += [f"--messages={sizes.contested}", f"--size={sizes.body}"]
            done = subprocess.run(command, cwd=_HOME, stdout=subprocess.PIPE, check=True, text=True)
            return float(done.stdout.splitlines()[-1])

    found = side_by_side(bench.repeat, {"floor": raw, "write": subject})
    measure = Measure(
        f"Spark: write of {sizes.contested:,} durable messages of 1 KiB on local[2]",
        found["write"],
        unit="messages/s",
        bar=Bar(">=", 15_000),
        measured=rate(found["write"]),
        against=rate(found["floor"]),
        note="until all are in new/; against: raw groups with one syncfs, one process",
    )
    return Outcome([measure])
