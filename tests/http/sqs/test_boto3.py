"""boto3 works with fsmq as with AWS, in both protocols."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.harness.suite import Suite, eventually
from tests.http.sqs.clients import JSON, QUERY, boto3, client

_numbers = count(1)
ALL = {"MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"]}
ATTRIBUTES = {
    "text": {"DataType": "String", "StringValue": "é 🐟"},
    "empty.name": {"DataType": "String.custom", "StringValue": " with blanks\r\n"},
    "number": {"DataType": "Number", "StringValue": "99.12"},
    "bytes": {"DataType": "Binary", "BinaryValue": bytes(range(256))},
}


@pytest.fixture(params=[JSON, QUERY])
def sqs(suite: Suite, request: pytest.FixtureRequest) -> Iterator[Any]:
    found = client(suite.url, request.param)
    yield found
    found.close()


@pytest.fixture
def url(sqs: Any) -> str:
    return create(sqs)


def create(sqs: Any, **attributes: str) -> str:
    created = sqs.create_queue(QueueName=f"q{next(_numbers)}", Attributes=attributes)
    return str(created["QueueUrl"])


def arn_of(sqs: Any, url: str) -> str:
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return str(found["Attributes"]["QueueArn"])


def receive(sqs: Any, url: str, **options: Any) -> list[Any]:
    given = {"MaxNumberOfMessages": 10, "WaitTimeSeconds": 10, **ALL, **options}
    found: list[Any] = sqs.receive_message(QueueUrl=url, **given).get("Messages", [])
    return found


def code_of(error: Any) -> str:
    return str(error.value.response["Error"]["Code"])


def test_a_message_comes_back_as_it_went(sqs: Any, url: str) -> None:
    body = "é🐟 <&> \r\n\t ende"
    sent = sqs.send_message(QueueUrl=url, MessageBody=body, MessageAttributes=ATTRIBUTES)
    digest = hashlib.md5(body.encode()).hexdigest()
    assert sent["MD5OfMessageBody"] == digest
    [message] = receive(sqs, url)
    assert message["Body"] == body
    assert message["MD5OfBody"] == digest
    assert message["MessageId"] == sent["MessageId"]
    assert message["MessageAttributes"] == ATTRIBUTES
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    system = message["Attributes"]
    assert system["ApproximateReceiveCount"] == "1"
    assert int(system["SentTimestamp"]) <= int(system["ApproximateFirstReceiveTimestamp"])
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert receive(sqs, url, WaitTimeSeconds=0) == []


@pytest.mark.parametrize(
    ("attributes", "digest"),
    [
        ({"attr1": ("Number", "99.12")}, "d302007e9aa062660afc85fd0a482472"),
        ({"k": ("String", "x")}, "a45daa70926828a2f0a1db3418e6feb4"),
        ({"Foo": ("String", "Bar")}, "ae7155c6026991b6d54b11589678bf9c"),
    ],
)
def test_the_md5_of_attributes_is_that_of_amazon(
    sqs: Any, url: str, attributes: dict[str, tuple[str, str]], digest: str
) -> None:
    given = {name: {"DataType": t, "StringValue": v} for name, (t, v) in attributes.items()}
    sent = sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=given)
    assert sent["MD5OfMessageAttributes"] == digest


def test_a_receive_returns_the_attributes_that_it_asks_for(sqs: Any, url: str) -> None:
    sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=ATTRIBUTES)
    asked = {"VisibilityTimeout": 0, "MessageSystemAttributeNames": []}
    [none] = receive(sqs, url, MessageAttributeNames=[], **asked)
    assert none.keys() & {"Attributes", "MessageAttributes", "MD5OfMessageAttributes"} == set()
    [one] = receive(sqs, url, MessageAttributeNames=["text", "nothing"], **asked)
    assert one["MessageAttributes"] == {"text": ATTRIBUTES["text"]}
    [by_prefix] = receive(sqs, url, MessageAttributeNames=["empty.*"], **asked)
    assert list(by_prefix["MessageAttributes"]) == ["empty.name"]
    [last] = receive(sqs, url)
    assert last["Attributes"]["ApproximateReceiveCount"] == "4"


@pytest.mark.parametrize(
    ("number", "body"), [(10, "x" * 60_000), (2, "y" * 500_000), (10, "ü" * 10_000)]
)
def test_a_batch_can_have_up_to_a_mebibyte(sqs: Any, url: str, number: int, body: str) -> None:
    entries = [{"Id": str(one), "MessageBody": body} for one in range(number)]
    sent = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert [one["Id"] for one in sent["Successful"]] == [one["Id"] for one in entries]


def test_bad_entries_of_a_batch_fail_alone(sqs: Any, url: str) -> None:
    entries = [
        {"Id": "good", "MessageBody": "1"},
        {"Id": "bad", "MessageBody": "\x01"},
        {"Id": "late", "MessageBody": "2", "DelaySeconds": 901},
        {"Id": "too", "MessageBody": "3", "MessageAttributes": ATTRIBUTES},
    ]
    sent = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert [one["Id"] for one in sent["Successful"]] == ["good", "too"]
    failed = {one["Id"]: (one["Code"], one["SenderFault"]) for one in sent["Failed"]}
    assert failed == {
        "bad": ("InvalidMessageContents", True),
        "late": ("InvalidParameterValue", True),
    }
    got: list[Any] = []
    eventually(lambda: got.extend(receive(sqs, url, WaitTimeSeconds=1)) or len(got) == 2)
    ids = {m["Body"]: m["MessageId"] for m in got}
    assert ids == {"1": sent["Successful"][0]["MessageId"], "3": sent["Successful"][1]["MessageId"]}
    handles = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(got)]
    changed = sqs.change_message_visibility_batch(
        QueueUrl=url, Entries=[{**one, "VisibilityTimeout": 100} for one in handles]
    )
    assert len(changed["Successful"]) == 2
    removed = sqs.delete_message_batch(
        QueueUrl=url, Entries=[*handles, {"Id": "none", "ReceiptHandle": "x"}]
    )
    assert [one["Id"] for one in removed["Successful"]] == ["0", "1"]
    assert [one["Code"] for one in removed["Failed"]] == ["ReceiptHandleIsInvalid"]


def test_a_queue_keeps_its_attributes(sqs: Any) -> None:
    given = {
        "DelaySeconds": "3",
        "MaximumMessageSize": "2048",
        "MessageRetentionPeriod": "600",
        "ReceiveMessageWaitTimeSeconds": "2",
        "VisibilityTimeout": "7",
        "Policy": json.dumps({"Version": "2012-10-17", "Statement": []}),
        "KmsMasterKeyId": "alias/x",
        "KmsDataKeyReusePeriodSeconds": "600",
        "SqsManagedSseEnabled": "false",
    }
    url = create(sqs, **given)
    name = url.rpartition("/")[2]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert {name: found[name] for name in given} == given
    assert found["QueueArn"] == f"arn:aws:sqs:us-east-1:000000000000:{name}"
    assert sqs.create_queue(QueueName=name, Attributes={"DelaySeconds": "3"})["QueueUrl"] == url
    with pytest.raises(sqs.exceptions.QueueNameExists) as error:
        sqs.create_queue(QueueName=name, Attributes={"DelaySeconds": "4"})
    assert code_of(error) == "QueueAlreadyExists"
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": "", "VisibilityTimeout": "0"})
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert "Policy" not in found
    assert found["VisibilityTimeout"] == "0"
    assert "Attributes" not in sqs.get_queue_attributes(QueueUrl=url)


def test_counts_of_messages_by_state(sqs: Any, url: str) -> None:
    for delay in (0, 0, 900):
        sqs.send_message(QueueUrl=url, MessageBody="x", DelaySeconds=delay)
    names = [f"ApproximateNumberOfMessages{of}" for of in ("", "NotVisible", "Delayed")]

    def counts() -> list[str]:
        found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return [found[name] for name in names]

    eventually(lambda: counts() == ["2", "0", "1"])
    assert len(receive(sqs, url, MaxNumberOfMessages=1)) == 1
    # A count that took long is cached for a second.
    eventually(lambda: counts() == ["1", "1", "1"])
    sqs.purge_queue(QueueUrl=url)
    eventually(lambda: counts() == ["0", "0", "0"])


def test_queues_are_listed_by_prefix_and_in_pages(sqs: Any) -> None:
    prefix = f"list{next(_numbers)}-"
    urls = [sqs.create_queue(QueueName=f"{prefix}{n}")["QueueUrl"] for n in range(5)]
    assert sqs.list_queues(QueueNamePrefix=prefix)["QueueUrls"] == urls
    pages = sqs.get_paginator("list_queues").paginate(
        QueueNamePrefix=prefix, PaginationConfig={"PageSize": 2}
    )
    assert [page["QueueUrls"] for page in pages] == [urls[:2], urls[2:4], urls[4:]]
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix=f"{prefix}none")
    assert sqs.get_queue_url(QueueName=f"{prefix}0")["QueueUrl"] == urls[0]
    sqs.delete_queue(QueueUrl=urls[0])
    with pytest.raises(sqs.exceptions.QueueDoesNotExist) as error:
        sqs.get_queue_url(QueueName=f"{prefix}0")
    assert code_of(error) == "AWS.SimpleQueueService.NonExistentQueue"


def test_a_message_received_too_often_moves_to_the_dead_letter_queue(sqs: Any, url: str) -> None:
    dead = create(sqs)
    policy = json.dumps({"deadLetterTargetArn": arn_of(sqs, dead), "maxReceiveCount": "2"})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])
    assert found["Attributes"] == {"RedrivePolicy": policy}
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
    assert not sqs.list_dead_letter_source_queues(QueueUrl=url).get("queueUrls")
    sent = sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=ATTRIBUTES)
    for _ in range(2):
        assert len(receive(sqs, url, VisibilityTimeout=0)) == 1
    assert receive(sqs, url, WaitTimeSeconds=0) == []
    [letter] = receive(sqs, dead)
    assert letter["MessageId"] == sent["MessageId"]
    assert letter["MessageAttributes"] == ATTRIBUTES
    assert letter["Attributes"]["ApproximateReceiveCount"] == "3"
    assert letter["Attributes"]["DeadLetterQueueSourceArn"] == arn_of(sqs, url)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    assert not sqs.list_dead_letter_source_queues(QueueUrl=dead).get("queueUrls")


def test_tags_and_permissions(sqs: Any, url: str) -> None:
    assert "Tags" not in sqs.list_queue_tags(QueueUrl=url)
    sqs.tag_queue(QueueUrl=url, Tags={"team": "é", "empty": ""})
    sqs.tag_queue(QueueUrl=url, Tags={"team": "b"})
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "b", "empty": ""}
    sqs.untag_queue(QueueUrl=url, TagKeys=["team", "missing"])
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"empty": ""}
    given = {"AWSAccountIds": ["123456789012"], "Actions": ["SendMessage", "ReceiveMessage"]}
    sqs.add_permission(QueueUrl=url, Label="l", **given)
    with pytest.raises(sqs.exceptions.ClientError, match="Already exists"):
        sqs.add_permission(QueueUrl=url, Label="l", **given)


def test_the_resource_interface(suite: Suite) -> None:
    sqs = boto3.resource(
        "sqs",
        endpoint_url=suite.url,
        region_name="eu-west-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
    )
    queue = sqs.create_queue(QueueName="resource", Attributes={"VisibilityTimeout": "9"})
    assert sqs.get_queue_by_name(QueueName="resource").url == queue.url
    assert queue.attributes["VisibilityTimeout"] == "9"
    queue.send_messages(Entries=[{"Id": str(n), "MessageBody": str(n)} for n in range(10)])
    got: list[Any] = []

    def all_came() -> bool:
        got.extend(queue.receive_messages(MaxNumberOfMessages=10, WaitTimeSeconds=5))
        return len(got) == 10

    eventually(all_came)
    got[0].change_visibility(VisibilityTimeout=30)
    for message in got:
        message.delete()
    assert [one.url for one in sqs.queues.filter(QueueNamePrefix="resour")] == [queue.url]
    assert list(queue.dead_letter_source_queues.all()) == []
    queue.delete()
