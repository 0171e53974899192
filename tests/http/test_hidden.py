"""Counts and errors do not tell a key about hidden queues."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.harness.suite import Suite, eventually
from tests.http.helpers import Answer, Wire
from tests.http.keyfile import add_key, bearer

ADMIN, OURS = bearer("the-key-of-an-administrator"), bearer("the-key-of-one-tenant-a")


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    folder = tmp_path_factory.mktemp("hidden")
    file = folder / "keys.toml"
    everything = [f"--{right}={of}" for right in ("send", "admin") for of in ("*", "topics/*")]
    add_key(file, "all", *everything, "--receive=*", existing="the-key-of-an-administrator")
    own = (
        *(f"--{right}=a-*" for right in ("send", "receive", "admin")),
        "--send=topics/news",
        "--receive=dead",
    )
    add_key(file, "a", *own, existing="the-key-of-one-tenant-a")
    with Suite(
        folder / "mq", mq_options=[f"--keys={file}", "--dialects=sqs", "--sync=none"]
    ) as suite:
        yield suite


def ask(suite: Suite, key: dict[str, str], method: str, path: str, body: object = b"") -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    with Wire(suite.url) as wire:
        return wire.ask(method, path, key, data)


def moved(suite: Suite, source: str, target: str) -> None:
    answer = ask(suite, ADMIN, "POST", f"/{source}/move?to={target}")
    [ref] = re.findall(r"[0-9a-f-]{36}", answer.body.decode())[:1]
    eventually(lambda: ask(suite, ADMIN, "GET", f"/_moves/{ref}").json["status"] == "complete")


def test_moves_of_other_tenants_are_not_listed(suite: Suite) -> None:
    for name in ("a-from", "a-to", "b-from", "b-to"):
        assert ask(suite, ADMIN, "PUT", f"/{name}").status == 201
    moved(suite, "a-from", "a-to")
    before = ask(suite, OURS, "GET", "/_moves?count=1").json["moves"]
    assert [move["from"] for move in before] == ["a-from"]
    moved(suite, "b-from", "b-to")
    assert ask(suite, OURS, "GET", "/_moves?count=1").json["moves"] == before


@pytest.mark.parametrize("kind", ["small", "fifo"])
def test_an_error_does_not_describe_a_hidden_subscriber(suite: Suite, kind: str) -> None:
    hidden = f"b-{kind}"
    fifo = "?fifo=true" if kind == "fifo" else ""
    assert ask(suite, ADMIN, "PUT", f"/{hidden}{fifo}").status == 201
    limit = {"max_message_bytes": 77}
    assert ask(suite, ADMIN, "PATCH", f"/{hidden}", limit if kind == "small" else {}).status == 200
    assert ask(suite, ADMIN, "PUT", "/_topics/news").status in (200, 201)
    assert ask(suite, ADMIN, "PUT", f"/_topics/news/queues/{hidden}").status in (200, 201)
    try:
        told = ask(suite, OURS, "POST", "/_topics/news/messages", b"x" * 100)
        assert told.status == 503, told
        assert hidden not in told.body.decode()
        assert "77" not in told.body.decode()
        assert "fifo" not in told.body.decode()
    finally:
        ask(suite, ADMIN, "DELETE", f"/_topics/news/queues/{hidden}")


def sqs(suite: Suite, key: dict[str, str], action: str, **members: object) -> Answer:
    token = key["Authorization"].removeprefix("Bearer ")
    signed = f"AWS4-HMAC-SHA256 Credential={token}/20260101/us-east-1/sqs/aws4_request"
    head = {"Authorization": signed, "X-Amz-Target": f"AmazonSQS.{action}"}
    return ask(suite, head, "POST", "/", members)


def test_a_move_task_of_another_tenant_cannot_be_seen_or_cancelled(suite: Suite) -> None:
    """A dead-letter queue that tenants share."""
    arn = "arn:aws:sqs:us-east-1:000000000000:{}".format
    policy = json.dumps({"deadLetterTargetArn": arn("dead"), "maxReceiveCount": 1})
    for name in ("dead", "a-src", "b-src", "b-back"):
        assert ask(suite, ADMIN, "PUT", f"/{name}").status == 201
    for name in ("a-src", "b-src"):
        told = sqs(
            suite, ADMIN, "SetQueueAttributes", QueueUrl=name, Attributes={"RedrivePolicy": policy}
        )
        assert told.status == 200, told
    for _ in range(9):
        assert ask(suite, ADMIN, "POST", "/dead/messages", b"x").status == 201
    eventually(lambda: ask(suite, ADMIN, "GET", "/dead").json["messages"]["ready"] == 9)
    slow = {"SourceArn": arn("dead"), "MaxNumberOfMessagesPerSecond": 1}
    theirs = sqs(suite, ADMIN, "StartMessageMoveTask", DestinationArn=arn("b-back"), **slow)
    assert theirs.status == 200, theirs
    handle = theirs.json["TaskHandle"]
    assert sqs(suite, OURS, "CancelMessageMoveTask", TaskHandle=handle).status == 404
    assert sqs(suite, OURS, "ListMessageMoveTasks", SourceArn=arn("dead")).json["Results"] == []
    ours = sqs(suite, OURS, "StartMessageMoveTask", DestinationArn=arn("a-src"), **slow)
    assert ours.status == 200, ours
    assert sqs(suite, ADMIN, "CancelMessageMoveTask", TaskHandle=handle).status == 200
