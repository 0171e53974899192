"""Every action with each member missing, malformed, too large or unknown: never a 500."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from fsmq.http.sqs.sns.wire import ACTIONS
from tests.harness.suite import Suite
from tests.http.sqs.clients import JSON, Answer, client

_ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    10**18,
    10**400,
    1.5,
    "",
    " ",
    "x",
    "12",
    "é🐟",
    "a/b",
    "\ud800",
    "\x00\x01",
    "x" * 70_000,
    [],
    [None],
    [[]],
    ["x"] * 1001,
    {},
    {"": ""},
    {"x": {"y": []}},
    "arn:aws:sqs:us-east-1:000000000000:fuzz",
    '{"deadLetterTargetArn":1,"maxReceiveCount":[]}',
    "[" * 5000,
    "../../x",
    ".",
    "..",
    "-9" * 3000,
    {"VisibilityTimeout": "٣"},
)
# The members of a good request.
_GOOD: Mapping[str, Any] = {
    "QueueUrl": "fuzz",
    "QueueName": "fuzz",
    "MessageBody": "x",
    "ReceiptHandle": "x",
    "Label": "l",
    "AWSAccountIds": ["1"],
    "Actions": ["SendMessage"],
    "SourceArn": "arn:aws:sqs:us-east-1:000000000000:fuzz",
    "TaskHandle": "x",
    "Attributes": {"DelaySeconds": "0"},
    "Tags": {"a": "b"},
    "TagKeys": ["a"],
    "VisibilityTimeout": 1,
}
_ENTRY = {"Id": "a", "MessageBody": "x", "ReceiptHandle": "x", "VisibilityTimeout": 1}


class Model:
    """botocore's model of SQS."""

    def __init__(self, url: str) -> None:
        found = client(url, JSON).meta.service_model
        self.operations = {name: found.operation_model(name) for name in found.operation_names}

    def variants(self, action: str) -> Iterator[dict[str, Any]]:
        """Members of requests, each with one odd value."""
        shape = self.operations[action].input_shape
        good = {name: _GOOD[name] for name in shape.members if name in _GOOD}
        if "Entries" in shape.members:
            good["Entries"] = [_ENTRY]
        yield good
        yield {**good, "Unknown": {"x": [1]}}
        for name, member in shape.members.items():
            yield {other: value for other, value in good.items() if other != name}
            for odd in _inside(member, good.get(name)):
                yield {**good, name: odd}


def _inside(shape: Any, good: Any) -> Iterator[Any]:
    """Odd values of a member, and good ones with an odd part."""
    yield from _ODD
    if shape.type_name == "list":
        first = good[0] if isinstance(good, list) and good else None
        for odd in _inside(shape.member, first):
            yield [odd]
    elif shape.type_name == "structure" and shape.name != "MessageAttributeValue":
        base = good if isinstance(good, dict) else {}
        for name, member in shape.members.items():
            for odd in _inside(member, base.get(name)):
                yield {**base, name: odd}
    elif shape.type_name == "map":
        names = ["x", "RedrivePolicy", "RedriveAllowPolicy", "Policy", "MaximumMessageSize"]
        for name in names:
            for odd in _ODD:
                yield {name: odd}
        for odd in _ODD:
            yield {"x": {"DataType": "String", "StringValue": odd}}
            yield {"x": {"DataType": odd, "BinaryValue": "AA=="}}


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """A value in Query without the knowledge of a model."""
    if isinstance(value, dict):
        for number, (key, one) in enumerate(value.items(), 1):
            yield f"{name}.{number}.Name", key
            yield from _flat(f"{name}.{number}.Value", one)
            yield from _flat(f"{name}.{key}", one)
    elif isinstance(value, list):
        for number, one in enumerate(value, 1):
            yield from _flat(f"{name}.{number}", one)
    elif value is not None:
        yield name, str(value)


class Kept:
    """Requests on one connection, which is faster."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)

    def json(self, action: str, body: bytes) -> Answer:
        return self._ask(body, {"X-Amz-Target": f"AmazonSQS.{action}"})

    def query(self, action: str, form: Mapping[str, str]) -> Answer:
        return self._ask(urlencode({"Action": action, **form}).encode(), {})

    def _ask(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        self._connection.request("POST", "/", body, dict(headers))
        answer = self._connection.getresponse()
        return Answer(answer.status, dict(answer.headers), answer.read())


@pytest.fixture(scope="module")
def model(suite: Suite) -> Model:
    client(suite.url).create_queue(QueueName="fuzz")
    return Model(suite.url)


def test_no_request_is_answered_with_500(suite: Suite, model: Model) -> None:
    number = count()
    ask = Kept(suite.url)
    for action in model.operations:
        for members in model.variants(action):
            try:
                body = json.dumps(members).encode()
            except ValueError:
                continue  # a number that no client can write
            if action == "ReceiveMessage" and members.get("WaitTimeSeconds") in (12, "12"):
                continue
            answer = ask.json(action, body)
            assert answer.status in (200, 400, 403, 404), (action, str(members)[:300], answer)
            json.loads(answer.body)
            if next(number) % 7 == 0:
                answer = ask.query(action, _form(members))
                assert answer.status in (200, 400, 403, 404), (action, str(members)[:300], answer)
            if action == "DeleteQueue":
                ask.json("CreateQueue", b'{"QueueName":"fuzz"}')
    assert next(number) > 2000


def _form(members: Mapping[str, Any]) -> dict[str, str]:
    pairs = (pair for name, value in members.items() for pair in _flat(name.rstrip("s"), value))
    return {
        name: value.encode("utf-8", "replace").decode()
        for name, value in [*pairs, ("QueueUrl", "fuzz"), ("QueueName", "fuzz")]
    }


# The members of a good request of SNS; each is odd or missing in some requests.
_PUBLISHED: Mapping[str, str] = {
    "Name": "fuzz",
    "Protocol": "sqs",
    "Endpoint": "arn:aws:sqs:us-east-1:000000000000:fuzz",
    "Message": "x",
    "AttributeName": "FilterPolicy",
    "AttributeValue": '{"a": ["b"]}',
    "Attributes.entry.1.key": "DisplayName",
    "Attributes.entry.1.value": "x",
    "Tags.member.1.Key": "a",
    "Tags.member.1.Value": "b",
    "TagKeys.member.1": "a",
    "MessageAttributes.entry.1.Name": "a",
    "MessageAttributes.entry.1.Value.DataType": "String",
    "MessageAttributes.entry.1.Value.StringValue": "b",
    "PublishBatchRequestEntries.member.1.Id": "i",
    "PublishBatchRequestEntries.member.1.Message": "m",
}
_ODD_TEXTS = (
    "",
    " ",
    "-1",
    "é🐟",
    "\x00\x01",
    "x" * 70_000,
    "[" * 5000,
    "../../x",
    "a.fifo",
    "1e400",
    '{"a": [{"numeric": [">", 1e400]}]}',
    '{"$or": [{"a": [1]}, {"b": [{"cidr": "::/0"}]}]}',
    '{"default": 1}',
    "arn:aws:sns:us-east-1:000000000000:",
    "json",
    "MessageBody",
)


def test_no_request_of_sns_is_answered_with_500(suite: Suite, model: Model) -> None:
    sns = client(suite.url, service="sns")
    ask = Kept(suite.url)
    number = 0
    for action in ACTIONS:
        arn = sns.create_topic(Name="fuzz")["TopicArn"]
        good = {**_PUBLISHED, "TopicArn": arn, "ResourceArn": arn, "Version": "2010-03-31"}
        told = ask.query("Subscribe", {**good, "Attributes.entry.1.key": "RawMessageDelivery"})
        assert told.status == 400  # "x" is no flag
        plain = {name: value for name, value in good.items() if name[:10] != "Attributes"}
        told = ask.query("Subscribe", plain)
        good["SubscriptionArn"] = told.body.decode().partition("ionArn>")[2].partition("<")[0]
        extra = ("Subject", "MessageStructure", "MessageGroupId", "NextToken", "TargetArn")
        members = ACTIONS[action].members
        own = {name for name in (*good, *extra) if name.partition(".")[0] in members}
        for name in (*own, *members):
            for odd in _ODD_TEXTS:
                answer = ask.query(action, {**good, name: odd})
                assert answer.status in (200, 400, 403, 404), (action, name, odd[:300], answer)
                number += 1
    assert number > 1000
