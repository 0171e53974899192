"""Spark's write of a DataFrame into a queue."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..bench import Bench
from ..floor import floor
from ..measure import Bar, Measure, Outcome, rate, side_by_side
from .spark import why_not

_HOME = Path(__file__).resolve().parents[2]
_NAME = "Spark: write of durable messages"
_PROCESSES = 2
# Of a run: the spool syncs each 10,000 files of a task.
_GROUPS = 10


def durable(bench: Bench) -> Outcome:
    """df.write of 1 KiB messages, beside the same steps in plain loops in the same run."""
    if (reason := why_not()) is not None:
        return Outcome([Measure(_NAME, [], note=reason)])
    sizes = bench.sizes

    def subject() -> float:
        with bench.place.fresh("spark") as folder:
            command = [sys.executable, "-m", "benchmarks.spark_write", str(folder.resolve())]
            command += [f"--messages={sizes.contested}", f"--size={sizes.body}"]
            done = subprocess.run(command, cwd=_HOME, stdout=subprocess.PIPE, check=True, text=True)
            return float(done.stdout.splitlines()[-1])

    contenders = {
        "groups": lambda: _raw(bench, shown=False),
        "shown": lambda: _raw(bench, shown=True),
        "write": subject,
    }
    found = side_by_side(bench.repeat, contenders)
    measure = Measure(
        _NAME,
        found["write"],
        unit="messages/s",
        bar=Bar(">=", 15_000, "/s"),
        measured=rate(found["write"]),
        against=rate(found["shown"]),
        note=f"{sizes.contested:,} of {sizes.body:,} bytes on local[{_PROCESSES}], from rows in"
        " Spark's memory until all are in new/. Against: plain loops in as many processes that"
        " write files, one syncfs for each group, then rename each into one folder, as all or"
        f" nothing needs it; without these renames {rate(found['groups'])}",
    )
    return Outcome([measure])


def _raw(bench: Bench, *, shown: bool) -> float:
    """Files a second of all processes. ``shown``: in the end they are renamed into one folder."""
    with bench.place.fresh("floor") as folder, ThreadPoolExecutor(_PROCESSES) as threads:
        to = folder / "new"
        parts = [folder / str(number) for number in range(_PROCESSES)]
        for made in (to, *parts):
            made.mkdir()

        def one(part: Path) -> float:
            size, group = bench.sizes.body, bench.sizes.contested // _GROUPS
            return floor(part, bench.seconds, size, group, to if shown else None)

        return sum(threads.map(one, parts))
