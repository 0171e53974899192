"""Requests of SQS's clients on the fast path are answered as aiohttp would have them answered."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
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
from tests.http.pair import (  # noqa: F401 - a fixture
    KIB,
    LIMIT,
    Pair,
    Told,
    apart,
    pair_of,
    request,
    tell,
)
from tests.http.test_fast_path_pieces import cut

_queues = count(1)
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
# A request, or what makes it of the receipt handles that were given out before it.
Step: TypeAlias = "bytes | Callable[[list[str]], bytes]"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    options = {"dialects": ("sqs",), "host_names": (), "max_message_bytes": LIMIT}
    with pair_of(tmp_path_factory.mktemp("pair"), **options) as running:
        yield running


def ask(
    action: str, members: Any, *lines: str, path: str = "/", body: bytes | None = None
) -> bytes:
    if body is None:
        body = json.dumps(members).encode()
    return request(f"POST {path}", f"{TARGET}{action}", *lines, body=body)


def fresh(pair: Pair, number: int = 0, suffix: str = "", **given: object) -> str:
    """A queue on both, with messages of the same ids that are ready."""
    name = f"s{next(_queues)}{suffix}"
    for one in pair.both:
        folder = one.root / "queues" / name
        folder.mkdir()
        (one.root / "config").mkdir(exist_ok=True)
        (one.root / "config" / f"{name}.json").write_text(json.dumps(given))
        for at in range(number):
            (folder / ID.format(at)).write_bytes(f"body {at}".encode())
            os.utime(folder / ID.format(at), (1.7e9, 1.7e9))
        one.load(name)
        one.seen(name, number)
    return name


def talk(server: Inside, steps: Sequence[Step]) -> list[Told]:
    """Send the steps one after the other on one connection, and read their answers."""
    handles: list[str] = []
    told = []
    with Wire(server.url) as wire:
        for step in steps:
            wire.send(step if isinstance(step, bytes) else step(handles))
            answer = wire.answer()
            handles += handles_in(answer.body)
            told.append(tell(answer))
    return told


def handles_in(body: bytes) -> list[str]:
    given = json.loads(body) if body[:1] == b"{" else {}
    return [one["ReceiptHandle"] for one in given.get("Messages", [])]


def compare(pair: Pair, *steps: Step) -> list[Told]:
    quick, plain = (talk(one, steps) for one in pair.both)
    assert quick == plain
    assert pair.quick.tree() == pair.plain.tree()
    eventually(lambda: all(one.admission.memory == 0 for one in pair.both))
    return quick


# -- what the fast path takes ----------------------------------------------------------------------

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
def test_each_action_is_taken(pair: Pair, lines: list[str]) -> None:
    taken, queue = pair.quick.taken, fresh(pair, 4)
    other = fresh(pair)  # what is sent is found at once: the last receive is to find nothing
    url, to = (
        {"QueueUrl": f"http://elsewhere.example:99/000000000000/{one}"} for one in (queue, other)
    )
    entries = [{"Id": f"e{n}", **one} for n, one in enumerate(SENDS)]
    told = compare(
        pair,
        *(ask("SendMessage", {**to, **one}, *lines) for one in SENDS),
        ask("SendMessageBatch", {**to, "Entries": entries}, *lines),
        ask("SendMessage", {"MessageBody": "x"}, *lines, path=f"/123456789012/{other}"),
        ask("ReceiveMessage", url, *lines),
        lambda handles: ask("DeleteMessage", {**url, "ReceiptHandle": handles[0]}, *lines),
        lambda handles: ask("DeleteMessage", {**url, "ReceiptHandle": handles[0]}, *lines),
        ask("ReceiveMessage", {**url, "MaxNumberOfMessages": 2, "AttributeNames": ["All"]}, *lines),
        lambda handles: ask(
            "DeleteMessageBatch",
            {
                **url,
                "Entries": [
                    {"Id": "a", "ReceiptHandle": handles[1]},
                    {"Id": "b", "ReceiptHandle": handles[2]},
                    {"Id": "c", "ReceiptHandle": "none"},
                ],
            },
            *lines,
        ),
        ask("ReceiveMessage", {**url, "VisibilityTimeout": 9, "WaitTimeSeconds": 0}, *lines),
        ask("ReceiveMessage", url, *lines),
    )
    assert told[-1].body == "{}"
    assert [one.status for one in told] == [200] * len(told)
    assert pair.quick.taken == taken + len(told)
    assert pair.plain.taken == 0


def test_no_line_that_differs_in_each_request_is_remembered(pair: Pair) -> None:
    queue = fresh(pair)
    beside = pair.quick.fast_path.beside
    assert beside is not None
    heads = beside._heads
    assert isinstance(heads, SqsHeads)
    sizes = []
    for number in range(3):
        lines = [one.replace("00", f"0{number}") for one in SDK]
        body = "x" * 10**number
        compare(pair, ask("SendMessage", {"QueueUrl": queue, "MessageBody": body}, *lines))
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
def test_what_is_told_of_messages_of_others(pair: Pair, names: dict[str, Any]) -> None:
    """Posted natively, dead letters, and such as someone wrote by hand."""
    queue = fresh(pair)
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
    compare(pair, ask("ReceiveMessage", {"QueueUrl": queue, "MaxNumberOfMessages": 10, **names}))


# -- what it leaves to others ----------------------------------------------------------------------

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
def test_every_head(pair: Pair, lines: list[str]) -> None:
    queue = fresh(pair)
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
def test_every_line(pair: Pair, line: str) -> None:
    body = b'{"MessageBody":"x"}'
    data = request(line.format(fresh(pair)), f"{TARGET}SendMessage", body=body)
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
def test_every_body(pair: Pair, action: str, body: bytes) -> None:
    pair.compare(ask(action, None, body=body.replace(b"QUEUE", fresh(pair).encode())))


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
def test_every_value_of_a_member(pair: Pair, action: str, name: str) -> None:
    queue = fresh(pair, 2)
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


@pytest.mark.parametrize(
    "given",
    [
        {"default_delay": 5},
        {"max_message_bytes": 10},
        {"max_depth": 2},
        {"compress": True},
        {"visibility_timeout": 0},
        {"max_deliveries": 1, "dead_letter_queue": "dead"},
        {"sqs": {"ReceiveMessageWaitTimeSeconds": "0"}},
        {"max_in_flight": 1},
        {"paused": True},
        {"claim_order": "fair"},
        {"no-setting": 1},
    ],
    ids=str,
)
def test_every_setting_of_a_queue(pair: Pair, given: dict[str, object]) -> None:
    queue = {"QueueUrl": fresh(pair, 3, **given)}
    entries = [{"Id": f"e{n}", "MessageBody": "x" * size} for n, size in enumerate((1, 10, 11))]
    compare(
        pair,
        ask("ReceiveMessage", queue),
        ask("ReceiveMessage", {**queue, "MaxNumberOfMessages": 3}),
        ask("SendMessageBatch", {**queue, "Entries": entries}),
        *(ask("SendMessage", {**queue, "MessageBody": "x" * size}) for size in (1, 10, 11, 5000)),
    )


@pytest.mark.parametrize("by_content", [False, True])
def test_a_fifo_queue(pair: Pair, by_content: bool) -> None:
    given = {"fifo": True, "dedup_by_content": by_content}
    queue = {"QueueUrl": fresh(pair, suffix=".fifo", **given)}
    one = {**queue, "MessageBody": "x", "MessageGroupId": "g"}
    named = {"MessageBody": "y", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
    entries = [{"Id": "a", **named}, {"Id": "b", **named, "MessageBody": "z"}]
    for server in pair.both:
        # Who waits for its turn as a sender is in aiohttp's hands.
        talk(server, [ask("SendMessage", {**queue, **named, "MessageDeduplicationId": "first"})])
    taken = pair.quick.taken
    told = compare(
        pair,
        ask("SendMessage", {**one, "MessageDeduplicationId": "d"}),
        ask("SendMessage", {**one, "MessageDeduplicationId": "d"}),
    )
    assert [one.status for one in told] == [200, 200]
    assert pair.quick.taken == taken + 2
    compare(
        pair,
        ask("SendMessage", one),
        ask("SendMessage", {**one, "MessageDeduplicationId": "e", "DelaySeconds": 3}),
        ask("SendMessage", {**one, "MessageGroupId": None}),
        ask("SendMessageBatch", {**queue, "Entries": entries}),
        ask("SendMessageBatch", {**queue, "Entries": [{"Id": "a", "MessageBody": "x"}]}),
    )
    compare(
        pair,
        ask("ReceiveMessage", {**queue, "MaxNumberOfMessages": 10, "AttributeNames": ["All"]}),
        lambda handles: ask("DeleteMessage", {**queue, "ReceiptHandle": handles[0]}),
        lambda handles: ask("DeleteMessage", {**queue, "ReceiptHandle": handles[0]}),
        lambda handles: ask("DeleteMessage", {**queue, "ReceiptHandle": handles[1]}),
    )


def test_receipts_of_claims_that_have_ended(pair: Pair) -> None:
    for kind in ({}, {"fifo": True}):
        queue = {"QueueUrl": fresh(pair, 3, ".fifo" if kind else "", **kind)}

        def change(
            handles: list[str], seconds: int = 0, queue: dict[str, str] = queue, at: int = 0
        ) -> bytes:
            members = {**queue, "ReceiptHandle": handles[at], "VisibilityTimeout": seconds}
            return ask("ChangeMessageVisibility", members)

        def delete(handles: list[str], queue: dict[str, str] = queue) -> bytes:
            entries = [{"Id": f"e{n}", "ReceiptHandle": one} for n, one in enumerate(handles)]
            return ask("DeleteMessageBatch", {**queue, "Entries": entries})

        compare(
            pair,
            ask("ReceiveMessage", {**queue, "MaxNumberOfMessages": 10}),
            change,
            lambda handles, queue=queue: ask(
                "DeleteMessage", {**queue, "ReceiptHandle": handles[0]}
            ),
            lambda handles, change=change: change(handles, at=1),
            ask("ReceiveMessage", queue),
            delete,
            delete,
        )


def test_a_receive_waits(pair: Pair) -> None:
    """For a message that comes, and in vain; who hangs up loses none."""
    queue = fresh(pair)
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


def test_a_disk_that_fails(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = fresh(pair, 3)

    pair.fail_syncs(monkeypatch)
    url = {"QueueUrl": queue}
    told = compare(
        pair,
        ask("SendMessage", {**url, "MessageBody": "x"}),
        ask("SendMessageBatch", {**url, "Entries": [{"Id": "a", "MessageBody": "x"}]}),
        ask("ReceiveMessage", url),
    )
    assert [one.status for one in told] == [503] * 3
    monkeypatch.undo()
    told = compare(
        pair,
        ask("ReceiveMessage", {**url, "MaxNumberOfMessages": 10}),
        lambda handles: ask("DeleteMessage", {**url, "ReceiptHandle": handles[2]}),
    )
    assert [one.status for one in told] == [200] * 2


# -- keys ------------------------------------------------------------------------------------------

SECRET = "secret"


@pytest.fixture(scope="module", params=["none", "key", "signature"])
def guarded(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[Pair, dict[str, tuple[str, str]]]]:
    """Two servers with keys, and the two parts of these."""
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
    """A signed request. spoiled: a line that differs from what was signed."""
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
    queue = fresh(pair, 2)
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


# -- in pieces -------------------------------------------------------------------------------------


def sends() -> st.SearchStrategy[bytes]:
    text = st.text(st.characters(codec="utf-8"), max_size=5)
    body = st.one_of(text, st.sampled_from(["x" * 1000, "x" * 1001, "POST / HTTP/1.1\r\n\r\n"]))
    one = st.fixed_dictionaries(
        {"MessageBody": body},
        optional={
            "DelaySeconds": st.sampled_from([0, 1, "5", 901, None]),
            "MessageAttributes": st.sampled_from([ATTRIBUTES, {}, {"a": {}}]),
        },
    )
    entries = st.lists(
        st.builds(lambda name, of: {"Id": name, **of}, st.sampled_from("abcd"), one), max_size=4
    )
    return st.one_of(
        st.builds(lambda of: ask("SendMessage", {"QueueUrl": "QUEUE", **of}), one),
        st.builds(
            lambda of: ask("SendMessageBatch", {"QueueUrl": "QUEUE", "Entries": of}, *SDK), entries
        ),
    )


OTHERS = [
    ask("ReceiveMessage", {"QueueUrl": "QUEUE"}),
    ask("ReceiveMessage", {"QueueUrl": "QUEUE", "MaxNumberOfMessages": 2}, *SDK),
    ask("ReceiveMessage", {"QueueUrl": "QUEUE", "VisibilityTimeout": 0}),
    ask("ReceiveMessage", {"QueueUrl": "QUEUE"}, "X-Other: 1"),
    ask("DeleteMessage", {"QueueUrl": "QUEUE", "ReceiptHandle": "none"}),
    ask("GetQueueUrl", {"QueueName": "QUEUE"}),
    ask("SendMessage", {"QueueUrl": "no-such-queue", "MessageBody": "x"}),
    request("POST /", body=b"Action=SendMessage&QueueUrl=QUEUE&MessageBody=x"),
    request("POST /QUEUE/messages", body=b"native"),
    request("GET /QUEUE/messages"),
]
cuts = st.lists(st.tuples(st.integers(0, 6), st.sampled_from([0, 0, 1, 9, 60, 200, 400, -1, -9])))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    parts=st.lists(st.one_of(sends(), st.sampled_from(OTHERS)), max_size=5),
    deletes=st.lists(st.integers(0, 3), max_size=3),
    cuts=cuts,
)
def test_pieces_and_pipelines(
    pair: Pair, parts: list[bytes], deletes: list[int], cuts: list[tuple[int, int]]
) -> None:
    for one in pair.both:
        one.empty()
    # Names of one length: what a request says of the length of its body has to stay true.
    queue = f"{next(_queues):05}"
    for one in pair.both:
        (one.root / "queues" / queue).mkdir()
        for at in range(3):
            (one.root / "queues" / queue / ID.format(at)).write_bytes(b"ready")
            os.utime(one.root / "queues" / queue / ID.format(at), (1.7e9, 1.7e9))
        one.load(queue)
        one.seen(queue, 3)
    quick, plain = (exchange(one, queue, parts, deletes, cuts) for one in pair.both)
    assert quick == plain
    assert pair.quick.tree() == pair.plain.tree()
    for one in pair.both:
        eventually(one.holds_nothing)


def exchange(
    server: Inside, queue: str, parts: list[bytes], deletes: list[int], cuts: list[tuple[int, int]]
) -> list[Told]:
    """Send requests in pieces, each of which the server gets alone; then delete what they got."""
    told: list[Told] = []
    handles: list[str] = []
    last = request("GET /_health/live", "Connection: close")
    with Wire(server.url) as wire:
        for turn in range(3):
            if turn == 1:
                which = [handles[n % len(handles)] for n in deletes if handles]
                requests = [
                    ask("DeleteMessage", {"QueueUrl": queue, "ReceiptHandle": one}) for one in which
                ]
            else:
                requests = [last] if turn else [p.replace(b"QUEUE", queue.encode()) for p in parts]
            for piece in cut(requests, cuts):
                wire.send(piece)
                for _ in range(3):
                    server.call(lambda: None)  # it has read what came
            for _ in requests:
                answer = wire.answer()
                handles += handles_in(answer.body) if not turn else []
                told.append(tell(answer))
        assert wire.is_closed()
    return told


def test_the_lane_has_some_of_them(pair: Pair) -> None:
    assert pair.quick.taken
    assert not pair.plain.taken


def test_the_journal_says_that_it_came_by_sqs(tmp_path: Path) -> None:
    with Inside(tmp_path / "mq", dialects=("sqs",), journal=True) as server:
        server.queue("q")
        talk(server, [ask("SendMessage", {"QueueUrl": "q", "MessageBody": "x"})])
        assert server.taken == 1
        assert server.steps("q") == [("accepted", "sqs"), ("delivered", "sqs")]
