"""FIFO queues: order within groups, blocked groups and errors."""

from __future__ import annotations

import hashlib
import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest

from tests.harness.suite import Suite, eventually
from tests.http.sqs.clients import JSON, QUERY, client

_numbers = count(1)
ALL = {"MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"]}


@pytest.fixture(scope="module")
def clients(suite: Suite) -> dict[str, Any]:
    return {protocol: client(suite.url, protocol) for protocol in (JSON, QUERY)}


@pytest.fixture
def sqs(clients: dict[str, Any]) -> Any:
    return clients[JSON]


def create(sqs: Any, name: str = "", **attributes: str) -> str:
    given = {"FifoQueue": "true", "VisibilityTimeout": "600", **attributes}
    name = name or f"q{next(_numbers)}.fifo"
    return str(sqs.create_queue(QueueName=name, Attributes=given)["QueueUrl"])


def send(sqs: Any, url: str, *messages: str) -> list[Any]:
    """Send messages, each in the group of its first letter."""
    return [
        sqs.send_message(
            QueueUrl=url,
            MessageBody=body,
            MessageGroupId=body[0],
            MessageDeduplicationId=f"{next(_numbers)}",
        )
        for body in messages
    ]


def receive(sqs: Any, url: str, wait: int = 20, **options: Any) -> list[Any]:
    given = {"MaxNumberOfMessages": 10, "WaitTimeSeconds": wait, **ALL, **options}
    found: list[Any] = sqs.receive_message(QueueUrl=url, **given).get("Messages", [])
    return found


def bodies(messages: list[Any]) -> list[str]:
    return [message["Body"] for message in messages]


def delete(sqs: Any, url: str, *messages: Any) -> None:
    for message in messages:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def release(sqs: Any, url: str, *messages: Any) -> None:
    for one in messages:
        sqs.change_message_visibility(
            QueueUrl=url, ReceiptHandle=one["ReceiptHandle"], VisibilityTimeout=0
        )


def refusal(sqs: Any, verb: str, **given: Any) -> tuple[str, str]:
    with pytest.raises(sqs.exceptions.ClientError) as error:
        getattr(sqs, verb)(**given)
    told = error.value.response["Error"]
    return told["Code"], told["Message"]


@pytest.mark.parametrize("protocol", [JSON, QUERY])
def test_messages_come_in_order_and_have_sequence_numbers(
    clients: dict[str, Any], protocol: str
) -> None:
    sqs = clients[protocol]
    url = create(sqs)
    sent = send(sqs, url, "a1", "a2", "b1")
    entries = [
        {"Id": str(n), "MessageBody": f"a{n}", "MessageGroupId": "a"}
        | {"MessageDeduplicationId": f"batch-{n}"}
        for n in (3, 4)
    ]
    sent += sqs.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]
    numbers = [one["SequenceNumber"] for one in sent]
    assert numbers == sorted(set(numbers))
    assert {len(number) for number in numbers} == {20}
    found = receive(sqs, url)
    assert bodies(found) == ["a1", "a2", "a3", "a4", "b1"]
    system = found[3]["Attributes"]
    assert system["MessageGroupId"] == "a"
    assert system["MessageDeduplicationId"] == "batch-4"
    assert system["SequenceNumber"] == numbers[4]
    assert found[3]["MessageId"] == sent[4]["MessageId"]
    assert "MessageAttributes" not in found[3]


def test_a_group_waits_for_its_messages_in_flight(sqs: Any) -> None:
    url = create(sqs)
    send(sqs, url, "a1", "a2", "a3", "b1")
    a1, a2, a3, b1 = receive(sqs, url)
    assert receive(sqs, url, wait=0) == []
    send(sqs, url, "a4", "c1")
    [c1] = receive(sqs, url)  # a new message opens no group
    assert c1["Body"] == "c1"
    # Messages behind one in flight are held back, messages before it are not.
    release(sqs, url, a1, a3)
    [a1] = receive(sqs, url)
    assert a1["Body"] == "a1"
    delete(sqs, url, a1)
    assert receive(sqs, url, wait=0) == []
    delete(sqs, url, a2)
    assert bodies(receive(sqs, url)) == ["a3", "a4"]
    delete(sqs, url, b1)


def test_groups_take_turns(sqs: Any) -> None:
    url = create(sqs)
    send(sqs, url, "a1", "b1", "a2")
    [a1] = receive(sqs, url, MaxNumberOfMessages=1)
    release(sqs, url, a1)
    [b1] = receive(sqs, url, MaxNumberOfMessages=1)
    assert (a1["Body"], b1["Body"]) == ("a1", "b1")
    assert bodies(receive(sqs, url)) == ["a1", "a2"]


def test_a_receipt_is_refused_when_its_claim_has_ended(sqs: Any) -> None:
    url = create(sqs)
    send(sqs, url, "a1")
    [old] = receive(sqs, url)
    release(sqs, url, old)
    handle = old["ReceiptHandle"]
    words = (
        "InvalidParameterValue",
        f"Value {handle} for parameter ReceiptHandle is invalid."
        + " Reason: The receipt handle has expired.",
    )
    in_batch = {
        "Id": "x",
        "SenderFault": True,
        "Code": "ReceiptHandleIsInvalid",
        "Message": "The receipt handle has expired",
    }
    given = {"QueueUrl": url, "ReceiptHandle": handle}

    def is_refused() -> None:
        assert refusal(sqs, "delete_message", **given) == words
        assert refusal(sqs, "change_message_visibility", VisibilityTimeout=9, **given) == words
        entries = [{"Id": "x", "ReceiptHandle": handle}]
        told = sqs.delete_message_batch(QueueUrl=url, Entries=entries)
        assert told["Failed"] == [in_batch]
        assert "Successful" not in told
        entries[0]["VisibilityTimeout"] = 9
        told = sqs.change_message_visibility_batch(QueueUrl=url, Entries=entries)
        assert told["Failed"] == [in_batch]

    is_refused()  # it is visible again
    [now] = receive(sqs, url)
    is_refused()  # another client has it
    delete(sqs, url, now, now, old)  # a repeated deletion succeeds


def test_a_receive_is_repeated_by_its_attempt_id(sqs: Any) -> None:
    url = create(sqs)
    assert receive(sqs, url, wait=0, ReceiveRequestAttemptId="one") == []
    send(sqs, url, "a1", "a2", "b1", "b2")
    first = receive(sqs, url, MaxNumberOfMessages=2, ReceiveRequestAttemptId="one")
    assert bodies(first) == ["a1", "a2"]
    again = receive(sqs, url, MaxNumberOfMessages=2, ReceiveRequestAttemptId="one")
    assert again == first
    other = receive(sqs, url, ReceiveRequestAttemptId="two")
    assert bodies(other) == ["b1", "b2"]
    release(sqs, url, other[1])
    assert receive(sqs, url, wait=0, ReceiveRequestAttemptId="two") == []
    delete(sqs, url, *receive(sqs, url, ReceiveRequestAttemptId="one"))
    assert receive(sqs, url, wait=0, ReceiveRequestAttemptId="one") == []
    assert refusal(sqs, "receive_message", QueueUrl=url, ReceiveRequestAttemptId="a b")[0] == (
        "InvalidParameterValue"
    )


@pytest.mark.parametrize("protocol", [JSON, QUERY])
def test_a_repeated_send_is_stored_once(clients: dict[str, Any], protocol: str) -> None:
    sqs = clients[protocol]
    url = create(sqs, ContentBasedDeduplication="true")
    given = {"QueueUrl": url, "MessageGroupId": "g"}
    first = sqs.send_message(MessageBody="x", **given)
    by_name = hashlib.sha256(b"x").hexdigest()
    for again in (
        sqs.send_message(MessageBody="x", **given),
        # A deduplication id can equal a digest of contents.
        sqs.send_message(MessageBody="y", MessageDeduplicationId=by_name, **given),
    ):
        assert again["MessageId"] == first["MessageId"]
        assert again["SequenceNumber"] == first["SequenceNumber"]
    assert again["MD5OfMessageBody"] == hashlib.md5(b"y").hexdigest()
    [message] = receive(sqs, url)
    assert message["Body"] == "x"
    assert message["Attributes"]["MessageDeduplicationId"] == by_name
    delete(sqs, url, message)
    # Also after the deletion and in batches; until a purge.
    entries = [
        {"Id": "1", "MessageBody": "x", "MessageGroupId": "other"},
        {"Id": "2", "MessageBody": "z", "MessageGroupId": "other"},
        {"Id": "3", "MessageBody": "z", "MessageGroupId": "other"},
    ]
    told = sqs.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]
    assert told[0]["MessageId"] == first["MessageId"]
    assert told[1]["SequenceNumber"] == told[2]["SequenceNumber"] > first["SequenceNumber"]
    assert bodies(receive(sqs, url)) == ["z"]
    sqs.purge_queue(QueueUrl=url)
    anew = sqs.send_message(MessageBody="x", **given)
    assert anew["SequenceNumber"] > first["SequenceNumber"]
    assert bodies(receive(sqs, url)) == ["x"]


def test_deduplication_keeps_the_scope_of_the_creation(sqs: Any) -> None:
    limits = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
    urls = [create(sqs, **limits), create(sqs)]
    sqs.set_queue_attributes(QueueUrl=urls[1], Attributes=limits)
    for url, expected in zip(urls, (2, 1), strict=True):
        sent = {
            sqs.send_message(
                QueueUrl=url, MessageBody="x", MessageGroupId=group, MessageDeduplicationId="d"
            )["MessageId"]
            for group in "abab"
        }
        assert len(sent) == expected
        assert len(receive(sqs, url)) == expected


def test_attributes_of_fifo_queues(sqs: Any) -> None:
    url = create(sqs, "attributes.fifo", ContentBasedDeduplication="true")
    asked = {"QueueUrl": url, "AttributeNames": ["All"]}
    found = sqs.get_queue_attributes(**asked)["Attributes"]
    assert found["QueueArn"].endswith(":attributes.fifo")
    assert {name: found[name] for name in found if "Fifo" in name or "Dedup" in name} == {
        "FifoQueue": "true",
        "ContentBasedDeduplication": "true",
        "DeduplicationScope": "queue",
        "FifoThroughputLimit": "perQueue",
    }
    limits = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
    sqs.set_queue_attributes(QueueUrl=url, Attributes=limits)
    found = sqs.get_queue_attributes(**asked)["Attributes"]
    assert limits.items() <= found.items()
    assert create(sqs, "attributes.fifo", ContentBasedDeduplication="true", **limits) == url
    with pytest.raises(sqs.exceptions.QueueNameExists):
        create(sqs, "attributes.fifo", ContentBasedDeduplication="false")


def test_the_throughput_limit_is_checked_against_the_current_scope(sqs: Any, suite: Suite) -> None:
    """The scope can be changed natively."""
    url = create(sqs, "native-scope.fifo")
    scope = b'{"dedup_scope": "group"}'
    native = urllib.request.Request(f"{suite.url}/native-scope.fifo", scope, method="PATCH")
    urllib.request.urlopen(native).close()
    limit = {"FifoThroughputLimit": "perMessageGroupId"}
    sqs.set_queue_attributes(QueueUrl=url, Attributes=limit)
    told = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert told["DeduplicationScope"] == "messageGroup"
    assert told["FifoThroughputLimit"] == "perMessageGroupId"


def test_the_dead_letter_queue_of_a_fifo_queue_is_fifo(sqs: Any) -> None:
    dead = create(sqs)
    plain = sqs.create_queue(QueueName=f"q{next(_numbers)}")["QueueUrl"]

    def policy(url: str) -> dict[str, str]:
        asked = {"QueueUrl": url, "AttributeNames": ["QueueArn"]}
        arn = sqs.get_queue_attributes(**asked)["Attributes"]["QueueArn"]
        return {"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "1"})}

    source = create(sqs, **policy(dead))
    send(sqs, source, "a1", "a2", "a3")
    release(sqs, source, *receive(sqs, source))
    found: list[Any] = []
    while len(found) < 3:
        found += receive(sqs, dead)
    assert bodies(found) == ["a1", "a2", "a3"]
    assert {one["Attributes"]["MessageGroupId"] for one in found} == {"a"}
    # A move task brings them back to their places in the group.
    release(sqs, dead, *found)
    send(sqs, source, "a4")
    asked = {"QueueUrl": dead, "AttributeNames": ["QueueArn"]}
    arn = sqs.get_queue_attributes(**asked)["Attributes"]["QueueArn"]
    sqs.start_message_move_task(SourceArn=arn)

    def is_moved() -> bool:
        [task] = sqs.list_message_move_tasks(SourceArn=arn)["Results"]
        return bool(task["Status"] == "COMPLETED")

    eventually(is_moved)
    assert bodies(receive(sqs, source)) == ["a1", "a2", "a3", "a4"]
    for url, other in ((source, plain), (plain, dead)):
        given = {"QueueUrl": url, "Attributes": policy(other)}
        assert "same type of queue" in refusal(sqs, "set_queue_attributes", **given)[1]


def test_order_holds_for_several_receivers(sqs: Any) -> None:
    url = create(sqs)
    groups, each = "abcde", 12
    for n in range(each):
        entries = [
            {"Id": group, "MessageBody": f"{group}{n:02}", "MessageGroupId": group}
            | {"MessageDeduplicationId": f"{group}{n}"}
            for group in groups
        ]
        sqs.send_message_batch(QueueUrl=url, Entries=entries)
    seen: list[str] = []

    def work(_: int) -> None:
        while len(seen) < len(groups) * each:
            for message in receive(sqs, url, wait=1, MaxNumberOfMessages=3):
                seen.append(message["Body"])
                delete(sqs, url, message)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(work, range(3)))
    for group in groups:
        assert [one for one in seen if one[0] == group] == [f"{group}{n:02}" for n in range(each)]


def test_groups_are_shared_with_the_native_dialect(sqs: Any, suite: Suite) -> None:
    url = create(sqs, "native.fifo")
    post = urllib.request.Request(f"{suite.url}/native.fifo/messages?group=g", b"x", method="POST")
    with urllib.request.urlopen(post, timeout=60) as answer:
        assert answer.status == 201
    [message] = receive(sqs, url)
    assert message["Attributes"]["MessageGroupId"] == "g"
    delete(sqs, url, message)
    send(sqs, url, "a1")

    def native() -> Any:
        asked = f"{suite.url}/native.fifo/messages?wait=20"
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return dict(answer.headers) if answer.status == 200 else None

    assert eventually(native)["X-Message-Group"] == "a"
