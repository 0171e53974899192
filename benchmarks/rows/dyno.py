"""dyno-queues on a spool: pushes, lives, verbs by id at depth, and sizes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from ..bench import Bench
from ..floor import floor
from ..measure import Bar, Measure, Outcome, rate, ratios, side_by_side

_HOME = Path(__file__).resolve().parents[2]
_BATCH = 100


def _load(bench: Bench, load: str, **given: object) -> Any:
    with bench.place.fresh("dyno") as folder:
        command = [sys.executable, "-m", "benchmarks.dyno_load", load, str(folder)]
        command += [f"--seconds={bench.seconds}", *(f"--{name}={v}" for name, v in given.items())]
        done = subprocess.run(command, cwd=_HOME, stdout=subprocess.PIPE, check=True, text=True)
        return json.loads(done.stdout)


def push(bench: Bench) -> Outcome:
    """Pushes of 100 against raw groups of 100 with one syncfs; and what the index costs."""
    sizes = bench.sizes

    def raw() -> float:
        with bench.place.fresh("floor") as folder:
            return floor(folder, bench.seconds, sizes.body, _BATCH)

    def subject() -> float:
        return float(_load(bench, "push", size=sizes.body))

    found = side_by_side(bench.repeat, {"floor": raw, "push": subject})
    pushed = Measure(
        f"dyno-queues: push of {_BATCH}, against raw groups with one syncfs",
        ratios(found["push"], found["floor"]),
        bar=Bar(">=", 0.5),
        measured=rate(found["push"]),
        against=rate(found["floor"]),
    )
    indexed = Measure(
        f"the same: what {_BATCH} take with the index of ids, against without",
        [_load(bench, "index", size=sizes.body) for _ in range(bench.repeat)],
        bar=Bar("<=", 1.15),
        note="of turns in one process",
    )
    return Outcome([pushed, indexed])


def life(bench: Bench) -> Outcome:
    """Pop and ack, 100 at a time."""
    count = min(bench.sizes.contested, int(40_000 * bench.seconds))
    runs = [_load(bench, "life", count=count) for _ in range(bench.repeat)]
    ours, raw = ([run[side] for run in runs] for side in ("ours", "raw"))
    speed = Measure(
        f"dyno-queues: pop and ack, {_BATCH} at a time",
        ours,
        unit="/s",
        bar=Bar(">=", 10_000, "/s"),
        note="one thread",
    )
    share = Measure(
        "dyno-queues: the same against its system calls alone, in turn",
        ratios(ours, raw),
        measured=rate(ours),
        against=rate(raw),
    )
    return Outcome([speed, share])


def depth(bench: Bench) -> Outcome:
    """Verbs by id at great and at little depth, and the sizes of 100 shards."""
    sizes = bench.sizes

    runs = [
        _load(bench, "by-id", count=sizes.many, few=sizes.few, rounds=sizes.fetches)
        for _ in range(bench.repeat)
    ]
    depths = f"{sizes.many:,} waiting against {sizes.few:,}"
    by_id = Measure(
        f"dyno-queues: get, ensure, pop, renew and ack by id, {depths}, in turn",
        [run["ratio"] for run in runs],
        bar=Bar("<=", 1.5),
        measured=f"{min(run['many'] for run in runs):.2f} ms",
        against=f"{min(run['few'] for run in runs):.2f} ms",
    )
    raw = Measure(
        f"the same of opens, renames and syncs by name, {depths}",
        [run["raw ratio"] for run in runs],
        measured=f"{min(run['raw many'] for run in runs):.2f} ms",
        against=f"{min(run['raw few'] for run in runs):.2f} ms",
    )
    counted = Measure(
        f"dyno-queues: sizes of 100 shards with {sizes.many:,}, warm",
        [_load(bench, "sizes", count=sizes.many, rounds=20) for _ in range(bench.repeat)],
        unit=" ms",
        bar=Bar("<=", 5.0, " ms"),
    )
    return Outcome([by_id, raw, counted])
