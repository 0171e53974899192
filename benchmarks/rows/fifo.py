"""Fifo queues: posts by many at once, and claims with many messages waiting in many groups."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from fsmq.spool import Spool
from fsmq.spool.layout.uuids import group_bits, now_ticks, sequenced_uuid7
from tests.harness.suite import Suite

from .. import fill
from ..bench import QUEUE, Bench
from ..http_client import Connection, run
from ..load import Failed
from ..measure import Bar, Measure, Outcome, rate, ratios, side_by_side

ORDERED = "ordered"
_GROUPS = 1_000
_SENDERS = 64
_CONSUMERS = 16
_BATCH = 10
_CLAIM = f"fifo queue: claim of {_BATCH} and ack, {_GROUPS:,} groups"
Step = Callable[[Connection], Awaitable[int]]


def send(bench: Bench) -> Outcome:
    """Posts to a thousand groups over 64 connections, against posts to a standard queue."""
    body = bytes(bench.sizes.body)
    groups = itertools.cycle(range(_GROUPS))

    async def post(connection: Connection, path: str) -> int:
        answer = await connection.request("POST", path, body)
        if answer.status != 201:
            raise Failed(f"a post was answered {answer.status}")
        return 1

    def ordered(connection: Connection) -> Awaitable[int]:
        return post(connection, f"/{ORDERED}/messages?group={next(groups)}")

    def standard(connection: Connection) -> Awaitable[int]:
        return post(connection, f"/{QUEUE}/messages")

    runs = side_by_side(
        bench.repeat,
        {
            "standard": lambda: _run(bench, standard, _SENDERS),
            "fifo": lambda: _run(bench, ordered, _SENDERS),
        },
    )
    return Outcome(
        [
            Measure(
                f"fifo queue: POST to {_GROUPS:,} groups, {_SENDERS} connections, against others",
                ratios(runs["fifo"], runs["standard"]),
                bar=Bar(">=", 0.5),
                measured=rate(runs["fifo"]),
                against=rate(runs["standard"]),
            )
        ]
    )


def receive(bench: Bench) -> Outcome:
    """Claims of 10 with their acknowledgements, by the depth."""
    few, many = bench.sizes.ordered // 10, bench.sizes.ordered
    runs = side_by_side(
        bench.repeat,
        {
            "few": lambda: _run(bench, _claim_and_ack, _CONSUMERS, few),
            "many": lambda: _run(bench, _claim_and_ack, _CONSUMERS, many),
        },
    )
    bar = Bar(">=", 2_000.0, "/s")
    return Outcome(
        [
            Measure(f"{_CLAIM}, {many:,} waiting", runs["many"], unit="/s", bar=bar),
            _against(f"{many:,} waiting, against {few:,}", runs["many"], runs["few"]),
        ]
    )


def large(bench: Bench) -> Outcome:
    """Claims of 10 with their acknowledgements, beside one group with very much waiting."""
    few, many = bench.sizes.ordered // 10, bench.sizes.one_group
    runs = side_by_side(
        bench.repeat,
        {
            "few": lambda: _run(bench, _claim_and_ack, _CONSUMERS, few),
            "large": lambda: _run(bench, _claim_and_ack, _CONSUMERS, few, many),
        },
    )
    what = f"{few:,} waiting, and {many:,} of one group in front of them, against without these"
    return Outcome([_against(what, runs["large"], runs["few"])])


def _against(what: str, measured: Sequence[float], against: Sequence[float]) -> Measure:
    return Measure(
        f"{_CLAIM}, {what}",
        ratios(measured, against),
        bar=Bar(">=", 0.8),
        measured=rate(measured),
        against=rate(against),
    )


async def _claim_and_ack(connection: Connection) -> int:
    answer = await connection.request("GET", f"/{ORDERED}/messages?count={_BATCH}")
    if answer.status == 204:
        return 0
    ids = [one["id"] for one in json.loads(answer.body)["messages"]]
    acked = await connection.request("POST", f"/{ORDERED}/ack", json.dumps({"ids": ids}).encode())
    if (answer.status, acked.status) != (200, 200):
        raise Failed(f"claim and ack were answered {answer.status} and {acked.status}")
    return len(ids)


def _ids(spread: int, large: int) -> Iterator[str]:
    """Ids of messages of many groups, and in front of them those of one."""
    tick = now_ticks(time.time()) - spread - large
    bits = [group_bits(ORDERED, str(number)) for number in range(_GROUPS)]
    for number in range(large):
        yield sequenced_uuid7(tick + number, bits[0])
    for number in range(spread):
        yield sequenced_uuid7(tick + large + number, bits[number % _GROUPS])


def _run(bench: Bench, step: Step, connections: int, spread: int = 0, large: int = 0) -> float:
    """Messages a second."""

    def filled(root: Path) -> None:
        with Spool(root, sync="none") as spool:
            spool.create_queue(ORDERED, fifo=True)
        fill.files(root / "queues" / ORDERED, _ids(spread, large), bench.sizes.body)

    with bench.suite(fill=filled) as suite:
        return run(_rate(bench, suite, step, connections))


async def _rate(bench: Bench, suite: Suite, step: Step, number: int) -> float:
    opened = [await Connection.open(suite.port) for _ in range(number)]
    try:
        for _ in range(2):  # the first claim of each process lists the folder
            await asyncio.gather(*map(step, opened))
        begin = time.monotonic() + bench.warm_up
        end = begin + bench.seconds

        async def work(connection: Connection) -> int:
            done = 0
            while (now := time.monotonic()) < end:
                moved = await step(connection)
                done += moved if now >= begin else 0
            return done

        return sum(await asyncio.gather(*map(work, opened))) / bench.seconds
    finally:
        for connection in opened:
            connection.close()
