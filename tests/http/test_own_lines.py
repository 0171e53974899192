"""No dialect lets callers write header lines that are reserved for fsmq.

They have the id of a message in an index, and its group. Forged ones could
act on the messages of others.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fsmq import Client
from fsmq.spool import InvalidValue, LogEntry, NewMessage, Spool
from tests.cli.helpers import Command
from tests.harness.suite import Suite
from tests.http.helpers import Wire
from tests.http.sqs.clients import JSON, QUERY, client

SPELLINGS = ("fsmq.id", "fsmq.name", "FSMQ.Group", "Fsmq.anything")


@pytest.fixture
def wire(suite: Suite) -> Iterator[Wire]:
    with Wire(suite.url) as wire:
        yield wire


@pytest.mark.parametrize("name", SPELLINGS)
def test_posts_publishes_and_batches_cannot_write_one(wire: Wire, queue: str, name: str) -> None:
    assert wire.ask("PUT", f"/_topics/{queue}").status == 201
    assert wire.ask("PUT", f"/_topics/{queue}/queues/{queue}").status == 201
    header = {f"X-Message-Attribute-{name}": "x"}
    many = json.dumps([{"body": "1", "attributes": {name: "x"}}]).encode()
    schedule = json.dumps({"queue": queue, "cron": "0 0 * * *", "attributes": {name: "x"}})
    asked: list[tuple[str, str, bytes, dict[str, str]]] = [
        ("POST", f"/{queue}/messages", b"x", header),
        ("POST", f"/{queue}/messages", b"x" * 100_000, header),
        ("POST", f"/_topics/{queue}/messages", b"x", header),
        ("POST", f"/{queue}/batch", many, {}),
        ("PUT", f"/_schedules/{queue}", schedule.encode(), {}),
    ]
    for method, path, body, headers in asked:
        answer = wire.ask(method, path, headers, body)
        assert (answer.status, answer.json["field"]) == (400, "attributes"), path
    assert wire.ask("GET", f"/{queue}/messages").status == 204


@pytest.mark.parametrize("name", SPELLINGS)
def test_logs_refuse_them(wire: Wire, queue: str, name: str) -> None:
    """Else copies from the log into a queue would be refused for ever."""
    assert wire.ask("PUT", f"/_logs/{queue}").status == 201
    answer = wire.ask(
        "POST", f"/_logs/{queue}/messages", {f"X-Message-Attribute-{name}": "x"}, b"x"
    )
    assert (answer.status, answer.json["field"]) == (400, "attributes")


@pytest.mark.parametrize("name", SPELLINGS)
def test_sends_of_amazons_clients_cannot_write_one(suite: Suite, queue: str, name: str) -> None:
    sqs: Any = client(suite.url)
    url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
    attributes = {name: {"DataType": "String", "StringValue": "x"}}
    with pytest.raises(sqs.exceptions.ClientError, match="must not begin with fsmq"):
        sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=attributes)


@pytest.mark.parametrize("protocol", [JSON, QUERY])
@pytest.mark.parametrize("name", SPELLINGS)
def test_batches_of_amazons_clients_cannot_write_one(
    suite: Suite, queue: str, name: str, protocol: str
) -> None:
    sqs: Any = client(suite.url, protocol)
    sns: Any = client(suite.url, service="sns")
    url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
    arn = sns.create_topic(Name=queue)["TopicArn"]
    there = f"arn:aws:sqs:us-east-1:000000000000:{queue}"
    sns.subscribe(
        TopicArn=arn, Protocol="sqs", Endpoint=there, Attributes={"RawMessageDelivery": "true"}
    )
    attributes = {name: {"DataType": "String", "StringValue": "x"}}
    entry = {"Id": "1", "MessageAttributes": attributes}
    sent = sqs.send_message_batch(QueueUrl=url, Entries=[{**entry, "MessageBody": "x"}])
    assert [one["Id"] for one in sent["Failed"]] == ["1"]
    with pytest.raises(sns.exceptions.ClientError, match="begin with fsmq"):
        sns.publish(TopicArn=arn, Message="x", MessageAttributes=attributes)
    with pytest.raises(sns.exceptions.ClientError, match="begin with fsmq"):
        sns.publish_batch(TopicArn=arn, PublishBatchRequestEntries=[{**entry, "Message": "x"}])
    assert "Messages" not in sqs.receive_message(QueueUrl=url)


@pytest.mark.parametrize("name", SPELLINGS)
def test_events_and_other_dialects_cannot_write_one(
    wire: Wire, suite: Suite, queue: str, name: str
) -> None:
    event = {"id": "1", "source": "s", "specversion": "1.0", "type": "t", name.lower(): "x"}
    events = {"Content-Type": "application/cloudevents-batch+json"}
    header = {f"X-Message-Attribute-{name}": "x"}
    with Spool(suite.root) as spool:
        spool.topic(queue, create=True).subscribe(queue)
    asked: list[tuple[str, str, bytes, dict[str, str]]] = [
        ("POST", f"/{queue}/batch", json.dumps([event]).encode(), events),
        ("POST", f"/{queue}/messages", b"x", {f"ce-{name}": "x"}),
        ("PUT", f"/queues/{queue}", b"x", header),
        ("PUT", f"/topics/{queue}/message", b"x", header),
    ]
    for method, path, body, headers in asked:
        assert 400 <= wire.ask(method, path, headers, body).status < 500, path
    assert wire.ask("GET", f"/{queue}/messages").status == 204


@pytest.mark.parametrize("name", SPELLINGS)
def test_the_library_and_the_client_cannot_write_one(suite: Suite, queue: str, name: str) -> None:
    of = {name: "x"}
    entry = LogEntry(b"x", attributes=of)
    with Spool(suite.root) as spool, Client(suite.url) as server:
        spool.topic(queue, create=True).subscribe(queue)
        for place in (spool, server):
            place.log(queue, create=True)
            asked: list[Callable[[], object]] = [
                partial(place.queue(queue).put, b"x", attributes=of),
                partial(place.queue(queue).put_many, [NewMessage(b"x", attributes=of)]),
                partial(place.topic(queue).publish, b"x", attributes=of),
                partial(place.log(queue).publish, b"x", attributes=of),
                partial(place.log(queue).publish_many, [entry]),
                partial(place.schedule(queue).define, "@daily", queue, attributes=of),
            ]
            for ask in asked:
                with pytest.raises(InvalidValue, match="begins with fsmq"):
                    ask()
        assert spool.counts(queue).total == 0


@pytest.mark.parametrize("name", SPELLINGS)
def test_puts_by_id_cannot_write_one(tmp_path: Path, name: str) -> None:
    with Spool(tmp_path / "mq", sync="none") as spool:
        spool.create_queue("jobs", index=True)
        jobs = spool.indexed("jobs")
        jobs.upsert([NewMessage(b"first", id="A")])
        for ask in (
            lambda: jobs.upsert([NewMessage(b"x", id="A", attributes={name: "x"})]),
            lambda: jobs.postpone("A", 60, {name: "x"}),
        ):
            with pytest.raises(InvalidValue, match="begins with fsmq"):
                ask()
        seen = jobs.find("A")
        assert seen is not None
        assert (seen.body, dict(seen.attributes)) == (b"first", {})


def test_the_command_line_cannot_write_one(suite: Suite, queue: str) -> None:
    for at in (suite.url, suite.root):
        done = Command(at)("put", queue, "-b", "x", "-a", "FSMQ.id=A", code=None)
        assert done.returncode != 0
        assert b"begins with fsmq" in done.stderr


def test_a_message_can_be_copied_with_its_attributes(tmp_path: Path) -> None:
    """The copy of a message with an own id is another message."""
    with Spool(tmp_path / "mq", sync="none") as spool:
        spool.create_queue("jobs", index=True)
        jobs = spool.indexed("jobs")
        jobs.upsert([NewMessage(b"first", id="A", attributes={"color": "red"})])
        spool.deliver()
        seen = jobs.find("A")
        assert seen is not None
        assert (seen.given_id, dict(seen.attributes)) == ("A", {"color": "red"})
        spool.queue("jobs").put(b"copy", attributes=seen.attributes)
        spool.deliver()
        assert sorted(m.body for m in spool.queue("jobs").claim(9)) == [b"copy", b"first"]
        with pytest.raises(InvalidValue, match="begins with fsmq"):
            spool.queue("jobs").put(b"forged", attributes={"fsmq.id": "A"})


def test_a_forged_file_cannot_act_on_another_message(tmp_path: Path) -> None:
    """A file that was moved in by hand and has the id of another message."""
    outside = tmp_path / "outside"
    outside.write_bytes(b"not of the spool")
    with Spool(tmp_path / "mq", sync="none") as spool:
        spool.create_queue("jobs", index=True)
        jobs = spool.indexed("jobs")
        [name] = jobs.upsert([NewMessage(b"first", id="A", priority=9)])
        spool.deliver()
        root = Path(spool.tree.root)
        for number, (given, other) in enumerate(
            [("A", name), ("B", f"../../../{outside.name}"), ("C", "../../new/none")]
        ):
            forged = f"fsmq.id: {given}\nfsmq.name: {other}\n\nforged".encode()
            at = f"00000000-0000-7000-8000-00000000000{number}.h"
            (root / "queues" / "jobs" / at).write_bytes(forged)
        found = [message.body for message in spool.queue("jobs").claim(9)]
        assert found == [b"forged"] * 3 + [b"first"]
        assert sorted(os.listdir(root / "ids" / "jobs")) == [".lock", "A"]
        assert outside.stat().st_nlink == 1
