"""EmoDB's dialect: batches sent, batches polled and acknowledged, and a poll of a long queue."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import count, repeat
from pathlib import Path

from tests.harness.suite import Suite

from .. import fill
from ..bench import QUEUE, Bench, make_queue
from ..floor import floor
from ..http_client import Connection, run
from ..load import Failed
from ..measure import Bar, Measure, Outcome, number, rate, ratios, side_by_side

_BATCH = 100
_CONNECTIONS = 8
_FEW = "few"


def send_batches(bench: Bench) -> Outcome:
    """sendbatch of 100 messages of 1 KiB over 8 connections, against raw groups of files."""

    def groups() -> float:
        with bench.place.fresh("floor") as folder:
            return floor(folder, bench.seconds, bench.sizes.body, _BATCH)

    def batches() -> float:
        with bench.suite() as suite:
            return run(_send(bench, suite, "queue", _equal(bench.sizes.body)))

    runs = side_by_side(bench.repeat, {"groups": groups, "fsmq": batches})
    return Outcome(
        [
            Measure(
                f"EmoDB: sendbatch of {_BATCH}, {_CONNECTIONS} connections",
                runs["fsmq"],
                unit="/s",
                bar=Bar(">=", 18_070.0, "/s"),
                measured=rate(runs["fsmq"]),
                against=rate(runs["groups"]),
                note=f"against raw groups of {_BATCH} files with one syncfs",
            )
        ]
    )


def send_dedup_batches(bench: Bench) -> Outcome:
    """The same to dedup queues: each message's own id is reserved and looked up."""
    rates = []
    for _ in range(bench.repeat):
        with bench.suite() as suite:
            rates.append(run(_send(bench, suite, "dedupq", _different(bench.sizes.body))))
    name = f"EmoDB: dedup sendbatch of {_BATCH} different messages, {_CONNECTIONS} connections"
    return Outcome([Measure(name, rates, unit="/s")])


def poll_and_ack(bench: Bench) -> Outcome:
    """poll(100) and ack(100), every step durable, over 8 connections."""

    def filled(root: Path) -> None:
        fill.ready(root, bench.sizes.contested, bench.sizes.body)

    rates = []
    for _ in range(bench.repeat):
        with bench.suite(fill=filled) as suite:
            rates.append(run(_consume(bench, suite)))
    return Outcome(
        [
            Measure(
                f"EmoDB: poll({_BATCH}) and ack({_BATCH}), {_CONNECTIONS} connections",
                rates,
                unit="/s",
                bar=Bar(">=", 13_390.0, "/s"),
            )
        ]
    )


def depth(bench: Bench) -> Outcome:
    """A poll with many messages waiting against one with few."""
    sizes = bench.sizes

    def filled(root: Path) -> None:
        make_queue(root, _FEW)
        fill.ready(root, sizes.few + 10 * bench.repeat * sizes.fetches, 100, _FEW)
        fill.ready(root, sizes.many, 100)

    with bench.suite(fill=filled) as suite:
        few, many = run(_alternate(bench, suite))
    return Outcome(
        [
            Measure(
                f"EmoDB: one poll(10), {sizes.many:,} waiting against {sizes.few:,}",
                ratios(many, few),
                bar=Bar("<=", 1.5),
                measured=number(statistics.median(many), "ms"),
                against=number(statistics.median(few), "ms"),
            )
        ]
    )


async def _ask(connection: Connection, method: str, path: str, body: bytes = b"") -> bytes:
    headers = "Content-Type: application/json\r\n" if body else ""
    answer = await connection.request(method, path, body, headers)
    if answer.status != 200:
        raise Failed(f"{method} {path} was answered {answer.status}: {answer.body[:200]!r}")
    return answer.body


async def _send(bench: Bench, suite: Suite, service: str, batches: Iterator[bytes]) -> float:
    """Messages a second."""

    async def sender(connection: Connection) -> int:
        path = f"/{service}/1/{QUEUE}/sendbatch"
        await _ask(connection, "POST", path, next(batches))
        return _BATCH

    return await _rate(bench, suite, sender)


def _equal(size: int) -> Iterator[bytes]:
    return repeat(_json([{"payload": "x" * (size - 14)}] * _BATCH))


def _different(size: int) -> Iterator[bytes]:
    filler = "x" * (size - 29)
    for start in count(10**8, _BATCH):
        yield _json([{"id": start + n, "payload": filler} for n in range(_BATCH)])


def _json(messages: list[dict[str, object]]) -> bytes:
    return json.dumps(messages, separators=(",", ":")).encode()


async def _consume(bench: Bench, suite: Suite) -> float:
    """Messages a second, polled and acknowledged."""

    async def consumer(connection: Connection) -> int:
        path = f"/queue/1/{QUEUE}"
        polled = json.loads(await _ask(connection, "GET", f"{path}/poll?ttl=3600&limit={_BATCH}"))
        ids = json.dumps([message["id"] for message in polled]).encode()
        await _ask(connection, "POST", f"{path}/ack", ids)
        return len(polled)

    return await _rate(bench, suite, consumer)


async def _rate(bench: Bench, suite: Suite, step: Callable[[Connection], Awaitable[int]]) -> float:
    connections = [await Connection.open(suite.port) for _ in range(_CONNECTIONS)]
    for connection in connections:
        await step(connection)
    started = time.perf_counter()
    end = started + bench.seconds

    async def go_on(connection: Connection) -> int:
        done = 0
        while time.perf_counter() < end:
            done += await step(connection)
        return done

    done = sum(await asyncio.gather(*map(go_on, connections)))
    seconds = time.perf_counter() - started
    for connection in connections:
        connection.close()
    return done / seconds


async def _alternate(bench: Bench, suite: Suite) -> tuple[list[float], list[float]]:
    connection = await Connection.open(suite.port)
    medians: dict[str, list[float]] = {_FEW: [], QUEUE: []}
    for queue in medians:
        await _ask(connection, "GET", f"/queue/1/{queue}/poll?ttl=3600")
    for _ in range(bench.repeat):
        times: dict[str, list[float]] = {queue: [] for queue in medians}
        for _ in range(bench.sizes.fetches):
            for queue in medians:
                started = time.perf_counter()
                await _ask(connection, "GET", f"/queue/1/{queue}/poll?ttl=3600")
                times[queue].append((time.perf_counter() - started) * 1000)
        for queue in medians:
            medians[queue].append(statistics.median(times[queue]))
    connection.close()
    return medians[_FEW], medians[QUEUE]
