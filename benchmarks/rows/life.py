"""The whole life of a message: POST, GET, DELETE, with mover and reaper at work."""

from __future__ import annotations

import os

from ..bench import Bench
from ..load import Load
from ..measure import Bar, Measure, Outcome, rate, ratios, side_by_side
from .post import serial_floor

_CONNECTIONS = 64
_POSTED, _FETCHED, _EMPTY, _DELETED = 201, 200, 204, 202


def life_64(bench: Bench) -> Outcome:
    """64 connections; counted in messages deleted, each of which was posted and fetched."""
    backlogs: list[float] = []
    loads: list[Load] = []

    def subject() -> float:
        with bench.suite(mover=True, reaper=True) as suite:
            load = bench.load(suite, "life", _CONNECTIONS, bench.sizes.body)
            left = len(os.listdir(suite.root / "remove"))
        loads.append(load)
        # In seconds of deletions: a reaper that keeps up has less than a moment's worth left.
        backlogs.append(left / max(load.rate_of(_DELETED), 1))
        return load.rate_of(_DELETED)

    found = side_by_side(
        bench.repeat, {"floor": lambda: serial_floor(bench, bench.sizes.body), "life": subject}
    )
    load = loads[-1]
    name = f"whole life, POST → GET → DELETE, {_CONNECTIONS} connections"
    empty = load.rate_of(_EMPTY) / max(load.rate_of(_FETCHED), 1)
    return Outcome(
        [
            Measure(
                f"{name}: deleted",
                found["life"],
                unit="/s",
                bar=Bar(">=", 3_600.0, "/s"),
            ),
            Measure(
                f"{name}, against the serial fsync loop",
                ratios(found["life"], found["floor"]),
                bar=Bar(">=", 0.7),
                measured=rate(found["life"]),
                against=rate(found["floor"]),
                note=f"mq --processes={bench.processes}, {load.rate:,.0f} requests/s,"
                f" {empty:.1%} of the fetches in vain",
            ),
            Measure(
                "reaper: what is left in remove/ at the end of that",
                backlogs,
                unit="s",
                bar=Bar("<=", 1.0, "s"),
                note="in seconds of deletions",
            ),
        ]
    )
