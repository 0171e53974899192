"""SQS: recorded answers of AWS in both protocols, and rules from its documentation."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import count
from typing import Any

import pytest

from tests.harness.suite import Suite, eventually
from tests.http.sqs.clients import JSON, QUERY, ask_json, ask_query, client
from tests.http.sqs.test_boto3 import arn_of
from tests.http.sqs.test_fifo import refusal

_numbers = count(1)
TRACE = "Root=1-3152b799-8954dae64eda91bc9a23a7e8;Parent=7fa8c0f79203be72;Sampled=1"
ACCOUNT = "000000000000"


@pytest.fixture(params=[JSON, QUERY])
def sqs(suite: Suite, request: pytest.FixtureRequest) -> Any:
    return client(suite.url, request.param)


def create(sqs: Any, *, name: str = "", end: str = "", **attributes: str) -> str:
    name = name or f"r{next(_numbers)}{end}"
    return str(sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])


def described(sqs: Any, url: str, *names: str) -> Mapping[str, str]:
    asked = list(names) or ["All"]
    found: Mapping[str, str] = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=asked).get(
        "Attributes", {}
    )
    return found


# -- flags -----------------------------------------------------------------------------------------


def test_flags_can_have_capitals(sqs: Any) -> None:
    """Python writes True."""
    given = {"FifoQueue": "True", "ContentBasedDeduplication": "False"}
    url = create(sqs, end=".fifo", **given)
    name = url.rpartition("/")[2]
    told = {"FifoQueue": "true", "ContentBasedDeduplication": "false"}
    assert described(sqs, url, *told) == told
    # The same with another spelling.
    assert create(sqs, name=name, **given) == url
    assert create(sqs, name=name, **told) == url
    for value in ("TRUE", "True", "true"):
        attributes = {"ContentBasedDeduplication": value, "SqsManagedSseEnabled": value}
        sqs.set_queue_attributes(QueueUrl=url, Attributes=attributes)
        assert described(sqs, url, *attributes) == dict.fromkeys(attributes, "true")
    for name in ("ContentBasedDeduplication", "SqsManagedSseEnabled"):
        code, _ = refusal(sqs, "set_queue_attributes", QueueUrl=url, Attributes={name: "yes"})
        assert code == "InvalidAttributeValue"


# -- the form without numbers ----------------------------------------------------------------------


def test_a_member_without_a_number_is_the_first_entry(suite: Suite) -> None:
    """AWS's reference has this form, and boto 2 sends it."""

    def ask(action: str, **members: str) -> str:
        given = {name.replace("__", "."): value for name, value in members.items()}
        answer = ask_query(f"{suite.url}/{ACCOUNT}/unnumbered", action, given)
        assert answer.status == 200, answer.body
        return answer.body.decode()

    ask("CreateQueue", QueueName="unnumbered", Tag__Key="team", Tag__Value="a")
    ask("SetQueueAttributes", Attribute__Name="VisibilityTimeout", Attribute__Value="77")
    told = ask("GetQueueAttributes", AttributeName="VisibilityTimeout")
    assert "<Name>VisibilityTimeout</Name><Value>77</Value>" in told
    assert "<Key>team</Key><Value>a</Value>" in ask("ListQueueTags")
    sent = {"MessageAttribute.Name": "color", "MessageAttribute.Value.DataType": "String"}
    sent |= {"MessageAttribute.Value.StringValue": "red", "MessageBody": "x"}
    ask("SendMessage", **sent)
    told = ask("ReceiveMessage", MessageAttributeName="color", WaitTimeSeconds="20")
    assert "<StringValue>red</StringValue>" in told
    entry = "SendMessageBatchRequestEntry"
    told = ask("SendMessageBatch", **{f"{entry}.Id": "one", f"{entry}.MessageBody": "y"})
    assert "<Id>one</Id>" in told
    # One without a number beside others is the first of them.
    told = ask(
        "SendMessageBatch",
        **{f"{entry}.Id": "a", f"{entry}.MessageBody": "y"},
        **{f"{entry}.2.Id": "b", f"{entry}.2.MessageBody": "y"},
    )
    assert told.index("<Id>a</Id>") < told.index("<Id>b</Id>")


# -- traces ----------------------------------------------------------------------------------------


def traces(sqs: Any, url: str, number: int) -> dict[str, str | None]:
    """The trace headers of the messages in a queue, by their bodies."""
    found: dict[str, str | None] = {}

    def all_came() -> bool:
        asked = {"MaxNumberOfMessages": 10, "AttributeNames": ["AWSTraceHeader"]}
        told = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5, **asked)
        for one in told.get("Messages", []):
            found[one["Body"]] = one.get("Attributes", {}).get("AWSTraceHeader")
        return len(found) == number

    eventually(all_came)
    return found


@pytest.mark.parametrize("ask", [ask_json, ask_query])
def test_the_trace_header_is_kept(suite: Suite, ask: Any) -> None:
    sqs = client(suite.url)
    url = create(sqs)
    headers = {"X-Amzn-Trace-Id": TRACE}
    own = {"DataType": "String", "StringValue": "Root=1-own"}
    if ask is ask_json:
        system: dict[str, Any] = {"MessageSystemAttributes": {"AWSTraceHeader": own}}
        entries: dict[str, Any] = {
            "Entries": [
                {"Id": "1", "MessageBody": "entry"},
                {"Id": "2", "MessageBody": "own entry", **system},
            ]
        }
    else:
        before = "MessageSystemAttribute.1"
        system = {f"{before}.Name": "AWSTraceHeader"}
        system |= {f"{before}.Value.{name}": value for name, value in own.items()}
        entry = "SendMessageBatchRequestEntry"
        entries = {f"{entry}.1.Id": "1", f"{entry}.1.MessageBody": "entry"}
        entries |= {f"{entry}.2.Id": "2", f"{entry}.2.MessageBody": "own entry"}
        entries |= {f"{entry}.2.{name}": value for name, value in system.items()}

    def send(action: str, more: Mapping[str, str], members: Mapping[str, Any]) -> bytes:
        answer = ask(suite.url + "/", action, {"QueueUrl": url, **members}, **more)
        assert answer.status == 200, answer.body
        told: bytes = answer.body
        return told

    # The trace header is not part of the MD5 of attributes.
    assert b"SystemAttributes" not in send("SendMessage", headers, {"MessageBody": "plain"})
    send("SendMessage", headers, {"MessageBody": "own", **system})
    send("SendMessage", {"x-amzn-trace-id": f"  {TRACE} "}, {"MessageBody": "small letters"})
    send("SendMessage", {"X-Amzn-Trace-Id": "R" * 2000}, {"MessageBody": "too long"})
    send("SendMessage", {}, {"MessageBody": "none"})
    send("SendMessageBatch", headers, entries)
    assert traces(sqs, url, 7) == {
        "plain": TRACE,
        "own": own["StringValue"],
        "small letters": TRACE,
        "too long": None,
        "none": None,
        "entry": TRACE,
        "own entry": own["StringValue"],
    }


# -- attributes ------------------------------------------------------------------------------------


def test_one_kind_of_encryption_at_a_time(sqs: Any) -> None:
    url = create(sqs)
    key = {"KmsMasterKeyId": "testKeyId"}
    both = {**key, "SqsManagedSseEnabled": "True"}
    words = (
        "InvalidAttributeName",
        "You can use one type of server-side encryption (SSE) at one time. You can either enable"
        " KMS SSE or SQS SSE.",
    )
    assert refusal(sqs, "set_queue_attributes", QueueUrl=url, Attributes=both) == words
    assert refusal(sqs, "create_queue", QueueName="both", Attributes=both) == words
    names = ("KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "SqsManagedSseEnabled")
    given = {**key, "KmsDataKeyReusePeriodSeconds": "6000", "SqsManagedSseEnabled": "false"}
    sqs.set_queue_attributes(QueueUrl=url, Attributes=given)
    assert described(sqs, url, *names) == given
    # The other kind replaces it, and the reuse period is shown with a key only.
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"SqsManagedSseEnabled": "true"})
    assert described(sqs, url, *names) == {"SqsManagedSseEnabled": "true"}
    sqs.set_queue_attributes(QueueUrl=url, Attributes=key)
    assert described(sqs, url, *names) == given
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"KmsMasterKeyId": ""})
    assert described(sqs, url, *names) == {"SqsManagedSseEnabled": "false"}
    assert described(sqs, create(sqs, **key), *names) == {
        **key,
        "KmsDataKeyReusePeriodSeconds": "300",
        "SqsManagedSseEnabled": "false",
    }


def test_attributes_of_fifo_queues_are_refused_on_a_standard_queue(sqs: Any) -> None:
    said = {
        "FifoQueue": "Unknown Attribute FifoQueue.",
        "ContentBasedDeduplication": "Unknown Attribute ContentBasedDeduplication.",
        "DeduplicationScope": "You can specify the DeduplicationScope only when FifoQueue is set"
        " to true.",
        "FifoThroughputLimit": "You can specify the FifoThroughputLimit only when FifoQueue is set"
        " to true.",
    }
    values = {"DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"}
    for name, words in said.items():
        given = {name: values.get(name, "false")}
        told = refusal(sqs, "create_queue", QueueName="standard", Attributes=given)
        assert told == ("InvalidAttributeName", words)


def test_a_queue_is_not_its_own_dead_letter_queue(sqs: Any) -> None:
    """AWS accepts it; fsmq refuses it on purpose."""
    url = create(sqs)
    policy = json.dumps({"deadLetterTargetArn": arn_of(sqs, url), "maxReceiveCount": "42"})
    code, words = refusal(
        sqs, "set_queue_attributes", QueueUrl=url, Attributes={"RedrivePolicy": policy}
    )
    assert code == "InvalidParameterValue"
    assert words.endswith("Reason: fsmq does not take a queue as its own dead-letter queue.")


def test_a_permission_is_a_statement_of_the_policy(sqs: Any) -> None:
    url = create(sqs)
    arn = arn_of(sqs, url)
    given = {"QueueUrl": url, "Label": "l", "AWSAccountIds": ["111111111111"]}
    sqs.add_permission(**given, Actions=["ReceiveMessage", "SendMessage"])
    assert json.loads(described(sqs, url, "Policy")["Policy"]) == {
        "Version": "2008-10-17",
        "Id": f"{arn}/SQSDefaultPolicy",
        "Statement": [
            {
                "Sid": "l",
                "Effect": "Allow",
                "Principal": {"AWS": "arn:aws:iam::111111111111:root"},
                "Action": ["SQS:ReceiveMessage", "SQS:SendMessage"],
                "Resource": arn,
            }
        ],
    }
    sqs.remove_permission(QueueUrl=url, Label="l")
    assert described(sqs, url, "Policy") == {}


def test_empty_lists_are_refused(suite: Suite) -> None:
    """In Query an empty list cannot be told from none."""
    sqs = client(suite.url)
    url = create(sqs)
    given = {"QueueUrl": url, "Label": "l", "AWSAccountIds": ["111111111111"]}
    assert refusal(sqs, "add_permission", **given, Actions=[]) == (
        "MissingParameter",
        "The request must contain the parameter Actions.",
    )
    given["AWSAccountIds"] = []
    assert refusal(sqs, "add_permission", **given, Actions=["ReceiveMessage"]) == (
        "InvalidParameterValue",
        "Value [] for parameter PrincipalId is invalid. Reason: Unable to verify.",
    )
    for verb, name in (("untag_queue", "TagKeys"), ("tag_queue", "Tags")):
        empty: Any = [] if name == "TagKeys" else {}
        assert refusal(sqs, verb, QueueUrl=url, **{name: empty}) == (
            "MissingParameter",
            f"The request must contain the parameter {name}.",
        )


# -- messages --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attribute", "words"),
    [
        (
            {"DataType": "String", "StringValue": ""},
            "Message (user) attribute 'a' must contain a non-empty value of type 'String'.",
        ),
        (
            {"DataType": "Number", "StringValue": ""},
            "Message (user) attribute 'a' must contain a non-empty value of type 'Number'.",
        ),
        (
            {"DataType": "Else", "StringValue": "x"},
            "The message attribute 'a' has an invalid message attribute type, the set of supported"
            " type prefixes is Binary, Number, and String.",
        ),
    ],
)
def test_refused_attributes_of_messages(sqs: Any, attribute: Any, words: str) -> None:
    given = {"MessageBody": "x", "MessageAttributes": {"a": attribute}}
    told = refusal(sqs, "send_message", QueueUrl=create(sqs), **given)
    assert told == ("InvalidParameterValue", words)


def test_a_fifo_dead_letter_has_its_message_id_as_deduplication_id(sqs: Any) -> None:
    dead = create(sqs, end=".fifo", FifoQueue="true")
    policy = json.dumps({"deadLetterTargetArn": arn_of(sqs, dead), "maxReceiveCount": 1})
    url = create(sqs, end=".fifo", FifoQueue="true", RedrivePolicy=policy)
    sent = {"MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "own"}
    sqs.send_message(QueueUrl=url, **sent)
    asked = {"AttributeNames": ["All"], "WaitTimeSeconds": 20}
    [first] = sqs.receive_message(QueueUrl=url, VisibilityTimeout=0, **asked)["Messages"]
    assert first["Attributes"]["MessageDeduplicationId"] == "own"
    [letter] = sqs.receive_message(QueueUrl=dead, **asked)["Messages"]
    assert letter["Attributes"]["MessageDeduplicationId"] == letter["MessageId"]
    assert letter["Attributes"]["MessageGroupId"] == "g"


# -- move tasks ------------------------------------------------------------------------------------


def test_a_queue_that_is_created_again_has_no_move_tasks(sqs: Any) -> None:
    name = f"anew{next(_numbers)}"

    def make() -> tuple[str, str, str]:
        dead = create(sqs, name=f"{name}-dead")
        policy = json.dumps({"deadLetterTargetArn": arn_of(sqs, dead), "maxReceiveCount": 1})
        return create(sqs, name=name, RedrivePolicy=policy), dead, arn_of(sqs, dead)

    def tasks(arn: str) -> list[str]:
        found = sqs.list_message_move_tasks(SourceArn=arn, MaxResults=10).get("Results", [])
        return [re.sub(r"\W", "", one["Status"]) for one in found]

    url, dead, arn = make()
    sqs.start_message_move_task(SourceArn=arn)
    eventually(lambda: tasks(arn) == ["COMPLETED"])
    for one in (url, dead):
        sqs.delete_queue(QueueUrl=one)
    make()
    assert tasks(arn) == []
    sqs.start_message_move_task(SourceArn=arn)
    eventually(lambda: tasks(arn) == ["COMPLETED"])
