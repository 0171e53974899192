"""Puts and whole lives beside what users would pick instead, each as durable as it can be."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

from .. import postgres, rivals
from ..bench import QUEUE, Bench
from ..load import Load, wrk
from ..measure import Measure, Outcome, rate, ratios, side_by_side
from ..place import Place
from ..rivals import Told, Work
from .post import connected

_POSTED, _DELETED = 201, 202
_POSTGRES = "PostgreSQL, SKIP LOCKED"
_REDIS = "Redis, appendfsync always"
_SERVERS = {
    "beanstalkd -f 0": (rivals.BEANSTALKD, rivals.beanstalkd),
    "NATS JetStream, sync_interval always": (rivals.NATS, rivals.nats),
    "RabbitMQ, quorum queue": (rivals.RABBITMQ, rivals.rabbitmq),
}
_SQLITE = "SQLite, WAL, synchronous=FULL"
_SOFTLAYER = "SoftLayer's mq in Go"
_NAMES = {"put": "rivals: put", "life": "rivals: put, claim and delete"}
_NOTES = {
    _POSTGRES: "pgbench, over a Unix socket",
    _SQLITE: "no server: threads of one process",
    _SOFTLAYER: "wrk, the same requests; renames are not synced",
}


def put(bench: Bench) -> Outcome:
    """Durable puts by 1, 8 and 64 clients, beside PostgreSQL, NATS, RabbitMQ, SQLite …"""

    def redis(work: Work) -> float:
        return rivals.redis(bench.place, work.connections, work.seconds, work.size)

    return _beside(bench, "put", _put, {_REDIS: (rivals.missing(rivals.REDIS), redis)})


def life(bench: Bench) -> Outcome:
    """Whole lives, put, claim and acknowledgement, by 1, 8 and 64 clients, beside the same."""
    return _beside(bench, "life", _life, {})


def _put(url: str, root: Path, work: Work) -> float:
    load = _load("post", url, work)
    held = _files(root, "new", f"queues/{QUEUE}")
    assert held >= load.requests, f"{held} messages of {load.requests}"
    return load.rate


def _life(url: str, root: Path, work: Work) -> float:
    load = _load("life", url, work)
    held = _files(root, "new", f"queues/{QUEUE}", "delay")
    posted, deleted = (load.statuses.get(status, 0) for status in (_POSTED, _DELETED))
    # When wrk ends, each connection may be in the middle of a DELETE that it does not count.
    assert held + work.connections >= posted - deleted, f"{held} of {posted} - {deleted}"
    if not deleted:
        # A mover that has no turn beside clients that ask again and again: that is no run.
        return _life(url, root, work)
    return load.rate_of(_DELETED)


def _load(script: str, url: str, work: Work) -> Load:
    return wrk(url, script, work.connections, work.seconds, QUEUE, work.size, warm_up=work.warm_up)


def _files(root: Path, *folders: str) -> int:
    """How many messages are there; one that moves on meanwhile is counted where it arrives."""
    return sum(len(files) for folder in folders for _, _, files in os.walk(root / folder))


Contenders = dict[str, tuple[str, Callable[[Work], float]]]
"""By title, why it cannot run here (empty if it can), and a run: rounds a second."""


def _beside(
    bench: Bench,
    what: Literal["put", "life"],
    by_http: Callable[[str, Path, Work], float],
    more: Contenders,
) -> Outcome:
    """One row. ``by_http``: rounds a second of what has our requests, and our folders."""
    notes = dict(_NOTES)

    def ours(work: Work) -> float:
        with bench.suite(mover=True, reaper=True) as suite:
            return by_http(suite.url, suite.root, work)

    def softlayer(work: Work) -> float:
        with rivals.softlayer(bench.place, QUEUE) as (url, root):
            return by_http(url, root, work)

    others = more | {
        _SOFTLAYER: (rivals.missing(rivals.SOFTLAYER), softlayer),
        _POSTGRES: (postgres.missing(), lambda work: postgres.rate(bench.place, work)),
        _SQLITE: ("", lambda work: rivals.sqlite(bench.place, work)),
    }

    def server(title: str, run: Callable[[Place, Work], Told]) -> Callable[[Work], float]:
        def rounds(work: Work) -> float:
            told = run(bench.place, work)
            notes[title] = f"its client used {told['cpu']:.0%} of a CPU"
            return told["rate"]

        return rounds

    for title, (program, run) in _SERVERS.items():
        others[title] = (rivals.missing(program), server(title, run))
    measures: list[Measure] = []
    for clients in bench.sizes.clients:
        work = Work(what, clients, bench.seconds, bench.sizes.body, bench.warm_up)
        runs = {"fsmq": partial(ours, work)}
        runs |= {
            title: partial(run, work) for title, (missing, run) in others.items() if not missing
        }
        found = side_by_side(bench.repeat, runs)
        name = f"{_NAMES[what]}, {connected(clients)}"
        measures.append(Measure(name, found["fsmq"], "/s", note=_note(bench)))
        for title, (missing, _) in others.items():
            if missing:
                measures.append(Measure(f"{name}, against {title}", [], note=missing))
                continue
            measures.append(
                Measure(
                    f"{name}, against {title}",
                    ratios(found["fsmq"], found[title]),
                    measured=rate(found["fsmq"]),
                    against=_spread(found[title]),
                    note=notes.get(title, ""),
                )
            )
    return Outcome(measures)


def _note(bench: Bench) -> str:
    """What else a reader has to know: the machine may have had other work."""
    load = os.getloadavg()[0]
    return (
        f"mq --processes={bench.processes}, mover, reaper; load average of the machine {load:.0f}"
    )


def _spread(rates: list[float]) -> str:
    return f"{rate(rates)} ({min(rates):,.0f}–{max(rates):,.0f})"
