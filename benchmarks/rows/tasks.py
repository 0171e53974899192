"""Tasks beside what users would pick instead, each as durable as it can be."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from .. import rivals
from ..bench import Bench
from ..measure import Measure, Outcome, rate, ratios, side_by_side

_HOME = Path(__file__).resolve().parents[2]
_THREADS = 8
_HUEY = "huey, SQLite, synchronous=FULL"
_RQ = "RQ, Redis, appendfsync always"
_NOTES = {
    _HUEY: "a call is removed before it is made: a kill loses it",
    _RQ: "one thread",
}
_KINDS = {"both": "sent and made", "send": "sent by one sender", "work": "made by one process"}


def tasks(bench: Bench) -> Outcome:
    """Calls of a task, sent and made, beside huey on SQLite and RQ on Redis."""

    def load(name: str, folder: Path, port: int = 0) -> dict[str, float]:
        command = [sys.executable, "-m", "benchmarks.task_load", name, str(folder)]
        command += [f"--tasks={bench.sizes.tasks}", f"--threads={_THREADS}", f"--port={port}"]
        done = subprocess.run(command, cwd=_HOME, stdout=subprocess.PIPE, check=True, text=True)
        told: dict[str, float] = json.loads(done.stdout)
        return told

    def on_folder(name: str) -> dict[str, float]:
        with bench.place.fresh(name) as folder:
            return load(name, folder)

    def on_redis() -> dict[str, float]:
        with bench.place.fresh("redis") as folder, rivals.started_redis(folder) as port:
            return load("rq", folder, port)

    others: dict[str, tuple[str, Callable[[], dict[str, float]]]] = {
        _HUEY: (rivals.missing(rivals.HUEY), partial(on_folder, "huey")),
        _RQ: (rivals.missing(rivals.RQ) or rivals.missing(rivals.REDIS), on_redis),
    }
    told: dict[str, list[dict[str, float]]] = {}

    def noted(title: str, run: Callable[[], dict[str, float]]) -> float:
        told.setdefault(title, []).append(run())
        return told[title][-1]["both"]

    runs = {"fsmq": partial(noted, "fsmq", partial(on_folder, "fsmq"))}
    runs |= {title: partial(noted, title, run) for title, (why, run) in others.items() if not why}
    side_by_side(bench.repeat, runs)
    measures = []
    for kind, name in _KINDS.items():
        ours = [one[kind] for one in told["fsmq"]]
        note = f"worker with {_THREADS} threads, on a folder; {bench.sizes.tasks:,} calls"
        measures.append(Measure(f"tasks {name}", ours, "/s", note=note))
        for title, (why, _) in others.items():
            theirs = [one[kind] for one in told.get(title, [])]
            measures.append(
                Measure(
                    f"tasks {name}, against {title}",
                    ratios(ours, theirs) if theirs else [],
                    measured=rate(ours),
                    against=rate(theirs) if theirs else "",
                    note=why or _NOTES[title],
                )
            )
    return Outcome(measures)
