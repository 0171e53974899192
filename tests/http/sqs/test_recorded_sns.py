"""SNS: recorded answers of AWS."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.harness.suite import Suite
from tests.http.sqs.clients import boto3, get, refusal
from tests.http.sqs.test_sns import ACCOUNT, Subscribed, topic

ANY = "Invalid parameter: "
IN_SUBSCRIBE = f"{ANY}Attributes Reason: "
TRACE = "Root=1-3152b799-8954dae64eda91bc9a23a7e8;Parent=7fa8c0f79203be72;Sampled=1"


@pytest.fixture(scope="module")
def unchecked(suite: Suite) -> Any:
    """A client that does not validate parameters."""
    return boto3.client(
        "sns",
        endpoint_url=suite.url,
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=boto3.session.Config(parameter_validation=False),
    )


# -- topics ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["True", "true", "TRUE"])
def test_flags_of_topics_can_have_capitals(sns: Any, value: str) -> None:
    name = f"flags-{value}.fifo"
    given = {"FifoTopic": value, "ContentBasedDeduplication": "False"}
    arn = sns.create_topic(Name=name, Attributes=given)["TopicArn"]
    assert sns.create_topic(Name=name, Attributes=given)["TopicArn"] == arn
    change = {"TopicArn": arn, "AttributeName": "ContentBasedDeduplication"}
    sns.set_topic_attributes(**change, AttributeValue=value)
    found = sns.get_topic_attributes(TopicArn=arn)["Attributes"]
    assert (found["FifoTopic"], found["ContentBasedDeduplication"]) == ("true", "true")


def test_creating_a_topic_again_with_the_same_attributes(sns: Any) -> None:
    tags = [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}]
    given = {"Name": "again", "Attributes": {"DisplayName": "Value1"}}
    arn = sns.create_topic(**given, Tags=tags)["TopicArn"]
    for same in ({"Tags": tags}, {"Tags": tags[:1]}, {"Tags": []}, {}):
        assert sns.create_topic(Name="again", **same)["TopicArn"] == arn
    for attributes in ({"DisplayName": "Value1"}, {"FifoTopic": "false"}, {}):
        assert sns.create_topic(Name="again", Attributes=attributes)["TopicArn"] == arn
    more = [{"Key": "c", "Value": "3"}]
    words = f"{ANY}Tags Reason: Topic already exists with different tags"
    for other in (more, [*tags, *more], [{"Key": "a", "Value": "2"}]):
        assert refusal(sns, "create_topic", Name="again", Tags=other)[2] == words
    words = f"{IN_SUBSCRIBE}Topic already exists with different attributes"
    for attributes in (
        {"DisplayName": "Value2"},
        {"SignatureVersion": "2"},
        {"SignatureVersion": "2", "DisplayName": "Value1"},
    ):
        assert refusal(sns, "create_topic", Name="again", Attributes=attributes)[2] == words


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("a.fifo", {}),
        ("a", {"FifoTopic": "true"}),
        ("a" * 257, {}),
        *((f"bad{one}name", {}) for one in ".:;!@|^% "),
    ],
)
def test_refused_names_of_topics(sns: Any, name: str, attributes: dict[str, str]) -> None:
    told = refusal(sns, "create_topic", Name=name, Attributes=attributes)
    assert told == ("InvalidParameter", 400, f"{ANY}Topic Name")


def test_duplicate_tags_are_refused(sns: Any) -> None:
    arn = topic(sns)
    tags = [{"Key": "k", "Value": "v"}, {"Key": "k", "Value": "w"}]
    words = ("InvalidParameter", 400, f"{ANY}Duplicated keys are not allowed.")
    assert refusal(sns, "tag_resource", ResourceArn=arn, Tags=tags) == words
    assert refusal(sns, "create_topic", Name="twice", Tags=tags) == words
    assert sns.list_tags_for_resource(ResourceArn=arn)["Tags"] == []
    many = [{"Key": f"k{n}", "Value": ""} for n in range(51)]
    assert refusal(sns, "tag_resource", ResourceArn=arn, Tags=many) == (
        "TagLimitExceeded",
        400,
        "Could not complete request: tag quota of per resource exceeded",
    )


def test_a_topic_shows_its_policies(sns: Any) -> None:
    arn = topic(sns)
    found = sns.get_topic_attributes(TopicArn=arn)["Attributes"]
    [statement] = json.loads(found["Policy"])["Statement"]
    assert statement["Action"] == [
        "SNS:GetTopicAttributes",
        "SNS:SetTopicAttributes",
        "SNS:AddPermission",
        "SNS:RemovePermission",
        "SNS:DeleteTopic",
        "SNS:Subscribe",
        "SNS:ListSubscriptionsByTopic",
        "SNS:Publish",
    ]
    delivery = json.loads(found["EffectiveDeliveryPolicy"])["http"]
    assert delivery["defaultRequestPolicy"] == {"headerContentType": "text/plain; charset=UTF-8"}
    given = {"AttributeName": "FifoTopic", "AttributeValue": "false"}
    assert refusal(sns, "set_topic_attributes", TopicArn=arn, **given)[2] == f"{ANY}AttributeName"


# -- ARNs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "given", "words"),
    [
        ("publish", {"TopicArn": "randomstring"}, "TopicArn Reason: {}1"),
        ("publish", {"TopicArn": "randomstring:1"}, "TopicArn Reason: {}2"),
        ("publish", {"TopicArn": ""}, "TopicArn Reason: {}1"),
        ("get_topic_attributes", {"TopicArn": "x"}, "TopicArn Reason: {}1"),
        ("unsubscribe", {"SubscriptionArn": "randomstring"}, "SubscriptionArn Reason: {}1"),
        (
            "unsubscribe",
            {"SubscriptionArn": "arn:aws:sns:us-east-1:random"},
            "SubscriptionArn Reason: {}5",
        ),
        (
            "unsubscribe",
            {"SubscriptionArn": "arn:aws:sns:us-east-1:111111111111:random"},
            "SubscriptionId",
        ),
        (
            "subscribe",
            {"TopicArn": "arn:aws:sns:us-east-1:random", "Protocol": "email", "Endpoint": "a@b"},
            "TopicArn Reason: {}5",
        ),
    ],
)
def test_malformed_arns(sns: Any, verb: str, given: dict[str, str], words: str) -> None:
    given = {**given, "Message": "x"} if verb == "publish" else given
    expected = ANY + words.format("An ARN must have at least 6 elements, not ")
    assert refusal(sns, verb, **given) == ("InvalidParameter", 400, expected)


# -- subscriptions ---------------------------------------------------------------------------------


def test_subscribing_again_with_the_same_attributes(sns: Any, sqs: Any) -> None:
    """Attributes that it leaves out are not compared."""
    arn = topic(sns)
    queue = Subscribed(sns, sqs, arn, RawMessageDelivery="True")
    asked = {name: queue.given[name] for name in ("TopicArn", "Protocol", "Endpoint")}
    found = sns.get_subscription_attributes(SubscriptionArn=queue.subscription)["Attributes"]
    assert found["RawMessageDelivery"] == "true"
    scope = {"FilterPolicyScope": "MessageAttributes"}
    for attributes in ({"RawMessageDelivery": "true"}, {"RawMessageDelivery": "true", **scope}, {}):
        told = sns.subscribe(**asked, Attributes=attributes)
        assert told["SubscriptionArn"] == queue.subscription
    assert sns.subscribe(**asked)["SubscriptionArn"] == queue.subscription
    assert sns.subscribe(**asked, Attributes=scope)["SubscriptionArn"] == queue.subscription
    words = f"{IN_SUBSCRIBE}Subscription already exists with different attributes"
    for attributes in (
        {"RawMessageDelivery": "false"},
        {"RawMessageDelivery": "false", "FilterPolicyScope": "MessageBody"},
        {"FilterPolicy": '{"a": ["b"]}'},
    ):
        assert refusal(sns, "subscribe", **asked, Attributes=attributes)[2] == words
    # Later changes and the formatting of a policy are not compared, either.
    change = {"SubscriptionArn": queue.subscription, "AttributeName": "FilterPolicy"}
    sns.set_subscription_attributes(**change, AttributeValue='{"a": ["b"], "c": ["d"]}')
    for attributes in ({}, {"FilterPolicy": '{"c":["d"],"a":["b"]}'}):
        told = sns.subscribe(**asked, Attributes=attributes)
        assert told["SubscriptionArn"] == queue.subscription


def test_subscribing_a_native_subscription_again(sns: Any, sqs: Any, suite: Suite) -> None:
    arn = topic(sns)
    sqs.create_queue(QueueName="by-hand")
    place = f"{suite.url}/_topics/{arn.rpartition(':')[2]}/queues/by-hand"
    urlopen(Request(place, method="PUT")).close()
    endpoint = f"arn:aws:sqs:us-east-1:{ACCOUNT}:by-hand"
    asked = {"TopicArn": arn, "Protocol": "sqs", "Endpoint": endpoint}
    first = sns.subscribe(**asked)["SubscriptionArn"]
    given = {"RawMessageDelivery": "true"}  # as it is
    assert sns.subscribe(**asked, Attributes=given)["SubscriptionArn"] == first
    urlopen(Request(place, b'{"color": ["red"]}', method="PUT")).close()
    assert sns.subscribe(**asked)["SubscriptionArn"] == first
    assert sns.subscribe(**asked, Attributes=given)["SubscriptionArn"] == first
    given = {"RawMessageDelivery": "false"}
    assert "different attributes" in refusal(sns, "subscribe", **asked, Attributes=given)[2]


def test_a_filter_policy_of_an_older_version_stays_in_force(
    sns: Any, sqs: Any, suite: Suite
) -> None:
    """Ranges that AWS refuses stay in force until the policy is changed."""
    arn = topic(sns)
    queue = Subscribed(sns, sqs, arn, RawMessageDelivery="false")
    entry = suite.root / "topics" / arn.rpartition(":")[2] / queue.arn.rpartition(":")[2]
    policy = '{"n": [{"numeric": ["<", 100, ">", 10]}]}'
    said = {"filter": policy, "scope": "MessageAttributes", "raw": False, "kept": {}}
    entry.write_text(json.dumps({"sns": said}))
    change = {"SubscriptionArn": queue.subscription}
    given = {"AttributeName": "RawMessageDelivery", "AttributeValue": "true"}
    sns.set_subscription_attributes(**change, **given)
    assert sns.get_subscription_attributes(**change)["Attributes"]["FilterPolicy"] == policy
    again = {**queue.given, "Attributes": {"RawMessageDelivery": "true"}}
    assert sns.subscribe(**again)["SubscriptionArn"] == queue.subscription
    for n in ("500", "50"):
        number = {"n": {"DataType": "Number", "StringValue": n}}
        sns.publish(TopicArn=arn, Message=n, MessageAttributes=number)
    assert [one["Body"] for one in queue.messages(wait=20)] == ["50"]


def test_a_standard_queue_subscribes_to_a_fifo_topic(sns: Any, sqs: Any) -> None:
    """Since August 2025."""
    arn = topic(sns, FifoTopic="true")
    fifo = Subscribed(sns, sqs, arn, RawMessageDelivery="true")
    url = sqs.create_queue(QueueName="standard")["QueueUrl"]
    endpoint = f"arn:aws:sqs:us-east-1:{ACCOUNT}:standard"
    given = {"RawMessageDelivery": "true"}
    sns.subscribe(TopicArn=arn, Protocol="sqs", Endpoint=endpoint, Attributes=given)
    message = {"MessageGroupId": "g", "MessageDeduplicationId": "d"}
    sns.publish(TopicArn=arn, Message="one", **message)
    entry = {"Id": "1", "Message": "two", **message, "MessageDeduplicationId": "e"}
    sns.publish_batch(TopicArn=arn, PublishBatchRequestEntries=[entry])
    assert [one["Body"] for one in fifo.messages(wait=20, least=2)] == ["one", "two"]
    asked = {"AttributeNames": ["All"], "WaitTimeSeconds": 20, "MaxNumberOfMessages": 10}
    got: list[Any] = []
    while len(got) < 2:
        got += sqs.receive_message(QueueUrl=url, **asked)["Messages"]
    assert {one["Body"] for one in got} == {"one", "two"}
    assert {one["Attributes"]["MessageGroupId"] for one in got} == {"g"}
    # Not the other way round.
    plain = {"TopicArn": topic(sns), "Protocol": "sqs", "Endpoint": fifo.arn}
    assert refusal(sns, "subscribe", **plain) == (
        "InvalidParameter",
        400,
        f"{ANY}{ANY}Endpoint Reason: FIFO SQS Queues can not be subscribed to standard SNS topics",
    )


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("FakeAttribute", "x", "AttributeName"),
        (
            "RawMessageDelivery",
            "test-ValUe",
            "RawMessageDelivery: Invalid value [test-ValUe]. Must be true or false.",
        ),
        ("RawMessageDelivery", "", "RawMessageDelivery: Invalid value []. Must be true or false."),
        (
            "FilterPolicyScope",
            "RandomValue",
            "FilterPolicyScope: Invalid value [RandomValue]. Please use either MessageBody or"
            " MessageAttributes",
        ),
        (
            "FilterPolicy",
            '{"object": {"key": [{"prefix": "auto-"}]}}',
            "Filter policy scope MessageAttributes does not support nested filter policy",
        ),
        (
            "FilterPolicy",
            '{"key": [{"numeric": ["<", 100, ">", 10]}]}',
            "FilterPolicy: Too many elements in numeric expression",
        ),
        ("FilterPolicy", '{"key": [["value"]]}', "FilterPolicy: Match value must be String,"),
        ("FilterPolicy", "{invalidjson}", "FilterPolicy: failed to parse JSON"),
        ("FilterPolicy", '{"a": "b"}', 'FilterPolicy: "a" must be an object or an array'),
        ("RedrivePolicy", "{invalidjson}", "RedrivePolicy: failed to parse JSON."),
    ],
)
def test_refused_attributes_of_subscriptions(
    sns: Any, sqs: Any, name: str, value: str, words: str
) -> None:
    arn = topic(sns)
    queue = Subscribed(sns, sqs, arn)
    given = {"AttributeName": name, "AttributeValue": value}
    told = refusal(sns, "set_subscription_attributes", SubscriptionArn=queue.subscription, **given)
    assert told[:2] == ("InvalidParameter", 400)
    assert told[2].startswith(ANY + words)
    if name == "FakeAttribute":
        return
    asked = {**queue.given, "Attributes": {name: value}}
    assert refusal(sns, "subscribe", **asked)[2].startswith(IN_SUBSCRIBE + words)


# -- publishing ------------------------------------------------------------------------------------


def test_values_in_a_message_structure_that_are_not_strings_are_ignored(sns: Any, sqs: Any) -> None:
    arn = topic(sns)
    queue = Subscribed(sns, sqs, arn, RawMessageDelivery="true")
    publish = {"TopicArn": arn, "MessageStructure": "json"}
    own = json.dumps({"field": "value"})
    for sent, got in ((own, own), ({"field": "value"}, "default field"), (None, "default field")):
        texts = json.dumps({"default": "default field", "sqs": sent})
        sns.publish(Message=texts, **publish)
        assert [one["Body"] for one in queue.messages(wait=20)] == [got]
    for bad, words in (
        ('{"sqs": "Test message"}', "No default entry in JSON message body"),
        ('{"default": "This is a default message"} }', "JSON message body failed to parse"),
        ('{"default": {"object": "test"}}', "No default entry in JSON message body"),
    ):
        told = refusal(sns, "publish", Message=bad, **publish)
        assert told == ("InvalidParameter", 400, f"{ANY}Message Structure - {words}")
    assert refusal(sns, "publish", Message='{"default": ""}', **publish)[2] == f"{ANY}Empty message"


def test_the_unsubscribe_url_ends_the_subscription(sns: Any, sqs: Any, suite: Suite) -> None:
    arn = topic(sns)
    queue = Subscribed(sns, sqs, arn)
    sns.publish(TopicArn=arn, Message="x")
    [message] = queue.messages(wait=20)
    url = json.loads(message["Body"])["UnsubscribeURL"]
    assert url == f"{suite.url}/?Action=Unsubscribe&SubscriptionArn={queue.subscription}"
    assert get(url).status == 200
    assert sns.list_subscriptions_by_topic(TopicArn=arn)["Subscriptions"] == []


def test_copies_keep_the_trace_header_of_the_publish(sns: Any, sqs: Any) -> None:
    arn = topic(sns)
    queues = [Subscribed(sns, sqs, arn), Subscribed(sns, sqs, arn, RawMessageDelivery="true")]

    def trace(request: Any, **_: Any) -> None:
        request.headers["X-Amzn-Trace-Id"] = TRACE

    events, name = sns.meta.events, "before-send.sns"
    events.register(name, trace)
    try:
        sns.publish(TopicArn=arn, Message="1")
        entries = [{"Id": "a", "Message": "2"}, {"Id": "b", "Message": "3"}]
        sns.publish_batch(TopicArn=arn, PublishBatchRequestEntries=entries)
    finally:
        events.unregister(name, trace)
    for queue in queues:
        got = queue.messages(wait=20, least=3)
        assert [one["Attributes"]["AWSTraceHeader"] for one in got] == [TRACE] * 3


GOOD = {"Id": "good", "Message": "m"}
LONG = "a" * 131_072
NUMBER = {"attr1": {"DataType": "Number", "StringValue": "1"}}


def one_of(name: str, **attribute: Any) -> dict[str, Any]:
    return {"Id": "1", "Message": "m", "MessageAttributes": {name: attribute}}


EMPTY = "The message attribute 'attr1' must contain non-empty message attribute value for message"
KIND = "The message attribute 'attr1' has an invalid message attribute type, the set of supported"
FIELD = "The message attribute 'attr1' with type"
TEXT = {"DataType": "String", "StringValue": "v"}


@pytest.mark.parametrize(
    ("code", "words", "entries"),
    [
        (
            "BatchRequestTooLong",
            "put together is more than the limit.",
            [{"Id": "1", "Message": LONG}, {"Id": "2", "Message": LONG + "b"}],
        ),
        (
            "BatchRequestTooLong",
            "put together is more than the limit.",
            [{"Id": "1", "Message": LONG + LONG + "b"}],
        ),
        (
            "BatchRequestTooLong",
            "put together is more than the limit.",
            [
                {"Id": "1", "Message": (LONG + LONG)[12:], "MessageAttributes": NUMBER},
                {"Id": "2", "Message": "b"},
            ],
        ),
        *(
            (
                "InvalidBatchEntryId",
                f"The Id of a batch entry in the batch request {problem}: {name}",
                [{"Id": name, "Message": "m"}, GOOD],
            )
            for name, problem in (
                ("message.id", "contains an impermissible character"),
                ("msg@123#test", "contains an impermissible character"),
                ("a" * 81, "is too long"),
            )
        ),
        *(
            ("ParameterValueInvalid", words, [one_of(name, **attribute), GOOD])
            for words, name, attribute in (
                (f"{EMPTY} attribute type 'String'.", "attr1", {**TEXT, "StringValue": ""}),
                (f"{EMPTY} attribute type 'String'.", "attr1", {"DataType": "String"}),
                (
                    f"{EMPTY} attribute type 'Binary'.",
                    "attr1",
                    {"DataType": "Binary", "BinaryValue": b""},
                ),
                (
                    f"{FIELD} 'String' must use field 'String'.",
                    "attr1",
                    {"DataType": "String", "BinaryValue": b"123"},
                ),
                (
                    f"{FIELD} 'Number' must use field 'String'.",
                    "attr1",
                    {"DataType": "Number", "BinaryValue": b"123"},
                ),
                (
                    f"{FIELD} 'Binary' must use field 'Binary'.",
                    "attr1",
                    {"DataType": "Binary", "StringValue": "123"},
                ),
                (
                    f"{KIND} type prefixes is Binary, Number, and String.",
                    "attr1",
                    {"DataType": "InvalidType", "StringValue": "123"},
                ),
                ("Length of message attribute name must be less than 256 bytes.", "a" * 257, TEXT),
                (
                    "Invalid non-alphanumeric character '#x5E' was found in the message attribute"
                    " name. Can only include alphanumeric characters, hyphens, underscores, or"
                    " dots.",
                    "a^*?",
                    TEXT,
                ),
                (
                    "Invalid message attribute name starting with character '.' was found.",
                    ".abc",
                    TEXT,
                ),
                (
                    "Invalid message attribute name ending with character '.' was found.",
                    "abc.",
                    TEXT,
                ),
                ("Message attribute name can not have successive '.' character.", "a..bc", TEXT),
            )
        ),
        (
            "ValidationError",
            "1 validation error detected: Value null at 'publishBatchRequestEntries.1.member"
            ".messageAttributes.attr1.member.dataType' failed to satisfy constraint: Member must"
            " not be null",
            [one_of("attr1", StringValue="x"), GOOD],
        ),
        ("InvalidParameter", f"{ANY}Subject", [{**GOOD, "Id": "s", "Subject": "\n"}, GOOD]),
        (
            "InvalidParameter",
            f"{ANY}Message Structure - No default entry in JSON message body",
            [{"Id": "s", "Message": '{"sqs": "x"}', "MessageStructure": "json"}, GOOD],
        ),
        (
            "TooManyEntriesInBatchRequest",
            "contains more entries than permissible.",
            [{"Id": str(n), "Message": "m"} for n in range(11)],
        ),
        ("BatchEntryIdsNotDistinct", "have the same Id.", [GOOD, GOOD]),
    ],
)
def test_one_bad_entry_refuses_the_whole_batch(
    unchecked: Any, sqs: Any, code: str, words: str, entries: list[dict[str, Any]]
) -> None:
    """Clients look at exceptions and would lose the entries that failed."""
    arn = topic(unchecked)
    queue = Subscribed(unchecked, sqs, arn, RawMessageDelivery="true")
    batch = {"TopicArn": arn, "PublishBatchRequestEntries": entries}
    found, status, told = refusal(unchecked, "publish_batch", **batch)
    assert (re.sub(r"Exception$", "", found), status) == (code, 400)
    assert told.endswith(words)
    assert queue.messages() == []
    if len(entries) == 2 and code in ("ParameterValueInvalid", "ValidationError"):
        single = {name: one for name, one in entries[0].items() if name != "Id"}
        found, status, told = refusal(unchecked, "publish", TopicArn=arn, **single)
        assert (found, status) == (code, 400)
        assert told == words.replace("publishBatchRequestEntries.1.member.", "")


def test_one_bad_entry_refuses_the_whole_batch_to_a_fifo_topic(sns: Any, sqs: Any) -> None:
    arn = topic(sns, FifoTopic="true")
    queue = Subscribed(sns, sqs, arn, RawMessageDelivery="true")
    good = {"Id": "g", "Message": "m", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
    for missing, words in (
        ("MessageGroupId", "The MessageGroupId parameter is required for FIFO topics"),
        (
            "MessageDeduplicationId",
            "The topic should either have ContentBasedDeduplication enabled or"
            " MessageDeduplicationId provided explicitly",
        ),
    ):
        bad = {name: one for name, one in good.items() if name != missing}
        batch = {"TopicArn": arn, "PublishBatchRequestEntries": [good, {**bad, "Id": "b"}]}
        told = refusal(sns, "publish_batch", **batch)
        assert told == ("InvalidParameter", 400, ANY + words)
    assert queue.messages() == []
    told = sns.publish_batch(TopicArn=arn, PublishBatchRequestEntries=[good])
    assert [one["Id"] for one in told["Successful"]] == ["g"]
    assert told["Failed"] == []
    assert [one["Body"] for one in queue.messages(wait=20)] == ["m"]


def test_the_largest_batch_is_accepted(sns: Any, sqs: Any) -> None:
    arn = topic(sns)
    queue = Subscribed(sns, sqs, arn, RawMessageDelivery="true")
    sns.publish_batch(
        TopicArn=arn,
        PublishBatchRequestEntries=[
            {"Id": "a" * 80, "Message": (LONG + LONG)[13:], "MessageAttributes": NUMBER},
            {"Id": "valid-message_123", "Message": "b"},
        ],
    )
    assert len(queue.messages(wait=20, least=2)) == 2


# -- filters ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "bodies"),
    [
        (
            {"object.nested": ["string.value"]},
            [{"object": {"nested": "string.value"}}, {"object.nested": "string.value"}],
        ),
        (
            {"object.nested.test": ["string.value"]},
            [
                {"object": {"nested": {"test": "string.value"}}},
                {"object.nested.test": "string.value"},
                {"object.nested": {"test": "string.value"}},
                {"object": {"nested.test": "string.value"}},
                {"object": [{"nested": [{"test": ["string.value"]}]}]},
            ],
        ),
        (
            {"object": {"nested": {"test": ["string.value"]}}},
            [{"object.nested": {"test": "string.value"}}, {"object.nested.test": "string.value"}],
        ),
    ],
    ids=json.dumps,
)
def test_nested_members_match_dotted_names(
    sns: Any, sqs: Any, policy: Any, bodies: list[Any]
) -> None:
    arn = topic(sns)
    given = {"FilterPolicyScope": "MessageBody", "RawMessageDelivery": "true"}
    queue = Subscribed(sns, sqs, arn, FilterPolicy=json.dumps(policy), **given)
    for body in bodies:
        sns.publish(TopicArn=arn, Message=json.dumps(body))
    entry = {"Id": "1", "Message": json.dumps({"object": {"nested": {"test": "test-auto"}}})}
    sns.publish_batch(TopicArn=arn, PublishBatchRequestEntries=[entry])
    got = [one["Body"] for one in queue.messages(wait=20, least=len(bodies))]
    assert sorted(got) == sorted(map(json.dumps, bodies))


@pytest.mark.parametrize(
    ("policy", "kind", "value", "is_taken"),
    [
        # From AWS's documentation.
        ([100.123456789], "Number", "100.1234567", True),
        ([{"numeric": ["=", 100.00001]}], "Number", "100.000010", True),
        ([{"numeric": ["=", 100.00001]}], "Number", "100.00002", False),
        ([100, 500], "String.Array", "100", True),
        ([100, 500], "String.Array", "[1, 100]", True),
        # A number is compared with numbers only, not with strings.
        ([{"numeric": [">=", 100]}], "Number", "150", True),
        ([{"numeric": [">=", 100]}], "String", "150", False),
        ([150], "String", "150", False),
        (["150"], "String", "150", True),
        (["150"], "Number", "150", False),
    ],
    ids=str,
)
def test_numbers_in_filter_policies(
    sns: Any, sqs: Any, policy: Any, kind: str, value: str, is_taken: bool
) -> None:
    arn = topic(sns)
    given = {"RawMessageDelivery": "true", "FilterPolicy": json.dumps({"price": policy})}
    queue = Subscribed(sns, sqs, arn, **given)
    price = {"DataType": kind, "StringValue": value}
    sns.publish(TopicArn=arn, Message="x", MessageAttributes={"price": price})
    # The next message passes all of these policies.
    sns.set_subscription_attributes(
        SubscriptionArn=queue.subscription, AttributeName="FilterPolicy", AttributeValue=""
    )
    sns.publish(TopicArn=arn, Message="last")
    expected = {"x", "last"} if is_taken else {"last"}
    assert {one["Body"] for one in queue.messages(wait=20, least=len(expected))} == expected
