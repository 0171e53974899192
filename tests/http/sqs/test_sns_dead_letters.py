"""Dead-letter queues of subscriptions."""

from __future__ import annotations

import hashlib
import json
import urllib.request
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import Spool
from fsmq.spool.fsck import check
from tests.harness.suite import Suite
from tests.http.keyfile import add_key
from tests.http.sqs.clients import client, refusal
from tests.http.sqs.test_sns import ACCOUNT, Subscribed, topic

_numbers = count(1)
ATTRIBUTES = {
    "attr1": {"DataType": "Number", "StringValue": "111"},
    "attr2": {"DataType": "Binary", "BinaryValue": b"\x02\x03\x04"},
}


class Letters:
    """A dead-letter queue."""

    def __init__(self, sqs: Any, *, fifo: bool = False) -> None:
        name = f"letters{next(_numbers)}" + (".fifo" if fifo else "")
        given = {"FifoQueue": "true"} if fifo else {}
        self.url = sqs.create_queue(QueueName=name, Attributes=given)["QueueUrl"]
        self.arn = f"arn:aws:sqs:us-east-1:{ACCOUNT}:{name}"
        self.policy = json.dumps({"deadLetterTargetArn": self.arn})
        self._sqs = sqs

    def some(self, least: int = 1) -> list[Any]:
        """The expected number of messages, and no more."""
        asked = {"MaxNumberOfMessages": 10, "AttributeNames": ["All"]}
        asked |= {"MessageAttributeNames": ["All"]}
        found: list[Any] = []
        while len(found) < least:
            told = self._sqs.receive_message(QueueUrl=self.url, WaitTimeSeconds=20, **asked)
            found += told["Messages"]
        told = self._sqs.receive_message(QueueUrl=self.url, **asked)
        assert "Messages" not in told
        for one in found:
            self._sqs.delete_message(QueueUrl=self.url, ReceiptHandle=one["ReceiptHandle"])
        return found


def deleted(sqs: Any, queue: Subscribed) -> str:
    """Delete a subscribed queue; its name."""
    sqs.delete_queue(QueueUrl=queue.url)
    return queue.url.rpartition("/")[2]


@pytest.mark.parametrize("raw", ["true", "false"])
def test_messages_for_a_deleted_queue_become_dead_letters(sns: Any, sqs: Any, raw: str) -> None:
    arn, letters = topic(sns), Letters(sqs)
    given = {"RawMessageDelivery": raw, "RedrivePolicy": letters.policy}
    queue = Subscribed(sns, sqs, arn, **given)
    name = deleted(sqs, queue)
    message = {"Message": "test_dlq_after_sqs_endpoint_deleted", "MessageAttributes": ATTRIBUTES}
    published = sns.publish(TopicArn=arn, **message)
    [letter] = letters.some()
    system = letter["Attributes"]
    assert system.keys() == {
        "ApproximateFirstReceiveTimestamp",
        "ApproximateReceiveCount",
        "SenderId",
        "SentTimestamp",
    }
    assert system["ApproximateReceiveCount"] == "1"
    if raw == "true":
        assert letter["Body"] == message["Message"]
        assert letter["MessageAttributes"] == ATTRIBUTES
    else:
        said = json.loads(letter["Body"])
        assert (said["Message"], said["MessageId"]) == (message["Message"], published["MessageId"])
        assert said["MessageAttributes"]["attr2"] == {"Type": "Binary", "Value": "AgME"}
        assert said["UnsubscribeURL"].endswith(queue.subscription)
    # The subscription stays and can be shown, changed and ended.
    listed = sns.list_subscriptions_by_topic(TopicArn=arn)["Subscriptions"]
    assert [one["SubscriptionArn"] for one in listed] == [queue.subscription]
    all_of_them = sns.list_subscriptions()["Subscriptions"]
    assert queue.subscription in [one["SubscriptionArn"] for one in all_of_them]
    count = sns.get_topic_attributes(TopicArn=arn)["Attributes"]["SubscriptionsConfirmed"]
    assert count == "1"
    change = {"SubscriptionArn": queue.subscription}
    found = sns.get_subscription_attributes(**change)["Attributes"]
    assert (found["Endpoint"], found["RedrivePolicy"]) == (queue.arn, letters.policy)
    policy = '{"color": ["red"]}'
    sns.set_subscription_attributes(**change, AttributeName="FilterPolicy", AttributeValue=policy)
    sns.publish(TopicArn=arn, Message="unwanted")
    red = {"color": {"DataType": "String", "StringValue": "red"}}
    sns.publish(TopicArn=arn, Message="wanted", MessageAttributes=red)
    [letter] = letters.some()
    assert "unwanted" not in letter["Body"]
    # A queue that is created again gets later messages.
    sqs.create_queue(QueueName=name)
    sns.publish(TopicArn=arn, Message="again", MessageAttributes=red)
    [again] = queue.messages(wait=20)
    assert "again" in again["Body"]
    assert "Messages" not in sqs.receive_message(QueueUrl=letters.url)
    sns.unsubscribe(**change)
    assert sns.list_subscriptions_by_topic(TopicArn=arn)["Subscriptions"] == []


def test_a_fifo_dead_letter_queue_keeps_the_order(sns: Any, sqs: Any) -> None:
    arn, letters = topic(sns, FifoTopic="true"), Letters(sqs, fifo=True)
    given = {"RawMessageDelivery": "true", "RedrivePolicy": letters.policy}
    queue = Subscribed(sns, sqs, arn, **given)
    deleted(sqs, queue)
    entries = [
        {
            "Id": f"{n}",
            "Message": f"message {n}",
            "MessageGroupId": "complexMessageGroupId",
            "MessageDeduplicationId": f"MessageDeduplicationId-{n}",
            "MessageAttributes": {"attr1": ATTRIBUTES["attr1"]},
        }
        for n in range(3)
    ]
    sns.publish_batch(TopicArn=arn, PublishBatchRequestEntries=entries)
    got = letters.some(3)
    assert [one["Body"] for one in got] == ["message 0", "message 1", "message 2"]
    for number, one in enumerate(got):
        system = one["Attributes"]
        assert system["MessageDeduplicationId"] == f"MessageDeduplicationId-{number}"
        assert system["MessageGroupId"] == "complexMessageGroupId"
        assert system["SequenceNumber"]
        assert one["MessageAttributes"] == {"attr1": ATTRIBUTES["attr1"]}
    # Duplicates are stored once.
    sns.publish_batch(TopicArn=arn, PublishBatchRequestEntries=entries)
    assert "Messages" not in sqs.receive_message(QueueUrl=letters.url)


def test_each_subscription_has_its_own_dead_letter(sns: Any, sqs: Any) -> None:
    """One dead-letter queue for several subscriptions, which is subscribed itself."""
    arn, letters = topic(sns), Letters(sqs)
    given = {"RedrivePolicy": letters.policy}
    queues = [Subscribed(sns, sqs, arn, **given) for _ in range(2)]
    there = Subscribed(sns, sqs, arn, **given)
    raw = {"RawMessageDelivery": "true"}
    sns.subscribe(TopicArn=arn, Protocol="sqs", Endpoint=letters.arn, Attributes=raw)
    for queue in queues:
        deleted(sqs, queue)
    sns.publish(TopicArn=arn, Message="x")
    bodies = [one["Body"] for one in letters.some(3)]
    assert bodies.count("x") == 1
    urls = {json.loads(one)["UnsubscribeURL"] for one in bodies if one != "x"}
    assert {url.rpartition("SubscriptionArn=")[2] for url in urls} == {
        one.subscription for one in queues
    }
    assert len(there.messages(wait=20)) == 1


@pytest.mark.parametrize("raw", ["true", "false"])
def test_each_subscription_has_its_own_dead_letter_in_a_fifo_queue(
    sns: Any, sqs: Any, raw: str
) -> None:
    """Copies of two topics and of its own subscription have one deduplication id."""
    letters = Letters(sqs, fifo=True)
    given = {"RawMessageDelivery": raw, "RedrivePolicy": letters.policy}
    arns = [topic(sns, FifoTopic="true", ContentBasedDeduplication="true") for _ in range(2)]
    for arn in arns:
        for queue in [Subscribed(sns, sqs, arn, **given) for _ in range(2)]:
            deleted(sqs, queue)
    there = {"RawMessageDelivery": "true"}
    sns.subscribe(TopicArn=arns[0], Protocol="sqs", Endpoint=letters.arn, Attributes=there)
    for _ in range(2):  # duplicates are stored once
        for arn in arns:
            sns.publish(TopicArn=arn, Message="by content", MessageGroupId="g")
            entry = {"Id": "1", "Message": "x", "MessageGroupId": "g"}
            entries = [{**entry, "MessageDeduplicationId": "given"}]
            sns.publish_batch(TopicArn=arn, PublishBatchRequestEntries=entries)
    got = letters.some(10)
    ids = [one["Attributes"]["MessageDeduplicationId"] for one in got]
    by_content = hashlib.sha256(b"by content").hexdigest()
    assert {one: ids.count(one) for one in ids} == {"given": 5, by_content: 5}


def test_a_native_publish_has_a_dead_letter_for_each_subscription(
    sns: Any, sqs: Any, suite: Suite
) -> None:
    letters = Letters(sqs, fifo=True)
    arn = topic(sns, FifoTopic="true")
    given = {"RedrivePolicy": letters.policy}
    for queue in [Subscribed(sns, sqs, arn, **given) for _ in range(2)]:
        deleted(sqs, queue)
    sqs.set_queue_attributes(QueueUrl=letters.url, Attributes={"ContentBasedDeduplication": "true"})
    place = f"{suite.url}/_topics/{arn.rpartition(':')[2]}/messages?group=g"
    for more in ("&dedup_id=given", "", "&dedup_id=given", ""):
        urllib.request.urlopen(place + more, b"native").close()
    assert [one["Body"] for one in letters.some(4)] == ["native"] * 4


MANY = {f"a{n}": {"DataType": "String", "StringValue": f"{n}"} for n in range(11)}
FEW = dict(list(MANY.items())[:10])


def test_a_raw_copy_with_more_than_ten_attributes_becomes_a_dead_letter(
    sns: Any, sqs: Any, suite: Suite
) -> None:
    """As at AWS, ten are allowed. With an envelope they are part of the body."""
    arn, letters = topic(sns), Letters(sqs)
    raw = {"RawMessageDelivery": "true"}
    queue = Subscribed(sns, sqs, arn, RedrivePolicy=letters.policy, **raw)
    gone = Subscribed(sns, sqs, arn, RedrivePolicy=letters.policy, **raw)
    without = Subscribed(sns, sqs, arn, **raw)
    told = Subscribed(sns, sqs, arn, RedrivePolicy=letters.policy)
    deleted(sqs, gone)
    # A natively subscribed queue accepts more than ten.
    native = Letters(sqs)
    with Spool(suite.root) as spool:
        spool.subscribe(arn.rpartition(":")[2], native.url.rpartition("/")[2])
    sns.publish(TopicArn=arn, Message="many", MessageAttributes=MANY)
    sns.publish(TopicArn=arn, Message="few", MessageAttributes=FEW)
    found = {one["Body"]: one["MessageAttributes"] for one in native.some(2)}
    assert found == {"many": MANY, "few": FEW}
    dead = letters.some(3)
    assert sorted(one["Body"] for one in dead) == ["few", "many", "many"]
    assert all(one["MessageAttributes"] == MANY for one in dead if one["Body"] == "many")
    for one in (queue, without):
        assert [message["Body"] for message in one.messages(wait=20)] == ["few"]
    bodies = [json.loads(one["Body"]) for one in told.messages(wait=20, least=2)]
    assert sorted(len(body["MessageAttributes"]) for body in bodies) == [10, 11]


def test_a_fifo_dead_letter_queue_gets_raw_copies_with_many_attributes(sns: Any, sqs: Any) -> None:
    """The queues exist and refuse the copy; the dead letters keep the order."""
    arn, letters = topic(sns, FifoTopic="true"), Letters(sqs, fifo=True)
    given = {"RawMessageDelivery": "true", "RedrivePolicy": letters.policy}
    queues = [Subscribed(sns, sqs, arn, **given) for _ in range(2)]
    for number, attributes in enumerate((MANY, FEW, MANY)):
        sns.publish(
            TopicArn=arn,
            Message=f"{number}",
            MessageAttributes=attributes,
            MessageGroupId="g",
            MessageDeduplicationId=f"{number}",
        )
    assert [one["Body"] for one in letters.some(4)] == ["0", "0", "2", "2"]
    for queue in queues:
        assert [one["Body"] for one in queue.messages(wait=20)] == ["1"]


def test_without_a_dead_letter_queue_messages_are_dropped(sns: Any, sqs: Any) -> None:
    arn, letters = topic(sns), Letters(sqs)
    without = Subscribed(sns, sqs, arn)
    gone = Subscribed(sns, sqs, arn, RedrivePolicy=letters.policy)
    there = Subscribed(sns, sqs, arn, RawMessageDelivery="true")
    names = [deleted(sqs, without), deleted(sqs, gone)]
    sqs.delete_queue(QueueUrl=letters.url)
    sns.publish(TopicArn=arn, Message="dropped")
    assert [one["Body"] for one in there.messages(wait=20)] == ["dropped"]
    # Both are there again, with their subscriptions.
    for name in names:
        sqs.create_queue(QueueName=name)
    sns.publish(TopicArn=arn, Message="taken")
    for queue in (without, gone):
        [message] = queue.messages(wait=20)
        assert json.loads(message["Body"])["Message"] == "taken"


def test_a_native_publish_to_a_deleted_queue_becomes_a_dead_letter(
    sns: Any, sqs: Any, suite: Suite
) -> None:
    arn, letters = topic(sns), Letters(sqs)
    queue = Subscribed(sns, sqs, arn, RedrivePolicy=letters.policy)
    name = deleted(sqs, queue)
    base = f"{suite.url}/_topics/{arn.rpartition(':')[2]}"

    def publish(body: bytes) -> list[str]:
        with urllib.request.urlopen(f"{base}/messages", body) as answer:
            return sorted(json.load(answer)["messages"])

    assert publish(b"native") == [letters.url.rpartition("/")[2]]
    assert [one["Body"] for one in letters.some()] == ["native"]
    with urllib.request.urlopen(base) as answer:
        assert json.load(answer)["subscriptions"] == []
    with Spool(suite.root) as spool:
        assert name not in spool.topic(arn.rpartition(":")[2]).subscriptions()
        place = f"topics/{arn.rpartition(':')[2]}/{name}"
        [told] = [one for one in check(suite.root).findings if one.path == place]
        assert told.reason.endswith(f"its messages go to {letters.url.rpartition('/')[2]!r}")
    end = urllib.request.Request(f"{base}/queues/{name}", method="DELETE")
    urllib.request.urlopen(end).close()
    assert publish(b"nobody") == []


def test_refused_redrive_policies(sns: Any, sqs: Any) -> None:
    standard, fifo = Letters(sqs), Letters(sqs, fifo=True)
    plain = Subscribed(sns, sqs, topic(sns))
    ordered = Subscribed(sns, sqs, topic(sns, FifoTopic="true"))
    gone = Subscribed(sns, sqs, topic(sns, FifoTopic="true"))
    deleted(sqs, gone)
    nowhere = json.dumps({"deadLetterTargetArn": f"{standard.arn}-not"})
    for queue, policy, words in (
        (plain, '{"deadLetterTargetArn": "fake-arn"}', "deadLetterTargetArn is an invalid arn"),
        (plain, '{"deadLetterTargetArn": 5}', "deadLetterTargetArn is an invalid arn"),
        (plain, "{}", "failed to parse JSON."),
        (plain, "[]", "failed to parse JSON."),
        (plain, nowhere, "the dead-letter queue does not exist"),
        (plain, fifo.policy, "must use a standard queue as DLQ for a standard subscription."),
        *(
            (
                one,
                standard.policy,
                "must use a FIFO queue as DLQ for a FIFO Subscription to a FIFO Topic.",
            )
            for one in (ordered, gone)
        ),
    ):
        given = {"AttributeName": "RedrivePolicy", "AttributeValue": policy}
        told = refusal(
            sns, "set_subscription_attributes", SubscriptionArn=queue.subscription, **given
        )
        assert told == ("InvalidParameter", 400, f"Invalid parameter: RedrivePolicy: {words}")
        if queue is not gone:
            asked = {**queue.given, "Attributes": {"RedrivePolicy": policy}}
            told = refusal(sns, "subscribe", **asked)
            assert told[2] == f"Invalid parameter: Attributes Reason: RedrivePolicy: {words}"
    found = sns.get_subscription_attributes(SubscriptionArn=plain.subscription)["Attributes"]
    assert "RedrivePolicy" not in found
    # An empty policy removes it.
    for value, is_told in ((standard.policy, True), ("", False)):
        given = {"AttributeName": "RedrivePolicy", "AttributeValue": value}
        sns.set_subscription_attributes(SubscriptionArn=plain.subscription, **given)
        found = sns.get_subscription_attributes(SubscriptionArn=plain.subscription)["Attributes"]
        assert ("RedrivePolicy" in found) is is_told


def test_a_redrive_policy_needs_a_right_on_the_dead_letter_queue(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    add_key(file, "root", "--admin=*")
    own = add_key(file, "own", "--admin=mine", "--admin=topics/*", "--send=topics/*")
    with Suite(tmp_path / "mq", mq_options=[f"--keys={file}"]) as suite:
        with Spool(suite.root) as spool:
            for name in ("mine", "theirs"):
                spool.queue(name, create=True)
        sns = client(suite.url, key=own, service="sns")
        arn = sns.create_topic(Name="news")["TopicArn"]
        asked = {"TopicArn": arn, "Protocol": "sqs"}
        asked["Endpoint"] = f"arn:aws:sqs:us-east-1:{ACCOUNT}:mine"
        for target in ("theirs", "nowhere"):
            policy = {"deadLetterTargetArn": f"arn:aws:sqs:us-east-1:{ACCOUNT}:{target}"}
            given = {"RedrivePolicy": json.dumps(policy)}
            told = refusal(sns, "subscribe", **asked, Attributes=given)
            assert told[:2] == ("AuthorizationError", 403), target
        policy = {"deadLetterTargetArn": asked["Endpoint"]}
        sns.subscribe(**asked, Attributes={"RedrivePolicy": json.dumps(policy)})
