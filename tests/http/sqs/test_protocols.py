"""Each error in both protocols, byte for byte, and the requests that are SQS's."""

from __future__ import annotations

import base64
import json
import re
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from fsmq.http.native.dialect import NativeDialect
from fsmq.http.sqs.dialect import NATIVE
from fsmq.http.sqs.errors import KINDS, SqsError
from fsmq.http.sqs.protocol import protocol
from tests.harness.suite import Suite
from tests.http.inside import Inside
from tests.http.sqs.clients import (
    Answer,
    ask_json,
    ask_query,
    check_refusal,
    client,
    error_in_xml,
    get,
    send,
)
from tests.http.test_limits import memory

OLD = "AWS.SimpleQueueService."
URL = "http://elsewhere.example/123456789012/errors"
SEND = {"QueueUrl": URL, "MessageBody": "x"}
GRANT = {"QueueUrl": URL, "Label": "l", "AWSAccountIds": ["1"]}
# The error in JSON, its code in Query, and the status.
NO_QUEUE = ("QueueDoesNotExist", OLD + "NonExistentQueue", 400)
EXISTS = ("QueueNameExists", "QueueAlreadyExists", 400)
INVALID = ("InvalidParameterValueException", "InvalidParameterValue", 400)
ATTRIBUTE = ("InvalidAttributeName", "InvalidAttributeName", 400)
ATTRIBUTE_VALUE = ("InvalidAttributeValue", "InvalidAttributeValue", 400)
MISSING = ("MissingRequiredParameterException", "MissingParameter", 400)
RECEIPT = ("ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", 400)
EMPTY = ("EmptyBatchRequest", OLD + "EmptyBatchRequest", 400)
TOO_MANY = ("TooManyEntriesInBatchRequest", OLD + "TooManyEntriesInBatchRequest", 400)
NOT_DISTINCT = ("BatchEntryIdsNotDistinct", OLD + "BatchEntryIdsNotDistinct", 400)
ENTRY_ID = ("InvalidBatchEntryId", OLD + "InvalidBatchEntryId", 400)
CONTENTS = ("InvalidMessageContents", "InvalidMessageContents", 400)
OVER_LIMIT = ("OverLimit", "OverLimit", 403)
NO_RESOURCE = ("ResourceNotFoundException", "ResourceNotFoundException", 404)
BAD_NAME = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
# Action, members, error, words (in JSON).
ERRORS: list[tuple[str, dict[str, Any], tuple[str, str, int], str]] = [
    ("GetQueueUrl", {"QueueName": "nowhere"}, NO_QUEUE, "The specified queue does not exist."),
    (
        "SendMessage",
        {**SEND, "QueueUrl": "nowhere"},
        NO_QUEUE,
        "The specified queue does not exist.",
    ),
    (
        "CreateQueue",
        {"QueueName": "errors", "Attributes": {"DelaySeconds": "9"}},
        EXISTS,
        "A queue already exists with the same name and a different value for attribute"
        " DelaySeconds",
    ),
    ("CreateQueue", {"QueueName": "no.name"}, INVALID, BAD_NAME),
    ("CreateQueue", {"QueueName": "_topics"}, INVALID, BAD_NAME),  # no name of a queue of fsmq
    (
        "CreateQueue",
        {"QueueName": "plain", "Attributes": {"FifoQueue": "true"}},
        INVALID,
        "The name of a FIFO queue can only include alphanumeric characters, hyphens, or"
        " underscores, must end with .fifo suffix and be 1 to 80 in length.",
    ),
    ("CreateQueue", {"QueueName": "a.fifo"}, INVALID, BAD_NAME),
    (
        "SendMessage",
        {**SEND, "MessageDeduplicationId": "d"},
        INVALID,
        "Value d for parameter MessageDeduplicationId is invalid. Reason: The request include"
        " parameter that is not valid for this queue type.",
    ),
    (
        "SetQueueAttributes",
        {"QueueUrl": "e.fifo", "Attributes": {"FifoQueue": "false"}},
        ATTRIBUTE_VALUE,
        "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported.",
    ),
    (
        "SendMessage",
        {"QueueUrl": "e.fifo", "MessageBody": "x"},
        MISSING,
        "The request must contain the parameter MessageGroupId.",
    ),
    (
        "SendMessageBatch",
        {"QueueUrl": "e.fifo", "Entries": ["a"]},
        INVALID,
        "The request must contain the parameter MessageGroupId.",
    ),
    (
        "SendMessage",
        {"QueueUrl": "e.fifo", "MessageBody": "x", "MessageGroupId": "g"},
        INVALID,
        "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId"
        " provided explicitly",
    ),
    (
        "SendMessage",
        {"QueueUrl": "e.fifo", "MessageBody": "x", "MessageGroupId": "a b"},
        INVALID,
        "Value a b for parameter MessageGroupId is invalid. Reason: MessageGroupId can only include"
        " alphanumeric and punctuation characters. 1 to 128 in length.",
    ),
    (
        "SendMessage",
        {
            "QueueUrl": "e.fifo",
            "MessageBody": "x",
            "MessageGroupId": "g",
            "MessageDeduplicationId": "d",
            "DelaySeconds": 1,
        },
        INVALID,
        "Value 1 for parameter DelaySeconds is invalid. Reason: The request include parameter that"
        " is not valid for this queue type.",
    ),
    (
        "DeleteMessage",
        {"QueueUrl": URL, "ReceiptHandle": "H"},
        RECEIPT,
        'The input receipt handle "H" is not a valid receipt handle.',
    ),
    (
        "SetQueueAttributes",
        {"QueueUrl": URL, "Attributes": {"No": "1"}},
        ATTRIBUTE,
        "Unknown Attribute No.",
    ),
    (
        "GetQueueAttributes",
        {"QueueUrl": URL, "AttributeNames": ["No"]},
        ATTRIBUTE,
        "Unknown Attribute No.",
    ),
    (
        "SetQueueAttributes",
        {"QueueUrl": URL, "Attributes": {"DelaySeconds": "901"}},
        ATTRIBUTE_VALUE,
        "Invalid value for the parameter DelaySeconds.",
    ),
    (
        "SetQueueAttributes",
        {"QueueUrl": URL, "Attributes": {"DeduplicationScope": "queue"}},
        ATTRIBUTE,
        "You can specify the DeduplicationScope only when FifoQueue is set to true.",
    ),
    (
        "SendMessageBatch",
        {"QueueUrl": URL},
        EMPTY,
        "There should be at least one SendMessageBatchRequestEntry in the request.",
    ),
    (
        "SendMessageBatch",
        {"QueueUrl": URL, "Entries": list(map(str, range(11)))},
        TOO_MANY,
        "Maximum number of entries per request are 10. You have sent 11.",
    ),
    (
        "SendMessageBatch",
        {"QueueUrl": URL, "Entries": ["a", "b", "a"]},
        NOT_DISTINCT,
        "Id a repeated.",
    ),
    (
        "SendMessageBatch",
        {"QueueUrl": URL, "Entries": ["a b"]},
        ENTRY_ID,
        "A batch entry id can only contain alphanumeric characters, hyphens and underscores."
        " It can be at most 80 letters long.",
    ),
    (
        "SendMessage",
        {"QueueUrl": URL},
        MISSING,
        "The request must contain the parameter MessageBody.",
    ),
    (
        "SendMessage",
        {**SEND, "MessageBody": "\x02"},
        CONTENTS,
        "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD |"
        " #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
    ),
    (
        "SendMessage",
        {**SEND, "DelaySeconds": 901},
        INVALID,
        "Value 901 for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0"
        " and <= 900.",
    ),
    (
        "SendMessage",
        {**SEND, "MessageBody": "x" * 1025},
        INVALID,
        "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes.",
    ),
    (
        "ReceiveMessage",
        {"QueueUrl": URL, "WaitTimeSeconds": 21},
        INVALID,
        "Value 21 for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20,"
        " if provided.",
    ),
    (
        "ChangeMessageVisibility",
        {"QueueUrl": URL, "ReceiptHandle": "H", "VisibilityTimeout": 43201},
        INVALID,
        "Value 43201 for parameter VisibilityTimeout is invalid. Reason: Must be between 0 and"
        " 43200, if provided.",
    ),
    (
        "ReceiveMessage",
        {"QueueUrl": URL, "AttributeNames": ["No"]},
        ATTRIBUTE,
        "Unknown Attribute No.",
    ),
    (
        "SetQueueAttributes",
        {"QueueUrl": URL, "Attributes": {"RedrivePolicy": "{}"}},
        INVALID,
        "Value {} for parameter RedrivePolicy is invalid. Reason: Redrive policy does not contain"
        " mandatory attribute: deadLetterTargetArn.",
    ),
    (
        "AddPermission",
        {
            "QueueUrl": URL,
            "Label": "l",
            "AWSAccountIds": ["1"],
            "Actions": [f"a{n}" for n in range(8)],
        },
        OVER_LIMIT,
        "8 Actions were found, maximum allowed is 7.",
    ),
    (
        "AddPermission",
        {**GRANT, "Actions": ["SendMessage", "RemovePermission"]},
        INVALID,
        "Value SQS:RemovePermission for parameter ActionName is invalid. Reason: Only the queue"
        " owner is allowed to invoke this action.",
    ),
    (
        "AddPermission",
        {**GRANT, "Actions": ["Nonsense"]},
        INVALID,
        "Value SQS:Nonsense for parameter ActionName is invalid. Reason: Please refer to the"
        " appropriate WSDL for a list of valid actions.",
    ),
    (
        "RemovePermission",
        {"QueueUrl": URL, "Label": "gone"},
        INVALID,
        "Value gone for parameter Label is invalid. Reason: can't find label.",
    ),
    (
        "TagQueue",
        {"QueueUrl": URL, "Tags": {f"k{n}": "" for n in range(51)}},
        INVALID,
        "Too many tags added for queue errors.",
    ),
    (
        "StartMessageMoveTask",
        {"SourceArn": "arn:aws:sqs:us-east-1:000000000000:gone"},
        NO_RESOURCE,
        "The resource that you specified for the SourceArn parameter doesn't exist.",
    ),
    (
        "StartMessageMoveTask",
        {"SourceArn": "arn:aws:sqs:us-east-1:000000000000:errors"},
        INVALID,
        "Source queue must be configured as a Dead Letter Queue.",
    ),
    (
        "ListMessageMoveTasks",
        {"SourceArn": "short"},
        INVALID,
        "Value short for parameter SourceArn is invalid. Reason: It is not the ARN of a queue.",
    ),
    (
        "CancelMessageMoveTask",
        {"TaskHandle": "no"},
        INVALID,
        "Value for parameter TaskHandle is invalid.",
    ),
    (
        "ReceiveMessage",
        {"QueueUrl": URL, "MaxNumberOfMessages": 11},
        INVALID,
        "Value 11 for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and 10,"
        " if provided.",
    ),
]


@pytest.fixture(scope="module", autouse=True)
def queue(suite: Suite) -> None:
    sqs = client(suite.url)
    sqs.create_queue(QueueName="errors", Attributes={"MaximumMessageSize": "1024"})
    sqs.create_queue(QueueName="e.fifo", Attributes={"FifoQueue": "true"})


@pytest.mark.parametrize(("action", "members", "error", "words"), ERRORS, ids=str)
def test_an_error_has_the_same_content_in_both_protocols(
    suite: Suite, action: str, members: dict[str, Any], error: tuple[str, str, int], words: str
) -> None:
    in_json = ask_json(suite.url, action, for_json(members))
    old = ask_query(suite.url, action, flat(members))
    check_refusal(action, in_json, old, *error, words)


def for_json(members: Mapping[str, Any]) -> dict[str, Any]:
    entries = [{"Id": name, "MessageBody": "x"} for name in members.get("Entries", [])]
    return {**members, "Entries": entries}


_LISTS = {
    "AttributeNames": "AttributeName",
    "AWSAccountIds": "AWSAccountId",
    "Actions": "ActionName",
    "TagKeys": "TagKey",
}


def flat(members: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in members.items():
        if name in ("Attributes", "Tags"):
            entry, key_name = ("Tag", "Key") if name == "Tags" else ("Attribute", "Name")
            for n, (key, one) in enumerate(value.items(), 1):
                found |= {f"{entry}.{n}.{key_name}": key, f"{entry}.{n}.Value": one}
        elif name in _LISTS:
            found |= {f"{_LISTS[name]}.{n}": one for n, one in enumerate(value, 1)}
        elif name == "Entries":
            for n, one in enumerate(value, 1):
                entry = f"SendMessageBatchRequestEntry.{n}"
                found |= {f"{entry}.Id": one, f"{entry}.MessageBody": "x"}
        else:
            found[name] = value
    return found


def test_a_batch_of_more_than_a_mebibyte_fails_as_a_whole(suite: Suite) -> None:
    sqs = client(suite.url)
    url = sqs.create_queue(QueueName="large")["QueueUrl"]
    whole = sqs.send_message(QueueUrl=url, MessageBody="x" * 1_048_576)
    assert whole["MessageId"]
    entries = [{"Id": str(n), "MessageBody": "x" * 524_289} for n in range(2)]
    form: dict[str, str] = {"QueueUrl": url}
    for entry in entries:
        named = f"SendMessageBatchRequestEntry.{int(entry['Id']) + 1}"
        form |= {f"{named}.{name}": value for name, value in entry.items()}
    action = "SendMessageBatch"
    check_refusal(
        action,
        ask_json(suite.url, action, {"QueueUrl": url, "Entries": entries}),
        ask_query(suite.url, action, form),
        "BatchRequestTooLong",
        OLD + "BatchRequestTooLong",
        400,
        "Batch requests cannot be longer than 1048576 bytes. You have sent 1048578 bytes.",
    )


def test_unknown_actions(suite: Suite) -> None:
    none = ask_query(suite.url, None, {"Version": "2012-11-05"})
    assert (none.status, none.body) == (404, b"<UnknownOperationException/>")
    unknown = ask_query(suite.url, "Nothing", {})
    words = "The action Nothing is not valid for this endpoint."
    assert unknown.body.decode() == error_in_xml("InvalidAction", words, unknown)
    in_json = ask_json(suite.url, "Nothing", {})
    assert in_json.status == 400
    told = json.loads(in_json.body)["__type"]
    assert told == "com.amazon.coral.service#UnknownOperationException"
    by_path = get(f"{suite.url}/000000000000/errors?Action=ListQueues")
    assert b"InvalidAction" in by_path.body
    who = ask_query(suite.url, "GetCallerIdentity", {"Version": "2011-06-15"})
    assert b"<Account>000000000000</Account>" in who.body


def test_a_queue_is_named_by_its_url_or_in_the_path(suite: Suite) -> None:
    def is_found(answer: Answer) -> bool:
        return b"QueueArn" in answer.body

    names = {"AttributeName.1": "QueueArn"}
    for url in ("errors", "https://sqs.eu.example/queue/eu-west-1/123456789012/errors", f"{URL}/"):
        given = {"QueueUrl": url, "AttributeNames": ["QueueArn"]}
        assert is_found(ask_json(suite.url, "GetQueueAttributes", given))
    for path in ("/000000000000/errors", "/queue/eu-west-1/123456789012/errors"):
        assert is_found(ask_query(suite.url + path, "GetQueueAttributes", names))
        query = "?Action=GetQueueAttributes&AttributeName.1=QueueArn"
        assert is_found(get(suite.url + path + query))
        given = {"AttributeNames": ["QueueArn"]}
        assert is_found(ask_json(suite.url + path, "GetQueueAttributes", given))
    assert get(f"{suite.url}/?Action=ListQueues&Version=2012-11-05").status == 200


def test_native_paths_are_not_taken_over(suite: Suite) -> None:
    assert json.loads(get(suite.url).body)["queues"]
    told = {"Content-Type": "application/x-www-form-urlencoded"}
    native = ask_query(f"{suite.url}/000000000000/messages", "SendMessage", {}, **told)
    assert native.status == 404
    assert native.headers["Content-Type"] == "application/problem+json"
    sqs = client(suite.url)
    url = sqs.create_queue(QueueName="messages")["QueueUrl"]
    given = {"MessageBody": "x"}
    assert ask_json(url, "SendMessage", given).status == 200


def test_the_reserved_path_segments_are_those_of_the_native_dialect(root: Any) -> None:
    with Inside(root) as server:
        routes = NativeDialect(server.service).router.routes()
    found = (re.fullmatch(r"/{queue}/([a-z-]+)", path) for _, path, *_ in routes)
    behind = {match[1] for match in found if match}
    assert behind == NATIVE


@pytest.mark.parametrize("name", sorted(KINDS))
def test_each_error_has_its_code_in_both_protocols(name: str) -> None:
    """Errors that no request can provoke are included, as a full disk or a bug."""
    kind = KINDS[name]
    error = SqsError(name, 'It is "so".', retry_after=3)
    answers = []
    for refuse in (protocol.refuse_json, protocol.refuse_query):
        response = refuse(error, "an-id")
        assert isinstance(response.body, bytes)
        assert response.headers["Retry-After"] == "3"
        answers.append(Answer(response.status, response.headers, response.body))
    check_refusal(name, *answers, name, kind.legacy, kind.status, error.words)


def test_the_errors_are_those_of_amazons_model(suite: Suite) -> None:
    model = client(suite.url).meta.service_model
    known = {one.name for one in model.error_shapes if not one.name.startswith("Kms")}
    never_sent = {"InvalidAddress", "InvalidIdFormat", "InvalidSecurity", "MessageNotInflight"}
    never_sent |= {"PurgeQueueInProgress", "QueueDeletedRecently"}
    assert known - KINDS.keys() == never_sent


def test_a_form_of_twenty_thousand_parameters_is_refused(suite: Suite) -> None:
    refused = ask_query(suite.url, "ListQueues", {f"x{n}": "" for n in range(20_000)})
    assert refused.status == 400
    deep = ask_json(suite.url, "ListQueues", b"[" * 100_000)
    assert deep.status == 400
    assert b"SerializationException" in deep.body


@pytest.mark.parametrize("many", [["a"], {"a": "b"}])
def test_a_list_of_twenty_thousand_entries_is_refused(suite: Suite, many: Any) -> None:
    """As many entries as a form can have parameters."""
    action, member = ("UntagQueue", "TagKeys") if many == ["a"] else ("TagQueue", "Tags")
    for number, refused in ((10_000, False), (20_000, True)):
        given = many * number if many == ["a"] else {f"a{n}": "b" for n in range(number)}
        body = {"QueueUrl": "http://x/000000000000/none", member: given}
        answer = ask_json(suite.url, action, json.dumps(body).encode())
        assert answer.status == 400
        assert (b"more than 10000" in answer.body) == refused


@pytest.mark.parametrize(
    ("action", "given"),
    [
        ("SetQueueAttributes", "QueueUrl=texts&Attribute.1.Name=Policy&Attribute.1.Value="),
        ("SetQueueAttributes", "QueueUrl=texts&Attribute.1.Name=RedrivePolicy&Attribute.1.Value="),
        ("CancelMessageMoveTask", "TaskHandle="),
        ("Publish", "TopicArn=arn:aws:sns:r:1:texts&MessageStructure=json&Message="),
        (
            "SetTopicAttributes",
            "TopicArn=arn:aws:sns:r:1:texts&AttributeName=Policy&AttributeValue=",
        ),
    ],
)
def test_json_in_a_form_takes_little_memory(suite: Suite, action: str, given: str) -> None:
    """The memory for JSON within a form is not reserved."""
    ask_query(suite.url, "CreateQueue", {"QueueName": "texts"})
    ask_query(suite.url, "CreateTopic", {"Name": "texts"})
    text = b'{"a":[' + b"{}," * 1_300_000 + b"{}]}"
    if action == "CancelMessageMoveTask":
        text = quote(base64.b64encode(b'{"a":[' + b"{}," * 900_000 + b"{}]}")).encode()
    Path(f"/proc/{suite['mq'].pid}/clear_refs").write_text("5")  # reset the peak
    before = memory(suite)
    body = f"Action={action}&{given}".encode() + text
    answer = send(urllib.request.Request(suite.url, body))
    assert answer.status == 400
    assert memory(suite, "VmHWM") - before < 64 * 1024 * 1024
