"""The part of SNS that feeds queues, with boto3: topics, subscriptions, publishing."""

from __future__ import annotations

import json
import re
import urllib.request
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import Spool
from tests.harness.suite import Suite
from tests.http.keyfile import add_key
from tests.http.sqs.clients import ask_query, client, get, refusal

_numbers = count(1)
ACCOUNT = "000000000000"
ATTRIBUTES = {
    "color": {"DataType": "String", "StringValue": "red"},
    "price": {"DataType": "Number", "StringValue": "12.50"},
    "tags": {"DataType": "String.Array", "StringValue": '["a", "b", 3]'},
    "bytes": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
}


def topic(sns: Any, **attributes: str) -> str:
    name = f"t{next(_numbers)}" + (".fifo" if attributes else "")
    return str(sns.create_topic(Name=name, Attributes=attributes)["TopicArn"])


class Subscribed:
    """A queue that is subscribed to a topic."""

    def __init__(self, sns: Any, sqs: Any, arn: str, **attributes: str) -> None:
        is_fifo = arn.endswith(".fifo")
        name = f"s{next(_numbers)}" + (".fifo" if is_fifo else "")
        given = {"FifoQueue": "true"} if is_fifo else {}
        self.url = sqs.create_queue(QueueName=name, Attributes=given)["QueueUrl"]
        self.arn = f"arn:aws:sqs:us-east-1:{ACCOUNT}:{name}"
        subscribe = {"TopicArn": arn, "Protocol": "sqs", "Endpoint": self.arn}
        self.given = {**subscribe, "Attributes": attributes, "ReturnSubscriptionArn": True}
        self.subscription = sns.subscribe(**self.given)["SubscriptionArn"]
        self._sqs = sqs

    def messages(self, wait: int = 0, least: int = 1) -> list[Any]:
        """Receive until there are ``least`` messages, or none comes for so long."""
        found = self._some(wait)
        while wait and found and len(found) < least and (more := self._some(wait)):
            found += more
        return found

    def _some(self, wait: int) -> list[Any]:
        asked = {"MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"]}
        asked |= {"WaitTimeSeconds": wait, "AttributeNames": ["All"]}
        found: list[Any] = self._sqs.receive_message(QueueUrl=self.url, **asked).get("Messages", [])
        for one in found:
            self._sqs.delete_message(QueueUrl=self.url, ReceiptHandle=one["ReceiptHandle"])
        return found


def test_raw_and_enveloped_deliveries(sns: Any, sqs: Any) -> None:
    arn = topic(sns)
    raw = Subscribed(sns, sqs, arn, RawMessageDelivery="true")
    told = Subscribed(sns, sqs, arn)
    body = 'é "x" <&> \r\n'
    published = sns.publish(
        TopicArn=arn, Message=body, Subject="News", MessageAttributes=ATTRIBUTES
    )
    [message] = raw.messages(wait=20)
    assert message["Body"] == body
    assert message["MessageAttributes"] == ATTRIBUTES
    [other] = told.messages(wait=20)
    assert "MessageAttributes" not in other
    assert len({published["MessageId"], message["MessageId"], other["MessageId"]}) == 3
    said = json.loads(other["Body"])
    assert list(said) == [
        "Type",
        "MessageId",
        "TopicArn",
        "Subject",
        "Message",
        "Timestamp",
        "SignatureVersion",
        "Signature",
        "SigningCertURL",
        "UnsubscribeURL",
        "MessageAttributes",
    ]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", said["Timestamp"])
    assert said["Type"] == "Notification"
    assert said["MessageId"] == published["MessageId"]
    assert (said["TopicArn"], said["Subject"], said["Message"]) == (arn, "News", body)
    assert said["MessageAttributes"]["bytes"] == {"Type": "Binary", "Value": "AP8="}
    assert said["MessageAttributes"]["price"] == {"Type": "Number", "Value": "12.50"}


def test_a_message_structure_has_a_text_for_queues(sns: Any, sqs: Any) -> None:
    arn = topic(sns)
    queue = Subscribed(sns, sqs, arn, RawMessageDelivery="true")
    for texts, expected in (
        ({"default": "for all", "sqs": "for queues"}, "for queues"),
        ({"default": "for all", "http": "no"}, "for all"),
    ):
        sns.publish(TopicArn=arn, Message=json.dumps(texts), MessageStructure="json")
        assert [one["Body"] for one in queue.messages(wait=20)] == [expected]
    bad = {"TopicArn": arn, "MessageStructure": "json"}
    texts = {"default": "x", "http": "x" * 262144}
    too_long = ("InvalidParameter", 400, "Invalid parameter: Message too long")
    assert refusal(sns, "publish", Message=json.dumps(texts), **bad) == too_long


def test_each_entry_of_a_batch_is_filtered(sns: Any, sqs: Any) -> None:
    arn = topic(sns)
    policy = json.dumps({"color": ["red"]})
    red = Subscribed(sns, sqs, arn, RawMessageDelivery="true", FilterPolicy=policy)
    every = Subscribed(sns, sqs, arn, RawMessageDelivery="true")
    entries = [
        {"Id": "1", "Message": "one", "MessageAttributes": ATTRIBUTES},
        {"Id": "2", "Message": "two"},
    ]
    told = sns.publish_batch(TopicArn=arn, PublishBatchRequestEntries=entries)
    assert [one["Id"] for one in told["Successful"]] == ["1", "2"]
    assert told["Failed"] == []
    assert sorted(one["Body"] for one in every.messages(wait=20, least=2)) == ["one", "two"]
    assert [one["Body"] for one in red.messages(wait=20)] == ["one"]


def test_fifo_topics_feed_fifo_queues_in_order(sns: Any, sqs: Any) -> None:
    arn = topic(sns, FifoTopic="true", ContentBasedDeduplication="true")
    queues = [Subscribed(sns, sqs, arn, RawMessageDelivery="true"), Subscribed(sns, sqs, arn)]
    numbers = []
    for body in ("1", "2", "3", "2"):  # one of them twice
        told = sns.publish(TopicArn=arn, Message=body, MessageGroupId="g")
        numbers.append(told["SequenceNumber"])
    assert numbers == sorted(set(numbers))
    raw, enveloped = (queue.messages(wait=20) for queue in queues)
    assert [one["Body"] for one in raw] == ["1", "2", "3"]
    assert {one["Attributes"]["MessageGroupId"] for one in raw} == {"g"}
    assert [json.loads(one["Body"])["Message"] for one in enveloped] == ["1", "2", "3"]
    assert list(json.loads(enveloped[0]["Body"])) == [
        "Type",
        "MessageId",
        "SequenceNumber",
        "TopicArn",
        "Message",
        "Timestamp",
        "UnsubscribeURL",
    ]
    assert "MessageGroupId" in refusal(sns, "publish", TopicArn=arn, Message="x")[2]
    other = topic(sns, FifoTopic="true")
    given = {"TopicArn": other, "Message": "x", "MessageGroupId": "g"}
    assert "ContentBasedDeduplication" in refusal(sns, "publish", **given)[2]
    plain = topic(sns)
    given = {"TopicArn": plain, "Message": "x", "MessageDeduplicationId": "g"}
    assert refusal(sns, "publish", **given)[0] == "InvalidParameter"


def test_topics_are_created_described_tagged_and_deleted(sns: Any) -> None:
    tags = [{"Key": "team", "Value": "a"}]
    arn = sns.create_topic(Name="about", Attributes={"DisplayName": "d"}, Tags=tags)["TopicArn"]
    assert arn == f"arn:aws:sns:us-east-1:{ACCOUNT}:about"
    sns.set_topic_attributes(TopicArn=arn, AttributeName="DisplayName", AttributeValue="new")
    found = sns.get_topic_attributes(TopicArn=arn)["Attributes"]
    assert (found["DisplayName"], found["TopicArn"], found["Owner"]) == ("new", arn, ACCOUNT)
    assert found["SubscriptionsConfirmed"] == "0"
    sns.tag_resource(ResourceArn=arn, Tags=[{"Key": "more", "Value": "b"}])
    sns.untag_resource(ResourceArn=arn, TagKeys=["team", "none"])
    assert sns.list_tags_for_resource(ResourceArn=arn)["Tags"] == [{"Key": "more", "Value": "b"}]
    for n in range(101):
        sns.create_topic(Name=f"page{n:03}")
    pages = sns.get_paginator("list_topics").paginate()
    found = [one["TopicArn"] for page in pages for one in page["Topics"]]
    assert len([one for one in found if ":page" in one]) == 101
    assert arn in found
    sns.delete_topic(TopicArn=arn)
    sns.delete_topic(TopicArn=arn)
    gone = ("NotFound", 404, "Topic does not exist")
    assert refusal(sns, "get_topic_attributes", TopicArn=arn) == gone
    assert refusal(sns, "publish", TopicArn=arn, Message="x") == gone


def test_subscriptions_are_made_changed_and_ended(sns: Any, sqs: Any) -> None:
    arn = topic(sns)
    queue = Subscribed(sns, sqs, arn)
    change = {"SubscriptionArn": queue.subscription}
    policy = '{"price": [{"numeric": [">", 10]}]}'
    for name, value in (
        ("RawMessageDelivery", "true"),
        ("FilterPolicy", policy),
        ("RedrivePolicy", json.dumps({"deadLetterTargetArn": queue.arn})),
    ):
        sns.set_subscription_attributes(AttributeName=name, AttributeValue=value, **change)
    found = sns.get_subscription_attributes(**change)["Attributes"]
    assert (found["Endpoint"], found["Protocol"]) == (queue.arn, "sqs")
    assert found["PendingConfirmation"] == "false"
    assert found["RawMessageDelivery"] == "true"
    assert found["FilterPolicy"] == policy
    assert found["FilterPolicyScope"] == "MessageAttributes"
    sns.publish(TopicArn=arn, Message="none")
    sns.publish(TopicArn=arn, Message="dear", MessageAttributes=ATTRIBUTES)
    assert [one["Body"] for one in queue.messages(wait=20)] == ["dear"]
    given = {"AttributeName": "FilterPolicyScope", "AttributeValue": "MessageBody"}
    sns.set_subscription_attributes(**change, **given)
    sns.publish(TopicArn=arn, Message='{"price": 9}')
    sns.publish(TopicArn=arn, Message='{"price": 11}')
    assert [one["Body"] for one in queue.messages(wait=20)] == ['{"price": 11}']
    listed = sns.list_subscriptions()["Subscriptions"]
    assert queue.subscription in {one["SubscriptionArn"] for one in listed}
    sns.unsubscribe(**change)
    sns.unsubscribe(**change)
    words = "Subscription does not exist"
    assert refusal(sns, "get_subscription_attributes", **change) == ("NotFound", 404, words)


@pytest.mark.parametrize(
    ("verb", "given", "code", "said"),
    [
        ("create_topic", {"Name": "a", "Attributes": {"x": "y"}}, "InvalidParameter", "Attribute"),
        ("publish", {"Message": "x"}, "InvalidParameter", "TopicArn or TargetArn"),
        ("publish", {"TargetArn": "x", "Message": "x"}, "InvalidParameter", "at least 6 elements"),
        ("publish", {"PhoneNumber": "1", "Message": "x"}, "InvalidParameter", "PhoneNumber"),
        ("publish", {"TopicArn": "T", "Message": ""}, "InvalidParameter", "Empty message"),
        ("publish", {"TopicArn": "T", "Message": "x" * 262145}, "InvalidParameter", "too long"),
        (
            "publish",
            {"TopicArn": "T", "Message": "x", "Subject": "é"},
            "InvalidParameter",
            "Subject",
        ),
        (
            "publish",
            {
                "TopicArn": "T",
                "Message": "x",
                "MessageAttributes": {"a": {"DataType": "Number", "StringValue": "x"}},
            },
            "ParameterValueInvalid",
            "is not a number",
        ),
        (
            "subscribe",
            {"TopicArn": "T", "Protocol": "email", "Endpoint": "a@b"},
            "InvalidParameter",
            "fsmq does not support the protocol email",
        ),
        (
            "subscribe",
            {"TopicArn": "T", "Protocol": "other", "Endpoint": "a@b"},
            "InvalidParameter",
            "Amazon SNS does not support this protocol string: other",
        ),
        (
            "subscribe",
            {"TopicArn": "T", "Protocol": "sqs", "Endpoint": "http://x/q"},
            "InvalidParameter",
            "SQS endpoint ARN",
        ),
        (
            "subscribe",
            {"TopicArn": "T", "Protocol": "sqs", "Endpoint": "arn:aws:sqs:x:1:nowhere"},
            "InvalidParameter",
            "does not exist",
        ),
        ("create_platform_endpoint", {"Token": "x"}, "InvalidAction", "is not valid"),
    ],
)
def test_refused_calls(sns: Any, verb: str, given: dict[str, Any], code: str, said: str) -> None:
    errors = sns.create_topic(Name="errors")["TopicArn"]
    given = {name: errors if value == "T" else value for name, value in given.items()}
    if verb == "create_platform_endpoint":
        given["PlatformApplicationArn"] = "x"
    found, status, words = refusal(sns, verb, **given)
    assert (found, status) == (code, 400)
    assert said in words


def test_an_error_byte_for_byte(suite: Suite) -> None:
    answer = ask_query(suite.url, "GetTopicAttributes", {"TopicArn": "arn:aws:sns:a:1:gone"})
    request_id = answer.headers["x-amzn-RequestId"]
    assert answer.status == 404
    assert answer.headers["Content-Type"] == "text/xml"
    assert answer.body.decode() == (
        '<?xml version="1.0"?><ErrorResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/">'
        "<Error><Type>Sender</Type><Code>NotFound</Code><Message>Topic does not exist</Message>"
        f"</Error><RequestId>{request_id}</RequestId></ErrorResponse>"
    )


def test_a_message_that_one_queue_refuses_is_delivered_to_none(
    sns: Any, sqs: Any, suite: Suite
) -> None:
    arn = topic(sns)
    first, second = (Subscribed(sns, sqs, arn, RawMessageDelivery="true") for _ in range(2))
    sqs.set_queue_attributes(QueueUrl=second.url, Attributes={"MaximumMessageSize": "1024"})
    words = ("InvalidParameter", 400, "Invalid parameter: Message too long")
    assert refusal(sns, "publish", TopicArn=arn, Message="x" * 1025) == words
    sns.publish(TopicArn=arn, Message="small")
    assert [one["Body"] for one in first.messages(wait=20)] == ["small"]
    assert [one["Body"] for one in second.messages(wait=20)] == ["small"]


def test_native_subscribers_and_publishers(sns: Any, sqs: Any, suite: Suite) -> None:
    arn = topic(sns)
    name = arn.rpartition(":")[2]
    # urllib capitalises names of headers, and policies are case-sensitive.
    policy = json.dumps({"Color": [{"suffix": "ed"}]})
    queue = Subscribed(sns, sqs, arn, FilterPolicy=policy)
    native = sqs.create_queue(QueueName="native")["QueueUrl"]
    base = f"{suite.url}/_topics/{name}"
    urllib.request.urlopen(urllib.request.Request(f"{base}/queues/native", method="PUT")).close()
    given = {"Color": ATTRIBUTES["color"]}
    sns.publish(TopicArn=arn, Message="from sns", MessageAttributes=given)
    [message] = sqs.receive_message(QueueUrl=native, WaitTimeSeconds=20)["Messages"]
    assert message["Body"] == "from sns"  # raw by default
    for color in ("red", "blue"):
        headers = {"X-Message-Attribute-Color": color}
        post = urllib.request.Request(f"{base}/messages", color.encode(), headers)
        urllib.request.urlopen(post).close()
    bodies = [one["Body"] for one in queue.messages(wait=20, least=2)]
    assert bodies[1] == "red"
    assert json.loads(bodies[0])["Message"] == "from sns"
    listed = sns.list_subscriptions_by_topic(TopicArn=arn)["Subscriptions"]
    assert sorted(one["Endpoint"].rpartition(":")[2] for one in listed) == sorted(
        ["native", queue.arn.rpartition(":")[2]]
    )
    [shown] = [
        one for one in json.loads(get(base).body)["subscriptions"] if one["queue"] != "native"
    ]
    assert shown["filter"] == json.loads(policy)
    assert b"suffix" in get(f"{suite.url}/_ui/topics/{name}").body
    with Spool(suite.root) as spool:
        assert spool.topic(name).publish(b"x") != {}


def test_rights_on_topics_hold(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    root = add_key(file, "root", "--send=*", "--receive=*", "--admin=*", "--admin=topics/*")
    sender = add_key(file, "sender", "--send=topics/news")
    with Suite(tmp_path / "mq", mq_options=[f"--keys={file}"]) as suite:
        admin = client(suite.url, key=root, service="sns")
        arn = admin.create_topic(Name="news")["TopicArn"]
        other = admin.create_topic(Name="other")["TopicArn"]
        code, status, words = refusal(admin, "publish", TopicArn=arn, Message="x")
        assert (code, status) == ("AuthorizationError", 403)
        assert words == (f"User: root is not authorized to perform: SNS:Publish on resource: {arn}")
        sns = client(suite.url, key=sender, service="sns")
        assert sns.publish(TopicArn=arn, Message="x")["MessageId"]
        assert [one["TopicArn"] for one in sns.list_topics()["Topics"]] == [arn]
        for verb, given in (
            ("publish", {"TopicArn": other, "Message": "x"}),
            ("get_topic_attributes", {"TopicArn": other}),
            ("delete_topic", {"TopicArn": arn}),
            ("create_topic", {"Name": "mine"}),
        ):
            assert refusal(sns, verb, **given)[:2] == ("AuthorizationError", 403), verb
        unknown = client(suite.url, key="AKIAIOSFODNN7EXAMPLE", service="sns")
        assert refusal(unknown, "list_topics")[:2] == ("InvalidClientTokenId", 403)
