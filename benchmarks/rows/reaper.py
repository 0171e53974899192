"""The reaper: files a second, and what it holds in memory."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

from tests.harness.suite import eventually

from .. import fill
from ..bench import Bench
from ..measure import Bar, Measure, Outcome
from ..procfs import resident_mb

_LOOK_EVERY_S = 0.02


def unlinks(bench: Bench) -> Outcome:
    """A filled ``remove/``, from the start of the reaper until it is empty."""
    rates: list[float] = []
    peaks: list[float] = []
    count = bench.sizes.removed
    for _ in range(bench.repeat):
        with bench.suite(
            reaper=True,
            start=False,
            fill=lambda root: _fill(root, bench),
        ) as suite:
            suite.start("reaper")
            started = time.perf_counter()
            folder = suite.root / "remove"

            eventually(partial(_is_empty, folder), patience=600)
            rates.append(count / (time.perf_counter() - started))
            peaks.append(resident_mb(suite["reaper"].pid, peak=True))
    return Outcome(
        [
            Measure(f"reaper: {count:,} files in remove/", rates, unit="/s"),
            Measure("reaper: memory at most, meanwhile", peaks, "MB", Bar("<=", 80, "MB")),
        ]
    )


def _fill(root: Path, bench: Bench) -> None:
    fill.removed(root, bench.sizes.removed, bench.sizes.body)


def _is_empty(folder: Path) -> bool:
    # Not at every moment: to list a folder holds up who unlinks in it.
    time.sleep(_LOOK_EVERY_S)
    with os.scandir(folder) as entries:
        return next(entries, None) is None
