"""Amazon SQS's dialect: sends one by one and in batches, receives with deletes; rivals beside it.

The rivals keep all in memory, and lose it when they end.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import fill, rivals
from ..bench import QUEUE, Bench
from ..http_client import Answer, Connection, run
from ..load import Failed
from ..measure import Bar, Measure, Outcome, rate, ratios, side_by_side

_BATCH = 10
_BATCHERS = 16
_SENDERS = 64
_RIVALS = (rivals.ELASTICMQ, rivals.MOTO)
# As SDKs send it; moto knows by it which service is asked.
_SIGNED = (
    "Authorization: AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/sqs/aws4_request,"
    " SignedHeaders=host, Signature=none\r\n"
)


class Client:
    """A connection to a server of SQS, and the URL of its queue."""

    def __init__(self, port: int, url: str = "") -> None:
        self.port = port
        self.url = url
        self._connection: Connection | None = None

    async def request(self, path: str, body: bytes, headers: str = "") -> Answer:
        """POST something; on another connection where the server has closed the one before."""
        if self._connection is None:
            self._connection = await Connection.open(self.port)
        answer = await self._connection.request("POST", path, body, headers)
        if answer.header("Connection") == "close":
            self.close()
        return answer

    async def ask(self, action: str, members: Mapping[str, Any]) -> dict[str, Any]:
        """Ask for an action in JSON. Raises Failed."""
        body = json.dumps({"QueueUrl": self.url, **members}).encode()
        headers = "Content-Type: application/x-amz-json-1.0\r\n" + _SIGNED
        headers += f"X-Amz-Target: AmazonSQS.{action}\r\n"
        answer = await self.request("/", body, headers)
        if answer.status != 200:
            raise Failed(f"{action} was answered {answer.status}: {answer.body[:200]!r}")
        found: dict[str, Any] = json.loads(answer.body)
        return found

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


Step = Callable[[Client], Awaitable[int]]


def send_batches(bench: Bench) -> Outcome:
    """SendMessageBatch of 10 messages of 1 KiB over 16 connections, and rivals' beside it."""
    step = _batches(bench)
    runs = side_by_side(
        bench.repeat,
        {
            "mq": lambda: _run(bench, step, _BATCHERS),
            **_beside(bench, step, _BATCHERS),
        },
    )
    name = f"SQS: SendMessageBatch of {_BATCH}, {_BATCHERS} connections"
    bar = Bar(">=", 10_000.0, "/s")
    return Outcome([Measure(name, runs["mq"], unit="/s", bar=bar), *_others(name, runs)])


def send(bench: Bench) -> Outcome:
    """SendMessage over 64 connections, against native posts by the same client; rivals beside."""
    body = "x" * bench.sizes.body

    async def post(client: Client) -> int:
        answer = await client.request(f"/{QUEUE}/messages", body.encode())
        if answer.status != 201:
            raise Failed(f"a post was answered {answer.status}")
        return 1

    async def step(client: Client) -> int:
        await client.ask("SendMessage", {"MessageBody": body})
        return 1

    runs = side_by_side(
        bench.repeat,
        {
            "native": lambda: _run(bench, post, _SENDERS),
            "sqs": lambda: _run(bench, step, _SENDERS),
            **_beside(bench, step, _SENDERS),
        },
    )
    name = f"SQS: SendMessage, {_SENDERS} connections"
    against = Measure(
        f"{name}, against native posts",
        ratios(runs["sqs"], runs["native"]),
        bar=Bar(">=", 0.7),
        measured=rate(runs["sqs"]),
        against=rate(runs["native"]),
    )
    return Outcome([against, *_others(name, runs)])


def receive_and_delete(bench: Bench) -> Outcome:
    """ReceiveMessage of 10 and DeleteMessageBatch of 10, 16 connections; rivals beside it."""

    async def step(client: Client) -> int:
        received = await client.ask("ReceiveMessage", {"MaxNumberOfMessages": _BATCH})
        messages = received.get("Messages", [])
        if not messages:
            return 0  # all are done
        entries = [
            {"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]} for n, one in enumerate(messages)
        ]
        await client.ask("DeleteMessageBatch", {"Entries": entries})
        return len(messages)

    many = bench.sizes.contested
    runs = side_by_side(
        bench.repeat,
        {
            "mq": lambda: _run(bench, step, _BATCHERS, many),
            **_beside(bench, step, _BATCHERS, many),
        },
    )
    name = f"SQS: ReceiveMessage and DeleteMessageBatch of {_BATCH}, {_BATCHERS} connections"
    bar = Bar(">=", 6_000.0, "/s")
    return Outcome([Measure(name, runs["mq"], unit="/s", bar=bar), *_others(name, runs)])


def _batches(bench: Bench) -> Step:
    body = "x" * bench.sizes.body
    entries = [{"Id": str(n), "MessageBody": body} for n in range(_BATCH)]

    async def step(client: Client) -> int:
        await client.ask("SendMessageBatch", {"Entries": entries})
        return _BATCH

    return step


def _others(name: str, runs: Mapping[str, Sequence[float]]) -> list[Measure]:
    return [
        Measure(
            f"{name}: {rival}",
            list(runs.get(rival, [])),
            unit="/s",
            note=rivals.missing(rival) or "in memory",
        )
        for rival in _RIVALS
    ]


def _beside(
    bench: Bench, step: Step, connections: int, messages: int = 0
) -> dict[str, Callable[[], float]]:
    """What measures those rivals that are installed."""

    def measured(rival: str) -> Callable[[], float]:
        async def load(port: int) -> float:
            first = Client(port)
            url = (await first.ask("CreateQueue", {"QueueName": QUEUE}))["QueueUrl"]
            first.close()
            filler, most = (_batches(bench), messages) if messages else (step, None)
            await _load(port, url, filler, connections, seconds=bench.sizes.rival_fill_s, most=most)
            return await _load(port, url, step, connections, seconds=bench.seconds)

        def once() -> float:
            with rivals.sqs_server(rival) as port:
                return run(load(port))

        return once

    return {rival: measured(rival) for rival in _RIVALS if not rivals.missing(rival)}


def _run(bench: Bench, step: Step, connections: int, messages: int = 0) -> float:
    """Messages a second."""

    def filled(root: Path) -> None:
        fill.ready(root, messages, bench.sizes.body)

    url = f"http://localhost/000000000000/{QUEUE}"
    seconds, warm_up = bench.seconds, bench.warm_up
    with bench.suite(fill=filled if messages else None) as suite:
        return run(_load(suite.port, url, step, connections, seconds=seconds, warm_up=warm_up))


async def _load(
    port: int,
    url: str,
    step: Step,
    number: int,
    *,
    seconds: float,
    warm_up: float = 0.0,
    most: int | None = None,
) -> float:
    """Do steps over some connections: messages a second, behind the warm-up, until there are none.

    most: end when so many are done.
    """
    opened = [Client(port, url) for _ in range(number)]
    begin = last = time.monotonic() + warm_up
    end = begin + seconds
    done = 0

    async def work(client: Client) -> None:
        nonlocal done, last
        while (now := time.monotonic()) < end and (most is None or done < most):
            moved = await step(client)
            if moved and now >= begin:
                done += moved
                last = time.monotonic()

    try:
        await asyncio.gather(*map(work, opened))
        return done / (last - begin) if done else 0.0
    finally:
        for client in opened:
            client.close()
