"""The library without a daemon: put_many."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ..bench import Bench
from ..floor import floor
from ..measure import Bar, Measure, Outcome, rate, ratios, side_by_side

_HOME = Path(__file__).resolve().parents[2]


def put_many(bench: Bench) -> Outcome:
    """put_many of a group against a raw group of the same size with one syncfs."""
    sizes = bench.sizes

    def raw() -> float:
        with bench.place.fresh("floor") as folder:
            return floor(folder, bench.seconds, sizes.body, sizes.group)

    def subject() -> float:
        with bench.place.fresh("library") as folder:
            command = [
                sys.executable,
                "-m",
                "benchmarks.library_load",
                str(folder),
                f"--seconds={bench.seconds}",
            ]
            command += [f"--size={sizes.body}", f"--group={sizes.group}"]
            done = subprocess.run(command, cwd=_HOME, stdout=subprocess.PIPE, check=True, text=True)
            return float(done.stdout)

    found = side_by_side(bench.repeat, {"floor": raw, "put_many": subject})
    measure = Measure(
        f"library: put_many of {sizes.group:,}, against raw groups with one syncfs",
        ratios(found["put_many"], found["floor"]),
        bar=Bar(">=", 0.5),
        measured=rate(found["put_many"]),
        against=rate(found["floor"]),
    )
    return Outcome([measure])
