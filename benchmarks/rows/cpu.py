"""CPU time of mq for each request on tmpfs: what interpreter and kernel do where no disk waits."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tests.harness.suite import Suite

from ..bench import Bench
from ..load import Failed
from ..measure import Bar, Measure, Outcome, side_by_side
from ..place import CannotMount, in_memory
from ..procfs import cpu_seconds
from .fetch import fill_for, none_in_vain

_CONNECTIONS = 64


def cost(bench: Bench) -> Outcome:
    """POST, GET and whole lives over 64 connections to one process, in memory whatever --where."""
    try:
        with in_memory() as place:
            there = replace(bench, place=place)
            contenders = {"post": _post, "get": _get, "life": _life}
            found = side_by_side(
                bench.repeat, {name: partial(run, there) for name, run in contenders.items()}
            )
    except CannotMount as error:
        raise Failed(str(error)) from error
    note = f"user and system time of mq --processes=1, tmpfs, {_CONNECTIONS} connections"
    return Outcome(
        [
            Measure("CPU of a POST", found["post"], "µs", Bar("<=", 45.0, "µs"), note=note),
            Measure("CPU of a GET that claims", found["get"], "µs", Bar("<=", 55.0, "µs")),
            Measure(
                "CPU of a request of whole lives, POST, GET and DELETE",
                found["life"],
                "µs",
                Bar("<=", 50.0, "µs"),
            ),
        ]
    )


def _post(bench: Bench) -> float:
    with bench.suite(processes=1) as suite:
        return _us(bench, suite, "post", bench.sizes.body)


def _get(bench: Bench) -> float:
    with bench.suite(processes=1, fill=partial(fill_for, bench)) as suite:
        return _us(bench, suite, "fetch")


def _life(bench: Bench) -> float:
    with bench.suite(processes=1, mover=True, reaper=True) as suite:
        return _us(bench, suite, "life", bench.sizes.body)


def _us(bench: Bench, suite: Suite, script: str, *arguments: object) -> float:
    """Microseconds for each request that wrk counted; the warm-up is not among them."""
    measured = replace(bench, warm_up=0.0)
    if bench.warm_up:
        replace(measured, seconds=bench.warm_up).load(suite, script, _CONNECTIONS, *arguments)
    before = cpu_seconds(suite["mq"].pid)
    load = measured.load(suite, script, _CONNECTIONS, *arguments)
    used = cpu_seconds(suite["mq"].pid) - before
    if script == "fetch":
        none_in_vain(load)
    return used * 1e6 / load.requests
