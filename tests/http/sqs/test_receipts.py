"""A receipt acts on its own claim only."""

from __future__ import annotations

import base64
import http.client
import json
import re
import urllib.request
import zlib
from typing import Any

import pytest

from tests.harness.suite import Suite, eventually
from tests.http.sqs.clients import ask_json


@pytest.fixture
def url(sqs: Any, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"\W", "-", request.node.name)[:80]
    return str(sqs.create_queue(QueueName=name)["QueueUrl"])


def receive(sqs: Any, url: str, visibility: int = 60, wait: int = 10) -> list[str]:
    found = sqs.receive_message(QueueUrl=url, VisibilityTimeout=visibility, WaitTimeSeconds=wait)
    return [one["ReceiptHandle"] for one in found.get("Messages", [])]


def received_twice(sqs: Any, url: str) -> tuple[str, str]:
    """The receipt of an ended claim, and that of the present one."""
    sqs.send_message(QueueUrl=url, MessageBody="x")
    [old] = receive(sqs, url)
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=old, VisibilityTimeout=0)
    [now] = receive(sqs, url)
    return old, now


def test_a_stale_delete_does_not_remove_the_message(sqs: Any, url: str) -> None:
    old, now = received_twice(sqs, url)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=old)
    told = sqs.delete_message_batch(QueueUrl=url, Entries=[{"Id": "a", "ReceiptHandle": old}])
    assert [one["Id"] for one in told["Successful"]] == ["a"]
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=now, VisibilityTimeout=0)
    assert len(receive(sqs, url)) == 1


@pytest.mark.parametrize("seconds", [0, 30])
def test_a_stale_change_of_visibility_changes_nothing(sqs: Any, url: str, seconds: int) -> None:
    old, now = received_twice(sqs, url)
    with pytest.raises(sqs.exceptions.ClientError, match="not available for visibility timeout"):
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=old, VisibilityTimeout=seconds)
    assert receive(sqs, url, wait=0) == []
    sqs.delete_message(QueueUrl=url, ReceiptHandle=now)
    with pytest.raises(sqs.exceptions.ClientError, match="not available for visibility timeout"):
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=now, VisibilityTimeout=seconds)


@pytest.mark.parametrize("seconds", [0, 30])
def test_a_stale_change_in_a_batch_has_the_code_of_aws(sqs: Any, url: str, seconds: int) -> None:
    """The code of AWS: clients stop their subscription on any other code."""
    old, now = received_twice(sqs, url)
    sqs.send_message(QueueUrl=url, MessageBody="good")
    [good] = receive(sqs, url)

    def change(**handles: str) -> Any:
        entries = [
            {"Id": name, "ReceiptHandle": handle, "VisibilityTimeout": seconds}
            for name, handle in handles.items()
        ]
        return sqs.change_message_visibility_batch(QueueUrl=url, Entries=entries)

    def failed(name: str) -> dict[str, Any]:
        words = "Message does not exist or is not available for visibility timeout change"
        code = {"Code": "ReceiptHandleIsInvalid", "Message": words}
        return {"Id": name, "SenderFault": True, **code}

    told = change(old=old, good=good)
    assert told["Failed"] == [failed("old")]
    assert told["Successful"] == [{"Id": "good"}]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=now)
    assert change(gone=now)["Failed"] == [failed("gone")]
    # Malformed receipts have an error of their own.
    [other] = change(none="foo")["Failed"]
    assert other["Code"] == "ReceiptHandleIsInvalid"
    assert other["Message"] == 'The input receipt handle "foo" is not a valid receipt handle.'


def test_the_last_receipt_can_hide_a_visible_message_again(sqs: Any, url: str) -> None:
    """This is not counted as a receive. Older receipts do not hide it."""
    old, now = received_twice(sqs, url)
    change = sqs.change_message_visibility
    change(QueueUrl=url, ReceiptHandle=now, VisibilityTimeout=1)
    attributes = {"QueueUrl": url, "AttributeNames": ["ApproximateNumberOfMessages"]}
    eventually(lambda: sqs.get_queue_attributes(**attributes)["Attributes"].popitem()[1] == "1")
    change(QueueUrl=url, ReceiptHandle=old, VisibilityTimeout=30)
    change(QueueUrl=url, ReceiptHandle=now, VisibilityTimeout=30)
    assert receive(sqs, url, wait=0) == []
    change(QueueUrl=url, ReceiptHandle=now, VisibilityTimeout=0)
    asked = {"WaitTimeSeconds": 10, "AttributeNames": ["ApproximateReceiveCount"]}
    [message] = sqs.receive_message(QueueUrl=url, **asked)["Messages"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "3"
    with pytest.raises(sqs.exceptions.ClientError, match="not available for visibility timeout"):
        change(QueueUrl=url, ReceiptHandle=now, VisibilityTimeout=30)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def test_any_receipt_deletes_a_message_that_is_not_claimed(sqs: Any, url: str) -> None:
    old, now = received_twice(sqs, url)
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=now, VisibilityTimeout=0)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=old)
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    assert set(found.values()) == {"0"}


def test_a_receipt_stays_valid_after_renewals(sqs: Any, url: str) -> None:
    sqs.send_message(QueueUrl=url, MessageBody="x")
    [receipt] = receive(sqs, url)
    for seconds in (100, 50, 200):
        given = {"QueueUrl": url, "ReceiptHandle": receipt}
        sqs.change_message_visibility(**given, VisibilityTimeout=seconds)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=receipt)
    names = ["ApproximateNumberOfMessagesNotVisible"]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    assert set(found.values()) == {"0"}


def test_a_claim_is_renewed_for_twelve_hours_at_most(sqs: Any, url: str) -> None:
    sqs.send_message(QueueUrl=url, MessageBody="x")
    [receipt] = receive(sqs, url)
    given = {"QueueUrl": url, "ReceiptHandle": receipt}
    sqs.change_message_visibility(**given, VisibilityTimeout=43_200)
    with pytest.raises(sqs.exceptions.ClientError, match="InvalidParameterValue"):
        sqs.change_message_visibility(**given, VisibilityTimeout=43_201)


def test_malformed_receipts_and_those_of_other_queues_are_refused(sqs: Any, url: str) -> None:
    sqs.send_message(QueueUrl=url, MessageBody="x")
    [receipt] = receive(sqs, url)
    other = sqs.create_queue(QueueName="other")["QueueUrl"]
    for bad in (receipt[:-4], receipt[4:], "", "é", "A" * 2000):
        with pytest.raises(sqs.exceptions.ReceiptHandleIsInvalid):
            sqs.delete_message(QueueUrl=url, ReceiptHandle=bad)
    with pytest.raises(sqs.exceptions.ReceiptHandleIsInvalid):
        sqs.delete_message(QueueUrl=other, ReceiptHandle=receipt)


def test_messages_of_the_native_dialect_are_received(suite: Suite, sqs: Any, url: str) -> None:
    name = url.rpartition("/")[2]
    for body, more in ((b"text", {"X-Message-Attribute-Color": "red"}), (b"\xff\x00", {})):
        target = f"{suite.url}/{name}/messages"
        urllib.request.urlopen(urllib.request.Request(target, body, more)).close()
    got: dict[str, Any] = {}

    def both() -> bool:
        asked = {"MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"]}
        for one in sqs.receive_message(QueueUrl=url, **asked).get("Messages", []):
            got[one["Body"]] = one.get("MessageAttributes")
        return len(got) == 2

    eventually(both)
    assert got["text"] == {"Color": {"DataType": "String", "StringValue": "red"}}
    assert got["/wA="]["fsmq.encoding"]["StringValue"] == "base64"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("attributes", r'{"a": ["String", "\ud800"]}'),
        ("attributes", r'{"a": ["\ud800", "x"]}'),
        ("attributes", r'{"\ud800": ["String", "x"]}'),
        ("queue", "x" * 300),
        ("queue", "../../x"),
    ],
)
def test_a_forged_header_line_does_not_block_a_receive(
    suite: Suite, sqs: Any, url: str, name: str, value: str
) -> None:
    """Native posts can contain header lines of this dialect with any value."""
    # Not urllib, which begins the names of headers with capitals.
    native = http.client.HTTPConnection("127.0.0.1", suite.port, timeout=30)
    line = {f"X-Message-Attribute-sqs.{name}": value}
    native.request("POST", f"/{url.rpartition('/')[2]}/messages", b"strange", line)
    assert native.getresponse().status == 201
    native.close()
    sqs.send_message(QueueUrl=url, MessageBody="good")
    asked = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"], "WaitTimeSeconds": 20}
    found = []
    while len(found) < 2:
        told = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, **asked)
        found += [one["Body"] for one in told["Messages"]]
        assert all("MessageAttributes" not in one for one in told["Messages"])
        assert all("DeadLetterQueueSourceArn" not in one["Attributes"] for one in told["Messages"])
    assert sorted(found) == ["good", "strange"]


def test_a_native_claim_does_not_show_header_lines_of_sqs(suite: Suite, sqs: Any, url: str) -> None:
    color = {"Color": {"DataType": "String", "StringValue": "red"}}
    sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=color, MessageGroupId="g")
    target = f"{suite.url}/{url.rpartition('/')[2]}/messages?wait=10&visibility=0"
    with urllib.request.urlopen(f"{target}&count=1") as answer:
        [message] = json.load(answer)["messages"]
    assert message["group"] == "g"
    assert message["attributes"] == {"Color": "red"}
    with urllib.request.urlopen(target) as answer:
        shown = [name for name in answer.headers if name.startswith("X-Message-Attribute")]
    assert shown == ["X-Message-Attribute-Color"]


def forged(queue: str, at: str, message: str) -> str:
    """A receipt with a correct check sum, which is no secret."""
    text = f"1||{at}|{message}".encode()
    seal = zlib.crc32(f"{queue}|".encode() + text).to_bytes(4, "big")
    return base64.urlsafe_b64encode(seal + text).decode()


@pytest.mark.parametrize(
    ("at", "message"), [("f" * 400, "x"), ("-5", "x"), ("1", "../other/x"), ("1", ".x"), ("1", "")]
)
def test_a_forged_receipt_is_refused(
    suite: Suite, sqs: Any, url: str, at: str, message: str
) -> None:
    """Neither an invalid time nor an invalid name is accepted."""
    queue = url.rpartition("/")[2]
    handle = {"ReceiptHandle": forged(queue, at, message)}
    asked = {"QueueUrl": url, **handle, "VisibilityTimeout": 5}
    for action in ("DeleteMessage", "ChangeMessageVisibility"):
        answer = ask_json(suite.url, action, asked)
        assert answer.status == 400, action
        assert answer.headers["x-amzn-query-error"] == "ReceiptHandleIsInvalid;Sender"
    sqs.send_message(QueueUrl=url, MessageBody="x")
    [good] = receive(sqs, url)
    entries = [{"Id": "forged", **handle}, {"Id": "good", "ReceiptHandle": good}]
    told = sqs.delete_message_batch(QueueUrl=url, Entries=entries)
    assert [one["Id"] for one in told["Successful"]] == ["good"]
    assert [one["Code"] for one in told["Failed"]] == ["ReceiptHandleIsInvalid"]
