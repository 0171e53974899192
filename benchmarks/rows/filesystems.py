"""What a durable POST costs on each filesystem that can be made here."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

from ..bench import Bench
from ..measure import Measure, Outcome, rate, ratios, side_by_side
from ..place import EXT4, FILESYSTEMS, CannotMount, on_loop
from .post import connected, load

# What mkfs.xfs demands is less than this.
_GIGABYTES = 1


def compared(bench: Bench) -> Outcome:
    """POSTs over each number of connections of clients, against those on ext4."""
    missing: dict[str, str] = {}
    for filesystem in FILESYSTEMS:
        try:
            with on_loop(_GIGABYTES, filesystem):
                pass
        except CannotMount as error:
            missing[filesystem] = str(error)
    found = {} if EXT4 in missing else _rates(bench, missing.keys())
    measures = []
    for filesystem in FILESYSTEMS.keys() - {EXT4}:
        why = missing.get(EXT4) or missing.get(filesystem)
        if why is not None:
            measures.append(Measure(f"filesystems: {filesystem}", [], note=why))
            continue
        for count in bench.sizes.clients:
            here, there = found[f"{filesystem} {count}"], found[f"{EXT4} {count}"]
            measures.append(
                Measure(
                    f"filesystems: POST, {connected(count)}, {filesystem}, against {EXT4}",
                    ratios(here, there),
                    measured=rate(here),
                    against=rate(there),
                )
            )
    return Outcome(sorted(measures, key=lambda measure: measure.name))


def _rates(bench: Bench, missing: Collection[str]) -> dict[str, list[float]]:
    runs: dict[str, Callable[[], float]] = {
        f"{filesystem} {count}": partial(_rate, bench, filesystem, count)
        for count in bench.sizes.clients
        for filesystem in FILESYSTEMS
        if filesystem not in missing
    }
    return side_by_side(bench.repeat, runs)


def _rate(bench: Bench, filesystem: str, connections: int) -> float:
    with on_loop(_GIGABYTES, filesystem) as place:
        on_it = replace(bench, place=place)
        return load(on_it, connections, 1, bench.sizes.body, everything=True).rate
