"""Concurrent sends are stored together and do not fail for each other."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import NoSuchQueue, Spool
from tests.harness.suite import Suite
from tests.http.served import Served
from tests.http.sqs.clients import JSON, QUERY, client

_SENDERS = 40


async def send_all(port: int, queue: str) -> list[tuple[int, Any]]:
    """Send a message on each of many connections at once; the answers."""
    pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(_SENDERS)]
    for number, (_, writer) in enumerate(pairs):
        given: dict[str, Any] = {"QueueUrl": queue, "MessageBody": f"message {number}"}
        if queue.endswith(".fifo"):
            given |= {"MessageGroupId": "g", "MessageDeduplicationId": str(number)}
        body = json.dumps(given).encode()
        head = (
            "POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.SendMessage\r\n"
            f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
    found = []
    for reader, writer in pairs:
        head_text, _, answer = (await reader.read()).partition(b"\r\n\r\n")
        found.append((int(head_text.split()[1]), json.loads(answer)))
        writer.close()
    return found


def received(sqs: Any, url: str, number: int) -> dict[str, str]:
    """The bodies of so many messages, by their ids."""
    found: dict[str, str] = {}
    while len(found) < number:
        told = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=20)
        assert told.get("Messages"), f"{len(found)} of {number} came"
        for one in told["Messages"]:
            found[one["MessageId"]] = one["Body"]
            sqs.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])
    return found


async def test_each_sender_gets_the_id_of_its_own_message(suite: Suite) -> None:
    sqs = client(suite.url)
    for queue, attributes in (("turns", {}), ("turns.fifo", {"FifoQueue": "true"})):
        url = sqs.create_queue(QueueName=queue, Attributes=attributes)["QueueUrl"]
        answers = await send_all(suite.port, queue)
        assert {status for status, _ in answers} == {200}
        sent = {told["MessageId"]: f"message {n}" for n, (_, told) in enumerate(answers)}
        assert len(sent) == _SENDERS
        assert received(sqs, url, _SENDERS) == sent


async def test_a_nearly_full_queue_accepts_some_of_many_sends(suite: Suite) -> None:
    sqs = client(suite.url)
    url = sqs.create_queue(QueueName="full")["QueueUrl"]
    change = urllib.request.Request(f"{suite.url}/full", b'{"max_depth": 10}', method="PATCH")
    urllib.request.urlopen(change).close()
    answers = await send_all(suite.port, "full")
    refused = [told for status, told in answers if status == 403]
    stored = [told["MessageId"] for status, told in answers if status == 200]
    assert len(stored) + len(refused) == _SENDERS
    assert {told["__type"] for told in refused} == {"com.amazonaws.sqs#RequestThrottled"}
    assert 1 <= len(stored) < _SENDERS
    assert set(received(sqs, url, len(stored))) == set(stored)


@pytest.mark.parametrize("protocol", [JSON, QUERY])
@pytest.mark.parametrize("mode", ["legacy", "standard"])
def test_clients_retry_a_batch_that_a_full_queue_refuses(
    suite: Suite, protocol: str, mode: str
) -> None:
    """Clients retry while consumers make room. The batch is stored once."""
    name = f"full-{protocol}-{mode}"
    sqs = client(suite.url, protocol, mode=mode, total_max_attempts=8)
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    change = urllib.request.Request(f"{suite.url}/{name}", b'{"max_depth": 10}', method="PATCH")
    urllib.request.urlopen(change).close()
    batch = [{"Id": str(number), "MessageBody": f"message {number}"} for number in range(10)]
    sqs.send_message_batch(QueueUrl=url, Entries=batch[:4])
    made = []

    def make_room(**told: Any) -> None:
        if not made and told["response"][0].status_code >= 400:
            made.append(received(client(suite.url), url, 4))

    sqs.meta.events.register_first("needs-retry.sqs.SendMessageBatch", make_room)
    answer = sqs.send_message_batch(QueueUrl=url, Entries=batch)
    assert len(answer["Successful"]) == 10
    assert len(made) == 1
    stored = received(sqs, url, 10)
    assert sorted(stored.values()) == [f"message {number}" for number in range(10)]


def test_a_batch_of_visibility_changes_needs_one_sync(tmp_path: Path) -> None:
    def syncs() -> float:
        with urllib.request.urlopen(f"{suite.url}/_metrics") as answer:
            lines = answer.read().decode().splitlines()
        counts = [line for line in lines if line.startswith("fsmq_sync_group_changes_count")]
        return sum(float(line.split()[-1]) for line in counts)

    with Suite(tmp_path / "mq") as suite:
        sqs = client(suite.url)
        url = sqs.create_queue(QueueName="batch")["QueueUrl"]
        batch = [{"Id": str(number), "MessageBody": str(number)} for number in range(10)]
        sqs.send_message_batch(QueueUrl=url, Entries=batch)
        handles: list[str] = []
        while len(handles) < 10:
            told = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=20)
            handles += [one["ReceiptHandle"] for one in told["Messages"]]
        for seconds in (60, 0):
            entries = [
                {"Id": str(number), "ReceiptHandle": handle, "VisibilityTimeout": seconds}
                for number, handle in enumerate(handles)
            ]
            before = syncs()
            told = sqs.change_message_visibility_batch(QueueUrl=url, Entries=entries)
            assert [one["Id"] for one in told["Successful"]] == [one["Id"] for one in entries]
            assert syncs() - before <= 2, seconds


async def test_concurrent_equal_creations_all_succeed(tmp_path: Path) -> None:
    body = b'{"QueueName": "q", "Attributes": {"VisibilityTimeout": "31"}}'
    head = "POST / HTTP/1.1\r\nX-Amz-Target: AmazonSQS.CreateQueue\r\nContent-Length: 61\r\n"
    (tmp_path / "keys").touch(0o600)
    (tmp_path / "keys").write_text('[anonymous]\nadmin = ["q"]\n')
    with Spool(tmp_path / "root", sync="none") as spool:
        async with Served(spool, tmp_path / "keys") as served:
            for _ in range(150):
                asked = asyncio.gather(*(served.ask(head, body) for _ in range(4)))
                with suppress(NoSuchQueue):
                    await asyncio.to_thread(spool.delete_queue, "q")
                assert {one.body.count(b"QueueUrl") for one in await asked} == {1}
