"""Topics, batches, and two hosts on one tree."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.harness.suite import Suite

from .. import fill
from ..bench import QUEUE, Bench, make_queue
from ..floor import floor
from ..http_client import Connection, run
from ..load import Failed
from ..measure import Bar, Measure, Outcome, number, rate, ratios, side_by_side
from .fetch import counts_at_stop

_QUEUES, _PUBLISHERS = 10, 16
_BATCH, _BATCHERS = 100, 8
_CONSUMERS = 32
_GROUP = 160  # copies that 16 publishers have on their way at a time


def publish(bench: Bench) -> Outcome:
    """Publishes to 10 queues over 16 connections, counted in copies, against raw groups."""

    def groups() -> float:
        with bench.place.fresh("floor") as folder:
            return floor(folder, bench.seconds, bench.sizes.body, _GROUP)

    def subscribed(root: Path) -> None:
        (root / "topics" / QUEUE).mkdir(mode=0o700, parents=True)
        for n in range(_QUEUES):
            make_queue(root, f"{QUEUE}-{n}")
            (root / "topics" / QUEUE / f"{QUEUE}-{n}").touch()

    def copies() -> float:
        with bench.suite(fill=subscribed) as suite:
            return _QUEUES * run(_publish(bench, suite))

    runs = side_by_side(bench.repeat, {"groups": groups, "fsmq": copies})
    name = f"publish to {_QUEUES} queues, {_PUBLISHERS} connections, in copies"
    return Outcome(
        [
            Measure(name, runs["fsmq"], unit="/s", bar=Bar(">=", 11_583.0, "/s")),
            Measure(
                f"{name}, against raw groups of {_GROUP} with one syncfs",
                ratios(runs["fsmq"], runs["groups"]),
                bar=Bar(">=", 0.5),
                measured=rate(runs["fsmq"]),
                against=rate(runs["groups"]),
                note=f"mq --processes={bench.processes}",
            ),
        ]
    )


def batches(bench: Bench) -> Outcome:
    """Batches of 100 received over 8 connections, each claim durable."""

    def filled(root: Path) -> None:
        fill.ready(root, bench.sizes.contested, bench.sizes.body)

    rates = []
    for _ in range(bench.repeat):
        with bench.suite(fill=filled) as suite:
            rates.append(run(_receive(bench, suite)))
    name = f"Dynamiq: batches of {_BATCH} received, {_BATCHERS} connections"
    return Outcome([Measure(name, rates, unit="/s", bar=Bar(">=", 15_140.0, "/s"))])


def hosts(bench: Bench) -> Outcome:
    """32 consumers on two hosts of one tree with --peers auto: the share of lost races."""
    shares: list[float] = []
    rates: list[float] = []
    twice = 0

    def filled(root: Path) -> None:
        fill.ready(root, bench.sizes.contested, bench.sizes.body)

    for _ in range(bench.repeat):
        options = ["--peers=auto", "--node=one"]
        with bench.suite(processes=1, options=options, fill=filled) as one:
            other = Suite(
                one.root,
                mq_options=["--peers=auto", "--node=other"],
                mover=False,
                reaper=False,
                logs=one.root.parent / "logs-other",
                forked=False,
            )
            with other:
                ids, seconds = run(_consume(bench, [one, other]))
                counted: Counter[str] = Counter()
                for host in (one, other):
                    host.terminate("mq")
                    counted.update(counts_at_stop(host, "mq"))
        twice += len(ids) - len(set(ids))
        if counted["claim"] < len(ids):
            raise Failed("not every process logged its counts")
        lost = counted["lost_race"]
        shares.append(100 * lost / (counted["claim"] + lost))
        rates.append(len(ids) / seconds)
    name = f"{_CONSUMERS} consumers on two hosts of one tree, --peers auto"
    return Outcome(
        [
            Measure(
                f"{name}: lost races",
                shares,
                unit="%",
                bar=Bar("<=", 5.0, "%"),
                measured=number(statistics.median(rates), "/s"),
                note="fetched",
            ),
            Measure(f"{name}: delivered twice", [float(twice)], bar=Bar("<=", 0.0, ""), unit=""),
        ]
    )


async def _publish(bench: Bench, suite: Suite) -> float:
    """Publishes a second."""
    body = b"x" * bench.sizes.body

    async def step(connection: Connection) -> int:
        answer = await connection.request("PUT", f"/v1/topics/{QUEUE}/message", body)
        if answer.status != 200:
            raise Failed(f"a publish was answered {answer.status}: {answer.body[:200]!r}")
        return 1

    return await _rate(bench, [suite] * _PUBLISHERS, step)


async def _receive(bench: Bench, suite: Suite) -> float:
    """Messages a second."""

    async def step(connection: Connection) -> int:
        answer = await connection.request("GET", f"/v1/queues/{QUEUE}/messages/{_BATCH}")
        if answer.status != 200:
            raise Failed(f"a batch was answered {answer.status}: {answer.body[:200]!r}")
        return len(json.loads(answer.body))

    return await _rate(bench, [suite] * _BATCHERS, step)


async def _consume(bench: Bench, hosts: list[Suite]) -> tuple[list[str], float]:
    """The ids that all consumers got, and the seconds that it took."""
    for host in hosts:
        await _has_its_share(host)
    ids: list[str] = []

    async def step(connection: Connection) -> int:
        answer = await connection.request("GET", f"/{QUEUE}/messages?visibility=3600")
        if answer.status == 200:
            ids.append(str(answer.header("x-message-id")))
        return int(answer.status == 200)

    started = time.perf_counter()
    await _rate(bench, [hosts[n % len(hosts)] for n in range(_CONSUMERS)], step)
    return ids, time.perf_counter() - started


async def _has_its_share(host: Suite) -> None:
    """Wait until a host has seen the other, which it looks for every 5 seconds."""
    connection = await Connection.open(host.port)
    end = time.monotonic() + 30
    whole = {"bottom": "0", "top": str(2**63 - 1)}
    while json.loads((await connection.request("GET", "/status/partitionrange")).body) == whole:
        if time.monotonic() > end:
            raise Failed("the hosts do not see each other")
        await asyncio.sleep(0.1)
    connection.close()


async def _rate(
    bench: Bench, where: list[Suite], step: Callable[[Connection], Awaitable[int]]
) -> float:
    """What all steps came to in a second, over a connection to each of the suites."""
    connections = [await Connection.open(suite.port) for suite in where]
    started = time.perf_counter()
    end = started + bench.seconds

    async def repeat(connection: Connection) -> int:
        done = 0
        while time.perf_counter() < end:
            done += await step(connection)
        return done

    done = sum(await asyncio.gather(*map(repeat, connections)))
    seconds = time.perf_counter() - started
    for connection in connections:
        connection.close()
    return float(done / seconds)
