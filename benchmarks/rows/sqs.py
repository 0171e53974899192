"""Amazon SQS's dialect: sends one by one and in batches, receives with deletes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.harness.suite import Suite

from .. import fill
from ..bench import QUEUE, Bench
from ..http_client import Connection, run
from ..load import Failed
from ..measure import Bar, Measure, Outcome, rate, ratios, side_by_side

_BATCH = 10
_BATCHERS = 16
_SENDERS = 64
Step = Callable[[Connection], Awaitable[int]]


def send_batches(bench: Bench) -> Outcome:
    """SendMessageBatch of 10 messages of 1 KiB over 16 connections."""
    body = "x" * bench.sizes.body
    entries = [{"Id": str(n), "MessageBody": body} for n in range(_BATCH)]

    async def step(connection: Connection) -> int:
        await _ask(connection, "SendMessageBatch", {"Entries": entries})
        return _BATCH

    rates = [_run(bench, step, _BATCHERS) for _ in range(bench.repeat)]
    name = f"SQS: SendMessageBatch of {_BATCH}, {_BATCHERS} connections"
    return Outcome([Measure(name, rates, unit="/s", bar=Bar(">=", 10_000.0, "/s"))])


def send(bench: Bench) -> Outcome:
    """SendMessage over 64 connections, against native posts by the same client."""
    body = "x" * bench.sizes.body

    async def post(connection: Connection) -> int:
        answer = await connection.request("POST", f"/{QUEUE}/messages", body.encode())
        if answer.status != 201:
            raise Failed(f"a post was answered {answer.status}")
        return 1

    async def step(connection: Connection) -> int:
        await _ask(connection, "SendMessage", {"MessageBody": body})
        return 1

    runs = side_by_side(
        bench.repeat,
        {
            "native": lambda: _run(bench, post, _SENDERS),
            "sqs": lambda: _run(bench, step, _SENDERS),
        },
    )
    return Outcome(
        [
            Measure(
                f"SQS: SendMessage, {_SENDERS} connections, against native posts",
                ratios(runs["sqs"], runs["native"]),
                bar=Bar(">=", 0.7),
                measured=rate(runs["sqs"]),
                against=rate(runs["native"]),
            )
        ]
    )


def receive_and_delete(bench: Bench) -> Outcome:
    """ReceiveMessage of 10 and DeleteMessageBatch of 10, every step durable, 16 connections."""

    async def step(connection: Connection) -> int:
        given = {"MaxNumberOfMessages": _BATCH}
        received = await _ask(connection, "ReceiveMessage", given)
        messages = received.get("Messages", [])
        if not messages:
            return 0  # all are done
        entries = [
            {"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]} for n, one in enumerate(messages)
        ]
        await _ask(connection, "DeleteMessageBatch", {"Entries": entries})
        return len(messages)

    rates = []
    for _ in range(bench.repeat):
        rates.append(_run(bench, step, _BATCHERS, messages=bench.sizes.contested))
    name = f"SQS: ReceiveMessage and DeleteMessageBatch of {_BATCH}, {_BATCHERS} connections"
    return Outcome([Measure(name, rates, unit="/s", bar=Bar(">=", 6_000.0, "/s"))])


async def _ask(connection: Connection, action: str, members: dict[str, Any]) -> dict[str, Any]:
    body = json.dumps({"QueueUrl": f"http://localhost/000000000000/{QUEUE}", **members}).encode()
    headers = f"X-Amz-Target: AmazonSQS.{action}\r\nContent-Type: application/x-amz-json-1.0\r\n"
    answer = await connection.request("POST", "/", body, headers)
    if answer.status != 200:
        raise Failed(f"{action} was answered {answer.status}: {answer.body[:200]!r}")
    found: dict[str, Any] = json.loads(answer.body)
    return found


def _run(bench: Bench, step: Step, connections: int, messages: int = 0) -> float:
    """Messages a second."""

    def filled(root: Path) -> None:
        fill.ready(root, messages, bench.sizes.body)

    with bench.suite(fill=filled if messages else None) as suite:
        return run(_rate(bench, suite, step, connections))


async def _rate(bench: Bench, suite: Suite, step: Step, number: int) -> float:
    opened = [await Connection.open(suite.port) for _ in range(number)]
    begin = time.monotonic() + bench.warm_up
    end = begin + bench.seconds

    async def work(connection: Connection) -> int:
        done = 0
        while (now := time.monotonic()) < end:
            moved = await step(connection)
            done += moved if now >= begin else 0
        return done

    try:
        return sum(await asyncio.gather(*map(work, opened))) / bench.seconds
    finally:
        for connection in opened:
            connection.close()
