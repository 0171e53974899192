"""Keys of fsmq as access key ids: rights and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.suite import Suite
from tests.http.keyfile import add_key
from tests.http.sqs.clients import JSON, QUERY, ask_json, ask_query, check_refusal, client, refusal


class Guarded:
    """A suite with keys: one for everything, and one that sees some queues."""

    def __init__(self, folder: Path) -> None:
        file = folder / "keys.toml"
        rights = ("--send=*", "--receive=*", "--admin=*")
        self.root_key = add_key(file, "root", *rights)
        self.sender_key = add_key(file, "sender", "--send=mine*")
        options = [f"--keys={file}", "--sqs-account=123456789012", "--sqs-region=eu-west-1"]
        self.suite = Suite(folder / "mq", mq_options=[*options, "--sqs-url=https://mq.example"])


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    found = Guarded(tmp_path_factory.mktemp("guarded"))
    with found.suite:
        root = client(found.suite.url, key=found.root_key)
        for name in ("mine", "other"):
            root.create_queue(QueueName=name)
        yield found


@pytest.fixture(params=[JSON, QUERY])
def sender(guarded: Guarded, request: pytest.FixtureRequest) -> Any:
    return client(guarded.suite.url, request.param, key=guarded.sender_key)


def test_a_key_can_do_what_its_rights_allow(guarded: Guarded, sender: Any) -> None:
    url = sender.get_queue_url(QueueName="mine")["QueueUrl"]
    assert url == "https://mq.example/123456789012/mine"
    assert sender.list_queues()["QueueUrls"] == [url]
    sent = sender.send_message(QueueUrl=url, MessageBody="x")
    root = client(guarded.suite.url, key=guarded.root_key)
    asked = {"WaitTimeSeconds": 10, "AttributeNames": ["SenderId"]}
    [message] = root.receive_message(QueueUrl=url, **asked)["Messages"]
    assert message["MessageId"] == sent["MessageId"]
    assert message["Attributes"] == {"SenderId": "sender"}


def test_a_key_without_the_right_is_denied(guarded: Guarded, sender: Any) -> None:
    arn = "arn:aws:sqs:eu-west-1:123456789012:mine"
    words = f"User: sender is not authorized to perform: sqs:ReceiveMessage on resource: {arn}"
    assert refusal(sender, "receive_message", QueueUrl="mine") == ("AccessDenied", 403, words)
    given = {"QueueUrl": "mine"}
    key = {"Authorization": f"Bearer {guarded.sender_key}"}
    check_refusal(
        "ReceiveMessage",
        ask_json(guarded.suite.url, "ReceiveMessage", given, **key),
        ask_query(guarded.suite.url, "ReceiveMessage", given, **key),
        "AccessDeniedException",
        "AccessDenied",
        403,
        words,
    )
    for verb, given in (
        ("create_queue", {"QueueName": "mine2"}),
        ("delete_queue", {"QueueUrl": "mine"}),
        ("purge_queue", {"QueueUrl": "mine"}),
        ("tag_queue", {"QueueUrl": "mine", "Tags": {"a": "b"}}),
        ("set_queue_attributes", {"QueueUrl": "mine", "Attributes": {"DelaySeconds": "1"}}),
        ("delete_message", {"QueueUrl": "mine", "ReceiptHandle": "x"}),
        ("start_message_move_task", {"SourceArn": arn}),
    ):
        assert refusal(sender, verb, **given)[:2] == ("AccessDenied", 403), verb


def test_a_key_without_a_right_cannot_tell_if_a_queue_exists(sender: Any) -> None:
    for name in ("other", "nowhere"):
        for verb in ("get_queue_attributes", "list_queue_tags", "list_dead_letter_source_queues"):
            assert refusal(sender, verb, QueueUrl=name)[0] == "AccessDenied", verb
        assert refusal(sender, "get_queue_url", QueueName=name)[0] == "AccessDenied"
    assert refusal(sender, "send_message", QueueUrl="mine2", MessageBody="x")[0].endswith(
        "NonExistentQueue"
    )


@pytest.mark.parametrize("protocol", [JSON, QUERY])
def test_an_unknown_or_missing_key_is_refused(guarded: Guarded, protocol: str) -> None:
    stranger = client(guarded.suite.url, protocol, key="AKIAIOSFODNN7EXAMPLE")
    code, status, _ = refusal(stranger, "list_queues")
    assert (code, status) == ("InvalidClientTokenId", 403)
    url = guarded.suite.url
    ask = ask_json if protocol == JSON else ask_query
    answer = ask(url, "ListQueues", {})
    assert answer.status == 403
    assert b"MissingAuthenticationToken" in answer.body
    by_key = ask(url, "ListQueues", {}, Authorization=f"Bearer {guarded.sender_key}")
    assert by_key.status == 200
