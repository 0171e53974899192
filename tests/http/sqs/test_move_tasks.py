"""Move tasks of dead letters: to their sources, to another queue, and cancelled."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest

from tests.harness.suite import Suite, eventually
from tests.http.sqs.clients import JSON, QUERY, client
from tests.http.sqs.test_boto3 import arn_of, create, receive

_NUMBERS = count()


@pytest.fixture(params=[JSON, QUERY])
def sqs(suite: Suite, request: pytest.FixtureRequest) -> Any:
    return client(suite.url, request.param)


def dead_letters(sqs: Any, number: int) -> tuple[str, str]:
    """A queue and its dead-letter queue, which has messages."""
    dead = create(sqs)
    policy = json.dumps({"deadLetterTargetArn": arn_of(sqs, dead), "maxReceiveCount": 1})
    url = create(sqs, RedrivePolicy=policy)
    entries = [{"Id": str(n), "MessageBody": str(n)} for n in range(number)]
    sqs.send_message_batch(QueueUrl=url, Entries=entries)
    got: list[Any] = []

    def all_buried() -> bool:
        got.extend(receive(sqs, url, VisibilityTimeout=0, WaitTimeSeconds=1))
        return len(got) == number

    eventually(all_buried)
    return url, dead


def tasks(sqs: Any, arn: str) -> list[Any]:
    found: list[Any] = sqs.list_message_move_tasks(SourceArn=arn, MaxResults=10)["Results"]
    return found


def test_a_move_task_returns_dead_letters(sqs: Any) -> None:
    url, dead = dead_letters(sqs, 3)
    arn = arn_of(sqs, dead)
    assert sqs.start_message_move_task(SourceArn=arn)["TaskHandle"]
    eventually(lambda: tasks(sqs, arn)[0]["Status"] == "COMPLETED")
    [task] = tasks(sqs, arn)
    assert task["ApproximateNumberOfMessagesMoved"] == 3
    assert task["ApproximateNumberOfMessagesToMove"] == 3
    assert task.keys() & {"TaskHandle", "DestinationArn", "MaxNumberOfMessagesPerSecond"} == set()
    got: list[Any] = []
    eventually(lambda: got.extend(receive(sqs, url, WaitTimeSeconds=1)) or len(got) == 3)
    assert {one["Body"] for one in got} == {"0", "1", "2"}


def test_a_task_with_a_rate_is_cancelled(sqs: Any) -> None:
    _, dead = dead_letters(sqs, 10)
    other, arn = create(sqs), arn_of(sqs, dead)
    started = sqs.start_message_move_task(
        SourceArn=arn, DestinationArn=arn_of(sqs, other), MaxNumberOfMessagesPerSecond=1
    )
    with pytest.raises(sqs.exceptions.ClientError, match="already a task running"):
        sqs.start_message_move_task(SourceArn=arn)
    [task] = tasks(sqs, arn)
    assert task["Status"] == "RUNNING"
    assert task["TaskHandle"] == started["TaskHandle"]
    assert task["MaxNumberOfMessagesPerSecond"] == 1
    stopped = sqs.cancel_message_move_task(TaskHandle=started["TaskHandle"])
    assert stopped["ApproximateNumberOfMessagesMoved"] < 10
    eventually(lambda: tasks(sqs, arn)[0]["Status"] == "CANCELLED")
    with pytest.raises(sqs.exceptions.ClientError, match="Task does not exist") as error:
        sqs.cancel_message_move_task(TaskHandle=started["TaskHandle"])
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 404


def test_refused_move_tasks(sqs: Any) -> None:
    url = create(sqs)
    arn = arn_of(sqs, url)
    refused = [
        ({"SourceArn": arn}, "must be configured as a Dead Letter Queue"),
        ({"SourceArn": f"{arn}-none"}, "SourceArn parameter doesn't exist"),
        ({"SourceArn": arn, "DestinationArn": f"{arn}-none"}, "DestinationArn parameter doesn't"),
        ({"SourceArn": "nothing"}, "not the ARN"),
    ]
    for given, words in refused:
        with pytest.raises(sqs.exceptions.ClientError, match=words):
            sqs.start_message_move_task(**given)
    with pytest.raises(sqs.exceptions.ClientError, match="TaskHandle is invalid"):
        sqs.cancel_message_move_task(TaskHandle="x")
    assert not sqs.list_message_move_tasks(SourceArn=arn).get("Results")


def test_dead_letters_of_a_fifo_queue_move_to_no_other_queue(sqs: Any) -> None:
    name = f"moved-{next(_NUMBERS)}"
    urls = [
        sqs.create_queue(QueueName=f"{name}-{n}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        for n in range(3)
    ]
    dead, home, other = (arn_of(sqs, url) for url in urls)
    policy = json.dumps({"deadLetterTargetArn": dead, "maxReceiveCount": 1})
    sqs.set_queue_attributes(QueueUrl=urls[1], Attributes={"RedrivePolicy": policy})
    with pytest.raises(sqs.exceptions.ClientError, match=r"DestinationArn .*is a fifo queue"):
        sqs.start_message_move_task(SourceArn=dead, DestinationArn=other)
    assert sqs.start_message_move_task(SourceArn=dead, DestinationArn=home)["TaskHandle"]
