"""fsck and doctor know every file that any part of fsmq creates in a spool."""

from __future__ import annotations

import json
import os
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from fsmq import Client
from fsmq.dyno import DynoQueues
from fsmq.dyno import Message as DynoMessage
from fsmq.spool import Spool
from tests.cli.helpers import Command
from tests.harness.suite import Suite, eventually
from tests.http.sqs.clients import client as amazon

# Findings of doctor that depend on the machine, or on the queues of this test.
EXPECTED = {"paused", "filesystem", "space", "inodes", "access", "dead letters", "sync"}


def ask(url: str, method: str = "GET", body: Any = None, kind: str = "application/json") -> bytes:
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": kind}, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return bytes(answer.read())


def use_native(url: str) -> None:
    with Client(url) as client:
        for kind in ("plain", "index", "fifo"):
            queue = f"of-{kind}"
            client.create_queue(queue, index=kind == "index", fifo=kind == "fifo")
            client.queue(queue).put(b"x", group="g" if kind == "fifo" else None)
            [message] = client.queue(queue).claim(wait=20)
            message.ack()
        limited = client.queue("limited", create=True)
        limited.configure(max_in_flight=3, max_rate=100, fetch_order="fair", max_depth=9)
        limited.put(b"x", delay=600)
        limited.put(b"y", group="a")
        limited.claim(2)
        topic = client.topic("news", create=True)
        topic.subscribe("of-plain")
        topic.publish(b"x")
        log = client.log("visits", create=True)
        log.publish(b"x")
        log.channel("mailer", create=True).claim()
        client.schedule("nightly").define("*/2 * * * * *", "of-plain", b"x")


def use_amazon(url: str) -> None:
    sqs, sns = amazon(url), amazon(url, service="sns")
    dead = sqs.create_queue(QueueName="aws-dead", tags={"team": "a"})["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]
    redrive = json.dumps({"deadLetterTargetArn": arn["QueueArn"], "maxReceiveCount": 3})
    attributes = {"RedrivePolicy": redrive, "ReceiveMessageWaitTimeSeconds": "3"}
    sqs.create_queue(QueueName="aws", Attributes=attributes)
    fifo = sqs.create_queue(QueueName="aws.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    sqs.send_message(QueueUrl=fifo, MessageBody="x", MessageGroupId="g", MessageDeduplicationId="d")
    sqs.receive_message(QueueUrl=fifo, WaitTimeSeconds=5, ReceiveRequestAttemptId="a")
    tags = [{"Key": "team", "Value": "a"}]
    topic = sns.create_topic(Name="aws-news", Tags=tags, Attributes={"DisplayName": "n"})
    sns.subscribe(TopicArn=topic["TopicArn"], Protocol="sqs", Endpoint=arn["QueueArn"])
    sns.publish(TopicArn=topic["TopicArn"], Message="x")


def use_emodb(url: str) -> None:
    for service in ("queue", "dedupq"):
        ask(f"{url}/{service}/1/emo/send", "POST", {"a": 1})
        eventually(lambda service=service: ask(f"{url}/{service}/1/emo/poll?ttl=30") != b"[]")
        ask(f"{url}/{service}/1/emo/size")
        ask(f"{url}/{service}/1/_move?from=emo&to=other", "POST")


def use_dynamiq(url: str) -> None:
    ask(f"{url}/topics/dyn-news", "PUT")
    ask(f"{url}/queues/dyn-queue", "PUT")
    ask(f"{url}/topics/dyn-news/queues/dyn-queue", "PUT")


def use_folder(root: Path, command: Command) -> None:
    with Spool(root, delivers=False, journal=True) as spool:
        DynoQueues(spool, zone="a").get("tasks").push([DynoMessage("1", "x")])
        spool.queue("of-plain").put(b"z")
    command("queue", "pause", "limited")
    command("mv", "of-plain", "emo")


def open_pages(url: str) -> None:
    pages = ("", "q/of-plain", "q/limited/settings", "topics/news", "schedules", "cluster", "work")
    for page in pages:
        ask(f"{url}/_ui/{page}")
    ask(f"{url}/_metrics")


def test_fsck_and_doctor_report_no_file_of_fsmq(tmp_path: Path) -> None:
    root = tmp_path / "mq"
    with Suite(root, mq_options=["--history=on"]) as suite:
        command = Command(root)
        use_native(suite.url)
        use_amazon(suite.url)
        use_emodb(suite.url)
        use_dynamiq(suite.url)
        use_folder(root, command)
        open_pages(suite.url)
        assert (root / "config" / ".ui").exists()
        # Age the files: a file that may be in use is not reported.
        for path in (root / "config").iterdir():
            with suppress(FileNotFoundError):  # a lock of the schedule
                os.utime(path, (1_700_000_000, 1_700_000_000))
        found = json.loads(command("fsck", "--json", code=None).stdout)
        assert found["findings"] == []
        health = json.loads(command("doctor", "--json", code=None).stdout)
        problems = [f for f in health["findings"] if f["health"] != "ok"]
        assert [f for f in problems if f["name"] not in EXPECTED] == []
