"""Long polls and streams end when their key expires."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.harness.suite import Suite, eventually
from tests.http.helpers import Wire
from tests.http.keyfile import add_key, bearer

# The remaining time of the key when all wait; their own waits are much longer.
LEFT_S = 4.0
WAIT_S = 20
EVERYTHING = ("*", "topics/*", "logs/*", "logs/*/*")


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Suite, Path]]:
    folder = tmp_path_factory.mktemp("ends")
    file = folder / "keys.toml"
    rights = [f"--{right}={of}" for right in ("send", "receive", "admin") for of in EVERYTHING]
    add_key(file, "stays", *rights, existing="a-key-that-holds-for-ever")
    add_key(file, "ends", *rights, existing="a-key-whose-time-will-end")
    options = [f"--keys={file}", "--dialects=emodb,dynamiq,sqs", "--sync=none"]
    with Suite(folder / "mq", mq_options=options) as suite:
        yield suite, file


def end_soon(suite: Suite, file: Path) -> float:
    """Let the key expire in a few seconds; the time."""
    end = time.time() + LEFT_S
    moment = datetime.fromtimestamp(end, UTC).isoformat()
    text = re.sub(r"(?m)^not_after = .*\n", "", file.read_text())
    before = len([e for e in suite.logs("mq") if e["event"] == "keys loaded"])
    table = '[keys."ends"]\n'
    assert table in text
    file.write_text(text.replace(table, f"{table}not_after = {moment}\n"))
    eventually(lambda: len([e for e in suite.logs("mq") if e["event"] == "keys loaded"]) > before)
    return end


def test_long_polls_and_live_pages_end_when_their_key_expires(suite: tuple[Suite, Path]) -> None:
    mq, file = suite
    key, other = bearer("a-key-whose-time-will-end"), bearer("a-key-that-holds-for-ever")
    signed = "AWS4-HMAC-SHA256 Credential=a-key-whose-time-will-end/20260101/x/sqs/aws4_request"
    receive = {"QueueUrl": "http://localhost/000000000000/jobs", "WaitTimeSeconds": WAIT_S}
    sqs = {"Authorization": signed, "X-Amz-Target": "AmazonSQS.ReceiveMessage"}
    with Wire(mq.url) as admin:
        for path in ("/jobs", "/_logs/l", "/_logs/l/channels/c"):
            assert admin.ask("PUT", path, other).status == 201
    end = end_soon(mq, file)
    waiting = {
        "fast path": ("GET", f"/jobs/messages?wait={WAIT_S}", key),
        "aiohttp": ("GET", f"/jobs/messages?wait={WAIT_S}", {**key, "X-Odd": "1"}),
        "channel": ("GET", f"/_logs/l/channels/c/messages?wait={WAIT_S}", key),
        "log": ("GET", f"/_logs/l/messages?from=0&wait={WAIT_S}", key),
        "sqs fast path": ("POST", "/", sqs, json.dumps(receive).encode()),
        "sqs": ("POST", "/", {**sqs, "X-Odd": "1"}, json.dumps(receive).encode()),
    }
    wires = {name: Wire(mq.url) for name in (*waiting, "page")}
    try:
        wires["page"].request("GET", "/_ui/q/jobs", {**key, "Accept": "text/event-stream"})
        for name, request in waiting.items():
            wires[name].request(*request)
        eventually(lambda: all(wire.is_read() for wire in wires.values()))
        assert time.time() < end, "the machine is too slow for this test"
        for name in waiting:
            answer = wires[name].answer()
            is_empty = answer.status == 204 or (answer.status, answer.body) == (200, b"{}")
            assert is_empty, (name, answer)
            assert end <= time.time() < end + WAIT_S / 2, name
        told = wires["page"].rest()
        assert b"text/event-stream" in told
        assert end <= time.time() < end + WAIT_S / 2
        for wire in wires.values():
            wire.close()
        with Wire(mq.url) as wire:
            assert wire.ask("GET", "/jobs", key).status == 401
            wire.ask("POST", "/jobs/messages", other, b"for others")
            assert wire.ask("GET", "/jobs/messages?wait=20", other).body == b"for others"
    finally:
        for wire in wires.values():
            wire.close()


@pytest.mark.parametrize("odd", [{}, {"X-Odd": "1"}], ids=["fast path", "aiohttp"])
def test_a_body_that_ends_after_its_key_expired_is_not_stored(
    suite: tuple[Suite, Path], odd: dict[str, str]
) -> None:
    mq, file = suite
    key, other = bearer("a-key-whose-time-will-end"), bearer("a-key-that-holds-for-ever")
    with Wire(mq.url) as admin, Wire(mq.url) as sender:
        assert admin.ask("PUT", "/late", other).status in (200, 201)
        end = end_soon(mq, file)
        head = {**key, **odd, "Content-Length": "10"}
        sender.request("POST", "/late/messages", head)
        sender.send(b"12345")
        eventually(sender.is_read)
        assert time.time() < end, "the machine is too slow for this test"
        eventually(lambda: time.time() > end)
        sender.send(b"67890")
        answer = sender.answer()
        assert (answer.status, answer.json["detail"]) == (401, "the key 'ends' has expired")
        assert admin.ask("GET", "/late/messages", other).status == 204
