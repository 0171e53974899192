"""What the lifecycle journal costs: whole lives with it and without it."""

from __future__ import annotations

from ..bench import Bench
from ..measure import Bar, Measure, Outcome, rate, ratios, side_by_side

_CONNECTIONS = 64
_DELETED = 202


def cost(bench: Bench) -> Outcome:
    """POST, GET and DELETE over 64 connections; all three programs note every step, or none."""

    def lives(setting: str) -> float:
        journal = [f"--journal={setting}"]
        with bench.suite(mover=True, reaper=True, everywhere=journal) as suite:
            return bench.load(suite, "life", _CONNECTIONS, bench.sizes.body).rate_of(_DELETED)

    found = side_by_side(bench.repeat, {"off": lambda: lives("off"), "on": lambda: lives("on")})
    return Outcome(
        [
            Measure(
                "lifecycle journal: whole lives with it, against none",
                ratios(found["on"], found["off"]),
                bar=Bar(">=", 0.95),
                measured=rate(found["on"]),
                against=rate(found["off"]),
                note=f"mq --processes={bench.processes}; five lines a message",
            )
        ]
    )
