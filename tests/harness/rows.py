"""Rows of the benchmarks at a tiny size, for tests."""

from __future__ import annotations

import dataclasses
import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from benchmarks.bench import TINY, Bench
from benchmarks.place import open_place
from benchmarks.plot import svg
from benchmarks.rows import ROWS

_SIZES = dataclasses.replace(
    TINY,
    contested=1_000,
    waiters=20,
    connections=(1,),
    clients=(2,),
    bodies=(100,),
    depths=(50,),
    timers=20,
    posts_per_s=100,
)

# The ctime of a file is that of the kernel's last tick, which may be some milliseconds late on a
# busy virtual machine: then a timer seems to end early.
_LATE_TICKS_MS = 20.0


@contextmanager
def tiny(folder: Path) -> Iterator[Bench]:
    """The parameters of a row, in a new folder, which has to be empty at the end."""
    with open_place(str(folder), 1) as place, mock.patch.dict(os.environ, FSMQ_BENCH_MOST="300"):
        yield Bench(place, repeat=1, seconds=0.2, warm_up=0, processes=1, sizes=_SIZES)
    assert list(folder.iterdir()) == [], "something was left behind"


def run(bench: Bench, row: str) -> None:
    """Run a row; AssertionError if it gives no figures."""
    outcome = ROWS[row](bench)
    assert outcome.measures
    for measure in outcome.measures:
        assert measure.samples or "not installed" in measure.note, measure
        # CPU time and a backlog may be 0.
        least = -_LATE_TICKS_MS if measure.unit == "ms" else 0.0
        assert all(value >= least for value in measure.samples), measure
    for plot in outcome.plots:
        ElementTree.fromstring(svg(plot))
