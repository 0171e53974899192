"""What clients of other APIs put may be larger than a message of Amazon's; it is received all the
same, piece by piece.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from fsmq.spool.layout.messages.compression import compress
from fsmq.spool.layout.steps import LARGE_BYTES
from tests.harness.suite import Suite
from tests.http.stock import Stored
from tests.http.test_limits import memory
from tests.http.test_loop import HELD_S, MIB, exchange, longest, watch_over
from tests.http.test_memory import SPARE, most_memory, peak
from tests.http.watched import Watch

from .clients import JSON, QUERY, client

TEXT = 'é"\\<&>\r\n\U0001f600x'.encode()
LONG = TEXT * (3 * MIB // len(TEXT))
BODIES = (
    LONG,
    b"\xff" * MIB,
    b"small",
    LONG + b"\x01",
    "é".encode() * LARGE_BYTES + b"\xff",
    b"x" * (LARGE_BYTES + 1),
    b"\xfe",
)
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
_queues = count(1)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Suite, Watch]]:
    yield from watch_over(tmp_path_factory.mktemp("watched"))


def queue_of(suite: Suite) -> str:
    name = f"large-{next(_queues)}"
    assert exchange(suite, "PUT", f"/{name}") == 201
    return name


def receiving(queue: str, protocol: str, **more: Any) -> tuple[Mapping[str, str], bytes]:
    """The headers and the body of a request for ten messages."""
    given = {"QueueUrl": f"http://x/000000000000/{queue}", "MaxNumberOfMessages": 10, **more}
    if protocol == JSON:
        return {"X-Amz-Target": "AmazonSQS.ReceiveMessage"}, json.dumps(given).encode()
    return FORM, urlencode({"Action": "ReceiveMessage", **given}).encode()


@pytest.mark.parametrize("protocol", [JSON, QUERY])
@pytest.mark.parametrize("visibility", [60, 0], ids=["claimed", "shown"])
def test_a_long_body_is_received_as_it_was_put(
    watched: tuple[Suite, Watch], protocol: str, visibility: int
) -> None:
    suite, _ = watched
    queue = queue_of(suite)
    for body in BODIES:
        assert exchange(suite, "POST", f"/{queue}/messages", {}, body) == 201
    sqs = client(suite.url, protocol)
    url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
    told = sqs.receive_message(
        QueueUrl=url,
        MaxNumberOfMessages=10,
        VisibilityTimeout=visibility,
        MessageAttributeNames=["All"],
    )["Messages"]
    got = []
    for one in told:
        body = one["Body"].encode()
        assert one["MD5OfBody"] == hashlib.md5(body).hexdigest()
        is_coded = one.get("MessageAttributes", {}).get("fsmq.encoding") is not None
        got.append(base64.b64decode(body, validate=True) if is_coded else body)
    assert got == list(BODIES)


@pytest.mark.parametrize("protocol", [JSON, QUERY])
def test_no_receive_of_long_bodies_holds_up_the_loop_or_takes_them_many_times(
    watched: tuple[Suite, Watch], protocol: str
) -> None:
    suite, watch = watched
    size, number = 12 * MIB, 5
    stored = Stored(compress(TEXT * (size // len(TEXT)), "zstd"), packed=True)

    def receive() -> None:
        queue = queue_of(suite)
        for _ in range(number):
            stored.place(suite.root / "queues" / queue)
        watch.clear()
        assert exchange(suite, "POST", "/", *receiving(queue, protocol)) == 200

    peak(suite)
    before = memory(suite)
    assert longest(watch, receive) <= HELD_S
    assert peak(suite) - before < 2 * number * size + SPARE


@pytest.mark.parametrize("protocol", [JSON, QUERY])
@pytest.mark.parametrize("wanted", [["All"], [f"n{n}" for n in range(9_000)]], ids=["all", "many"])
def test_no_receive_of_many_attributes_holds_up_the_loop(
    watched: tuple[Suite, Watch], protocol: str, wanted: list[str]
) -> None:
    suite, watch = watched
    message = {"body": "x", "attributes": {f"m{n}": "" for n in range(6_000)}}
    names: dict[str, Any] = {"MessageAttributeNames": wanted}
    if protocol == QUERY:
        names = {f"MessageAttributeName.{n}": name for n, name in enumerate(wanted, 1)}

    def receive() -> None:
        queue = queue_of(suite)
        batch = json.dumps([message] * 10).encode()
        assert exchange(suite, "POST", f"/{queue}/batch", {}, batch) == 201
        exchange(suite, "GET", f"/{queue}/messages?wait=5&visibility=0&count=1")
        watch.clear()
        assert exchange(suite, "POST", "/", *receiving(queue, protocol, **names)) == 200

    assert longest(watch, receive) <= HELD_S


def test_copies_of_messages_take_no_more_than_the_memory_for_bodies(tmp_path: Path) -> None:
    """Each subscription has a copy of its own; those of one message alone are always taken."""
    limit, size, number = 32 * MIB, 250_000, 160
    options = ["--sync=none", f"--max-body-memory={limit}"]
    with Suite(tmp_path / "mq", mq_options=options, mover=False, reaper=False) as suite:
        (suite.root / "topics" / "t").mkdir()
        wraps = {"filter": None, "scope": "MessageAttributes", "raw": False, "kept": {}}
        for one in range(number):
            (suite.root / "queues" / f"s{one}").mkdir()
            (suite.root / "topics" / "t" / f"s{one}").write_text(json.dumps({"sns": wraps}))
        arn = "arn:aws:sns:us-east-1:000000000000:t"
        said = {"Action": "Publish", "TopicArn": arn, "Message": "x" * size}
        form = urlencode(said).encode()

        def publish(_: int) -> int:
            return exchange(suite, "POST", "/", FORM, form)

        assert publish(0) == 200
        assert most_memory(suite, publish, (200, 503), 16, 8) < number * size + limit + 2 * SPARE


def test_names_of_attributes_are_wanted_by_their_beginnings(tmp_path: Path) -> None:
    names = ["a", "ab", "abc", "b.c", "b.d", "ba", "c"]
    with Suite(tmp_path / "mq", mq_options=["--sync=none"], reaper=False) as suite:
        sqs = client(suite.url)
        url = sqs.create_queue(QueueName="q")["QueueUrl"]
        value = {"DataType": "String", "StringValue": "v"}
        sqs.send_message(
            QueueUrl=url, MessageBody="x", MessageAttributes=dict.fromkeys(names, value)
        )
        for wanted, found in (
            (["ab.*", "a.*"], ["a", "ab", "abc"]),
            (["ab.*", "c", "none"], ["ab", "abc", "c"]),
            (["b..*", "b.d.*", "bb.*"], ["b.c", "b.d"]),
            ([".*"], names),
        ):
            [told] = sqs.receive_message(
                QueueUrl=url,
                MessageAttributeNames=wanted,
                VisibilityTimeout=0,
                WaitTimeSeconds=5,
            )["Messages"]
            assert sorted(told["MessageAttributes"]) == found
