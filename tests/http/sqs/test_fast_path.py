"""Requests of SQS's clients get the same answers on the fast path as from aiohttp."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from multidict import CIMultiDict

from fsmq.http.guard.access import Access
from fsmq.http.guard.keys import load
from fsmq.http.sqs.heads import SqsHeads
from fsmq.http.sqs.names import SqsOptions
from fsmq.http.sqs.protocol import sigv4
from tests.harness.suite import eventually
from tests.http.helpers import Wire
from tests.http.inside import Inside
from tests.http.keyfile import add_key
from tests.http.pair import KIB, LIMIT, Pair, Step, each_setting, pair_of, request, talk, tell

pytestmark = pytest.mark.usefixtures("emptied")
OPTIONS = {"dialects": ("sqs",), "host_names": (), "max_message_bytes": LIMIT}

ID = "01900000-0000-7000-8000-0000000000{:02}"
TARGET = "X-Amz-Target: AmazonSQS."
SDK = [
    "User-Agent: Boto3/1.40 md/Botocore#1.40 os/linux",
    "Accept-Encoding: identity",
    "X-Amz-Date: 20261123T200000Z",
    "Authorization: AWS4-HMAC-SHA256 Credential=any/20261123/us-east-1/sqs/aws4_request,"
    " SignedHeaders=host;x-amz-date;x-amz-target, Signature=00",
    "amz-sdk-invocation-id: 5c2b8a9e-9a3c-4f44-8e5e-1fd6b4b4a001",
    "amz-sdk-request: attempt=1",
    "x-amzn-query-mode: true",
]


def ask(
    action: str, members: Any, *lines: str, path: str = "/", body: bytes | None = None
) -> bytes:
    if body is None:
        body = json.dumps(members).encode()
    return request(f"POST {path}", f"{TARGET}{action}", *lines, body=body)


def handles_in(bodies: list[bytes]) -> list[str]:
    """The receipt handles in some answers."""
    given = [json.loads(body) for body in bodies if body[:1] == b"{"]
    return [one["ReceiptHandle"] for each in given for one in each.get("Messages", [])]


def by_handle(action: str, members: dict[str, Any], at: int, *lines: str) -> Step:
    """A request that names one of the receipt handles in the answers before it."""
    return lambda bodies: ask(action, {**members, "ReceiptHandle": handles_in(bodies)[at]}, *lines)


# -- taken by the fast path ------------------------------------------------------------------------

ATTRIBUTES = {
    "plain": {"DataType": "String", "StringValue": "é"},
    "n": {"DataType": "Number.int", "StringValue": "-7"},
    "b": {"DataType": "Binary", "BinaryValue": "AP8="},
}
SENDS: list[dict[str, Any]] = [
    {"MessageBody": "x"},
    {"MessageBody": 'é🐟\r\n\t<&>"\\'},
    {"MessageBody": "x" * 30 * KIB},
    {"MessageBody": "x", "DelaySeconds": 0},
    {"MessageBody": "x", "DelaySeconds": "7"},
    {"MessageBody": "x", "MessageAttributes": ATTRIBUTES},
    {"MessageBody": "x", "MessageGroupId": "g", "Unknown": [1]},
    {
        "MessageBody": "x",
        "MessageSystemAttributes": {"AWSTraceHeader": {"DataType": "String", "StringValue": "t"}},
    },
]


@pytest.mark.parametrize("lines", [[], SDK], ids=["bare", "sdk"])
def test_the_fast_path_takes_each_action(pair: Pair, lines: list[str]) -> None:
    taken, queue = pair.quick.taken, pair.filled(b"0", b"1", b"2", b"3")
    other = pair.queue()  # what is sent is found at once: the last receive is to find nothing
    url, to = (
        {"QueueUrl": f"http://elsewhere.example:99/000000000000/{one}"} for one in (queue, other)
    )
    entries = [{"Id": f"e{n}", **one} for n, one in enumerate(SENDS)]

    def both_and_none(bodies: list[bytes]) -> list[dict[str, str]]:
        handles = [*handles_in(bodies)[1:], "none"]
        return [{"Id": f"e{n}", "ReceiptHandle": one} for n, one in enumerate(handles)]

    told = pair.talk(
        *(ask("SendMessage", {**to, **one}, *lines) for one in SENDS),
        ask("SendMessageBatch", {**to, "Entries": entries}, *lines),
        ask("SendMessage", {"MessageBody": "x"}, *lines, path=f"/123456789012/{other}"),
        ask("ReceiveMessage", url, *lines),
        by_handle("DeleteMessage", url, 0, *lines),
        by_handle("DeleteMessage", url, 0, *lines),
        ask("ReceiveMessage", {**url, "MaxNumberOfMessages": 2, "AttributeNames": ["All"]}, *lines),
        lambda bodies: ask("DeleteMessageBatch", {**url, "Entries": both_and_none(bodies)}, *lines),
        ask("ReceiveMessage", {**url, "VisibilityTimeout": 9, "WaitTimeSeconds": 0}, *lines),
        ask("ReceiveMessage", url, *lines),
    )
    assert told[-1].body == "{}"
    assert [one.status for one in told] == [200] * len(told)
    assert pair.quick.taken == taken + len(told)
    assert pair.plain.taken == 0


def test_headers_that_differ_in_each_request_are_not_cached(pair: Pair) -> None:
    queue = pair.queue()
    beside = pair.quick.fast_path.beside
    assert beside is not None
    heads = beside._heads
    assert isinstance(heads, SqsHeads)
    sizes = []
    for number in range(3):
        lines = [one.replace("00", f"0{number}") for one in SDK]
        body = "x" * 10**number
        pair.talk(ask("SendMessage", {"QueueUrl": queue, "MessageBody": body}, *lines))
        sizes.append((len(heads._fields), len(heads._paths)))
    assert len(set(sizes)) == 1


@pytest.mark.parametrize(
    "names",
    [
        {"MessageAttributeNames": ["All"], "AttributeNames": ["all"]},
        {"MessageAttributeNames": ["fsmq.*"], "MessageSystemAttributeNames": ["SenderId"]},
        {"AttributeNames": ["none"]},
    ],
    ids=str,
)
def test_attributes_of_messages_from_other_sources(pair: Pair, names: dict[str, Any]) -> None:
    """Native messages, dead letters and files written by hand."""
    queue = pair.queue()
    bodies = (b"", b"\xff", b"\x00", b"text", b"sqs.queue: other\nname: v\n\nx", b"no header")
    for one in pair.both:
        for at, body in enumerate(bodies):
            flag = ".h" if b"\n\n" in body or body == b"no header" else ""
            (one.root / "queues" / queue / f"{ID.format(at)}{flag}").write_bytes(body)
            os.utime(one.root / "queues" / queue / f"{ID.format(at)}{flag}", (1.7e9, 1.7e9))
        (one.root / "queues" / queue / "own-name").write_bytes(b"own")
        os.utime(one.root / "queues" / queue / "own-name", (1.7e9, 1.7e9))
        one.load(queue)
        one.seen(queue, 7)
    pair.talk(ask("ReceiveMessage", {"QueueUrl": queue, "MaxNumberOfMessages": 10, **names}))


# -- left to aiohttp -------------------------------------------------------------------------------

HEADS = [
    ["Content-Encoding: gzip"],
    ["X-Other: 1"],
    ["Host: localhost"],
    [f"{TARGET}ReceiveMessage"],
    ["Connection: close"],
    ["connection: Keep-Alive"],
    ["Expect: 100-continue"],
    ["Origin: http://evil.example"],
    ["Origin: http://localhost"],
    ["Sec-Fetch-Site: cross-site"],
    ["X-Amz-Date:"],
    ["X-Amz-Date"],
    ["authorization"],
    ["Authorization : x"],
    ["Authorization: x\r\n folded"],
    ["Authorization: x\ry"],
    ["Authorization: x\ny"],
    ["AUTHORIZATION: x", "authorization: x"],
    ["User-Agent:"],
    ["User-Agent"],
    ["X-Amz-Date:\t20261123T200000Z \t"],
    ["X-Amz-Date: \xe9"],
    ["User-Agent: \x01"],
    ["Authorization: Bearer x"],
    ["Content-Type: text/plain"],
    ["Accept : */*"],
    ["x-amz-security-token: " + "x" * 5000],
    ["Content-Length: 03"],
    ["Content-Length: 1", "Content-Length: 1"],
    ["Transfer-Encoding: chunked"],
]


@pytest.mark.parametrize("lines", HEADS, ids=lambda lines: lines[0][:40])
def test_headers(pair: Pair, lines: list[str]) -> None:
    queue = pair.queue()
    pair.compare(ask("SendMessage", {"QueueUrl": queue, "MessageBody": "x"}, *lines))


@pytest.mark.parametrize(
    "line",
    [
        "POST /?a=b",
        "POST //",
        "GET /",
        "POST /x",
        "POST /{}",
        "POST /123456789012/{}?x",
        "POST /12345678901/{}",
        "POST /123456789012/{}//",
        "POST /123456789012/messages",
        "POST /123456789012/%71",
        "post /",
        "POST http://localhost/",
        "PUT /",
        "POST  /",
        "POST /queue/us-east-1/123456789012/{}",
        "POST /123456789012/{}/",
        "OPTIONS /",
    ],
)
def test_request_lines(pair: Pair, line: str) -> None:
    body = b'{"MessageBody":"x"}'
    data = request(line.format(pair.queue()), f"{TARGET}SendMessage", body=body)
    pair.compare(data)


@pytest.mark.parametrize("action", ["SendMessage", "ReceiveMessage", "DeleteMessageBatch", "Odd"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b'{"QueueUrl":1}',
        b'{"QueueUrl":"none"}',
        b'{"QueueUrl":"a.b"}',
        b'{"QueueUrl":"\\ud800"}',
        b"\xff",
        b"[" * 9000,
        b"[," * 30_000,
        b'{"QueueUrl":"QUEUE"}',
        b'{"QueueUrl":"QUEUE","Entries":[]}',
        b"x" * 70_000,
    ],
    ids=lambda body: repr(body[:30]),
)
def test_bodies(pair: Pair, action: str, body: bytes) -> None:
    pair.compare(ask(action, None, body=body.replace(b"QUEUE", pair.queue().encode())))


ODD: list[Any] = [None, True, -1, 901, 10**18, 1.5, "", "٣", "\ud800", "\x00", "x" * 200, [], {}]


@pytest.mark.parametrize(
    ("action", "name"),
    [
        *[("SendMessage", one) for one in ("MessageBody", "DelaySeconds", "MessageAttributes")],
        *[("SendMessage", one) for one in ("MessageGroupId", "MessageDeduplicationId")],
        ("SendMessage", "MessageSystemAttributes"),
        *[("ReceiveMessage", one) for one in ("MaxNumberOfMessages", "VisibilityTimeout")],
        *[("ReceiveMessage", one) for one in ("WaitTimeSeconds", "MessageAttributeNames")],
        ("ReceiveMessage", "ReceiveRequestAttemptId"),
        *[("DeleteMessage", one) for one in ("ReceiptHandle", "QueueUrl")],
        *[("SendMessageBatch", one) for one in ("Entries", "Id", "MessageBody", "DelaySeconds")],
        *[("DeleteMessageBatch", one) for one in ("Entries", "Id", "ReceiptHandle")],
    ],
)
def test_values_of_members(pair: Pair, action: str, name: str) -> None:
    queue = pair.filled(b"0", b"1")
    good: dict[str, Any] = {"QueueUrl": queue, "MessageBody": "x", "ReceiptHandle": "x"}
    steps = []
    for odd in ODD:
        members = {**good, name: odd}
        if "Batch" in action and name != "Entries":
            entries = [{"Id": "a", **members}, {"Id": "b", **good}]
            members = {"QueueUrl": queue, "Entries": entries}
        steps.append(ask(action, members))
    pair.compare(*steps)


# -- queues ----------------------------------------------------------------------------------------


@each_setting
def test_settings_of_queues(pair: Pair, given: dict[str, object]) -> None:
    queue = {"QueueUrl": pair.filled(b"0", b"1", b"2", **given)}
    entries = [{"Id": f"e{n}", "MessageBody": "x" * size} for n, size in enumerate((1, 10, 11))]
    pair.talk(
        ask("ReceiveMessage", queue),
        ask("ReceiveMessage", {**queue, "MaxNumberOfMessages": 3}),
        ask("SendMessageBatch", {**queue, "Entries": entries}),
        *(ask("SendMessage", {**queue, "MessageBody": "x" * size}) for size in (1, 10, 11, 5000)),
    )


@pytest.mark.parametrize("by_content", [False, True])
def test_a_fifo_queue(pair: Pair, by_content: bool) -> None:
    given = {"fifo": True, "dedup_by_content": by_content}
    queue = {"QueueUrl": pair.queue(suffix=".fifo", **given)}
    one = {**queue, "MessageBody": "x", "MessageGroupId": "g"}
    named = {"MessageBody": "y", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
    entries = [{"Id": "a", **named}, {"Id": "b", **named, "MessageBody": "z"}]
    # The first send into a fifo queue waits for its turn, which is left to aiohttp.
    pair.talk(ask("SendMessage", {**queue, **named, "MessageDeduplicationId": "first"}))
    taken = pair.quick.taken
    told = pair.talk(
        ask("SendMessage", {**one, "MessageDeduplicationId": "d"}),
        ask("SendMessage", {**one, "MessageDeduplicationId": "d"}),
    )
    assert [one.status for one in told] == [200, 200]
    assert pair.quick.taken == taken + 2
    pair.talk(
        ask("SendMessage", one),
        ask("SendMessage", {**one, "MessageDeduplicationId": "e", "DelaySeconds": 3}),
        ask("SendMessage", {**one, "MessageGroupId": None}),
        ask("SendMessageBatch", {**queue, "Entries": entries}),
        ask("SendMessageBatch", {**queue, "Entries": [{"Id": "a", "MessageBody": "x"}]}),
    )
    pair.talk(
        ask("ReceiveMessage", {**queue, "MaxNumberOfMessages": 10, "AttributeNames": ["All"]}),
        by_handle("DeleteMessage", queue, 0),
        by_handle("DeleteMessage", queue, 0),
        by_handle("DeleteMessage", queue, 1),
    )


@pytest.mark.parametrize("kind", [{}, {"fifo": True, "suffix": ".fifo"}], ids=["plain", "fifo"])
def test_receipts_of_ended_claims(pair: Pair, kind: dict[str, Any]) -> None:
    queue = {"QueueUrl": pair.filled(b"0", b"1", b"2", **kind)}
    released = {**queue, "VisibilityTimeout": 0}

    def delete_all(bodies: list[bytes]) -> bytes:
        handles = enumerate(handles_in(bodies))
        entries = [{"Id": f"e{n}", "ReceiptHandle": one} for n, one in handles]
        return ask("DeleteMessageBatch", {**queue, "Entries": entries})

    pair.talk(
        ask("ReceiveMessage", {**queue, "MaxNumberOfMessages": 10}),
        by_handle("ChangeMessageVisibility", released, 0),
        by_handle("DeleteMessage", queue, 0),
        by_handle("ChangeMessageVisibility", released, 1),
        ask("ReceiveMessage", queue),
        delete_all,
        delete_all,
    )


def test_a_receive_that_waits(pair: Pair) -> None:
    """With an arrival, in vain, and with a hang-up."""
    queue = pair.queue()
    told = []
    for one in pair.both:
        with ExitStack() as stack:
            gone, wire = (stack.enter_context(Wire(one.url)) for _ in range(2))
            waits = ask("ReceiveMessage", {"QueueUrl": queue, "WaitTimeSeconds": 20})
            for number, each in enumerate((gone, wire), 1):
                each.send(waits)
                eventually(lambda one=one, n=number: len(one.service.receiver.waiters) == n)
            gone.close()
            eventually(lambda one=one: len(one.service.receiver.waiters) == 1)
            one.queue(queue, ready=[b"x"], are_kept=False)
            told.append(tell(wire.answer()))
            wire.send(ask("ReceiveMessage", {"QueueUrl": queue, "WaitTimeSeconds": 1}))
            told.append(tell(wire.answer()))
            assert told[-1].body == "{}"
    assert told[:2] == told[2:]


def test_a_failing_disk(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = pair.filled(b"0", b"1", b"2")

    pair.fail_syncs(monkeypatch)
    url = {"QueueUrl": queue}
    told = pair.talk(
        ask("SendMessage", {**url, "MessageBody": "x"}),
        ask("SendMessageBatch", {**url, "Entries": [{"Id": "a", "MessageBody": "x"}]}),
        ask("ReceiveMessage", url),
    )
    assert [one.status for one in told] == [503] * 3
    monkeypatch.undo()
    told = pair.talk(
        ask("ReceiveMessage", {**url, "MaxNumberOfMessages": 10}),
        by_handle("DeleteMessage", url, 2),
    )
    assert [one.status for one in told] == [200] * 2


# -- keys ------------------------------------------------------------------------------------------

SECRET = "secret"


@pytest.fixture(scope="module", params=["none", "key", "signature"])
def guarded(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[Pair, dict[str, tuple[str, str]]]]:
    """Two servers with keys; their ids and secrets."""
    folder = tmp_path_factory.mktemp("guarded")
    file, keys = folder / "keys", {}
    for name, rights in (
        ("all", ["--send=*", "--receive=*"]),
        ("sender", ["--send=*"]),
        ("other", ["--send=other", "--receive=other"]),
    ):
        if request.param == "signature":
            told = dict(
                line.split("=", 1) for line in add_key(file, name, "--aws", *rights).split()
            )
            keys[name] = told["AWS_ACCESS_KEY_ID"], told["AWS_SECRET_ACCESS_KEY"]
        else:
            keys[name] = add_key(file, name, *rights), SECRET
    options = {
        "dialects": ("sqs",),
        "access": Access(load(file)),
        "sqs": SqsOptions(auth=request.param),
    }
    with pair_of(folder, **options) as running:
        yield running, keys


def signed(key: tuple[str, str], action: str, members: Any, spoiled: str = "") -> bytes:
    """A signed request. spoiled: a line that was changed after signing."""
    body = json.dumps(members).encode()
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    headers = CIMultiDict(
        {"Host": "localhost", "X-Amz-Target": f"AmazonSQS.{action}", "X-Amz-Date": moment}
    )
    names = tuple(sorted(name.lower() for name in headers))
    told = sigv4.Signed(key[0], moment[:8], "r", "sqs", moment, names, "", None)
    signature = sigv4.signature_of(told, key[1], sigv4.Request("POST", "/", "", headers), body)
    lines = [
        f"X-Amz-Date: {moment}",
        f"Authorization: {sigv4.ALGORITHM} Credential={key[0]}/{told.scope},"
        f" SignedHeaders={';'.join(names)}, Signature={signature}",
    ]
    if spoiled == "signature":
        lines[1] = lines[1][:-2] + ("00" if lines[1][-2:] != "00" else "11")
    elif spoiled == "body":
        body = body.replace(b'"x"', b'"y"')
    elif spoiled == "moment":
        lines[0] = "X-Amz-Date: 20010101T000000Z"
    elif spoiled == "no key":
        lines.pop()
    return ask(action, None, *lines, body=body)


@pytest.mark.parametrize("spoiled", ["", "signature", "body", "moment", "no key"])
@pytest.mark.parametrize("name", ["all", "sender", "other", "nobody"])
def test_keys_and_signatures(
    guarded: tuple[Pair, dict[str, tuple[str, str]]], name: str, spoiled: str
) -> None:
    pair, keys = guarded
    for one in pair.both:
        one.empty()
    queue = pair.filled(b"0", b"1")
    key = keys.get(name, ("AKIDNOBODY", SECRET))
    taken = pair.quick.taken
    send = {"QueueUrl": queue, "MessageBody": "x"}
    told = pair.compare(
        signed(key, "SendMessage", send, spoiled),
        signed(key, "ReceiveMessage", {"QueueUrl": queue, "AttributeNames": ["All"]}, spoiled),
        signed(key, "SendMessage", {"QueueUrl": "other", "MessageBody": "x"}, spoiled),
    )
    mode = pair.quick.server._others[0]._options.auth  # type: ignore[attr-defined]
    if mode != "none" and (name, spoiled) == ("all", ""):
        assert [one.status for one in told[:2]] == [200, 200]
        assert pair.quick.taken >= taken + 2
    assert pair.plain.taken == 0


def test_the_journal_records_the_dialect(tmp_path: Path) -> None:
    with Inside(tmp_path / "mq", dialects=("sqs",), journal=True) as server:
        server.queue("q")
        talk(server, [ask("SendMessage", {"QueueUrl": "q", "MessageBody": "x"})])
        assert server.taken == 1
        assert server.steps("q") == [("accepted", "sqs"), ("delivered", "sqs")]
