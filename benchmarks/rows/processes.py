"""What more processes of mq gain where each has a core of its own, as far as few cores show it."""

from __future__ import annotations

from functools import partial

from ..bench import Bench
from ..measure import Measure, Outcome, rate, ratios, side_by_side
from ..procfs import descendants
from ..quota import limited, missing

_CONNECTIONS = 64
_DELETED = 202


def processes(bench: Bench) -> Outcome:
    """POSTs and whole lives with one, two and four processes that have a share of a core each."""
    if why := missing():
        return Outcome([Measure("processes, each with a share of a core", [], note=why)])
    measures: list[Measure] = []
    share = bench.sizes.core_share
    one, *more = bench.sizes.processes
    for title, script in (("durable POST", "post"), ("whole lives", "life")):
        runs = {f"{one}": partial(_rate, bench, script, one, _CONNECTIONS)}
        for count in more:
            runs[f"{count}"] = partial(_rate, bench, script, count, _CONNECTIONS)
            # With fewer connections for each process its groups are smaller, and cost more.
            runs[f"{count} each"] = partial(_rate, bench, script, count, count * _CONNECTIONS)
        found = side_by_side(bench.repeat, runs)
        for count in more:
            for key, load in ((f"{count}", "in all"), (f"{count} each", "each")):
                measures.append(
                    Measure(
                        f"{title}, {count} processes that have {share:.0%} of a core each and"
                        f" {_CONNECTIONS} connections {load}, against one",
                        ratios(found[key], found[f"{one}"]),
                        measured=rate(found[key]),
                        against=rate(found[f"{one}"]),
                    )
                )
    return Outcome(measures)


def _rate(bench: Bench, script: str, count: int, connections: int) -> float:
    beside = script == "life"
    with bench.suite(processes=count, mover=beside, reaper=beside, start=False) as suite:
        suite.start("mq")
        pid = suite["mq"].pid
        with limited(list(descendants(pid)) or [pid], bench.sizes.core_share):
            try:
                for name in ("mover", "reaper") if beside else ():
                    suite.start(name)
                load = bench.load(suite, script, connections, bench.sizes.body)
            finally:
                suite.kill("mq")
    return load.rate_of(_DELETED) if beside else load.rate
