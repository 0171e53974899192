"""Requests of all dialects in pieces and pipelines get the same answers with the fast path.

All dialects share the parser.
"""

from __future__ import annotations

from itertools import accumulate, pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.suite import eventually
from tests.http.emodb import test_fast_path as emodb
from tests.http.helpers import Wire
from tests.http.inside import Inside
from tests.http.pair import KIB, Pair, Told, request, tell
from tests.http.sqs import test_fast_path as sqs
from tests.http.test_fast_path_batches import MESSAGES, ack, batch
from tests.http.test_fast_path_dynamiq import ID, delete, fetch, put

LIMIT = 31 * KIB
OPTIONS = {"dialects": ("emodb", "dynamiq", "sqs"), "host_names": (), "max_message_bytes": LIMIT}
LAST = request("GET /_health/live", "Connection: close")
CHUNKED = "Transfer-Encoding: chunked"
LONGEST = [b"x" * LIMIT, b"x" * (LIMIT + 1)]
# QUEUE is replaced by the name of the queue, which has the same length.
NATIVE = [
    request("GET /QUEUE/messages"),
    request("GET /QUEUE/messages?count=2"),
    request("GET /QUEUE/messages", "Accept: application/json"),
    request("GET /QUEUE/messages?wait=0.01"),
    request("GET /not-there/messages"),
    request("POST /not-there/messages", body=b"x"),
    request("POST /QUEUE/messages", "Content-Length: 0"),
    request("DELETE /QUEUE/messages/none"),
    request("PATCH /QUEUE/messages/none?visibility=5"),
]
AIOHTTP = [
    request("GET /QUEUE/messages", "X-Other: 1"),
    request("POST /QUEUE/messages", CHUNKED, body=b"3\r\nabc\r\n0\r\n\r\n"),
    request("POST /QUEUE/messages", "X-Message-Attribute-A: b", body=b"abc"),
    request("POST /QUEUE/messages?id=own", body=b"abc"),
    request("PUT /QUEUE"),
    request("HEAD /QUEUE/messages/none"),
    request("GET /QUEUE/messages?unknown=1"),
    b"\r\n" + request("GET /QUEUE/messages"),
]
BROKEN = [
    request("POST /QUEUE/messages", "Content-Length: 3", "Content-Length: 4", body=b"abc"),
    request("POST /QUEUE/messages", "Content-Length: x", body=b"abc"),
    request("GET /QUEUE/messages", "No colon"),
    request("GET /QUEUE/messages", "Accept: a\x00"),
    b"GET /QUEUE/messages HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
    b"GET /QUEUE/messages HTTP/9.9\r\n\r\n",
    b"\0\r\n\r\n",
    request("GET /QUEUE/messages", "Connection: close"),
    b"GET /QUEUE/messages HTTP/1.0\r\n\r\n",
]
posts = st.builds(
    lambda query, body: request(f"POST /QUEUE/messages{query}", body=body),
    st.sampled_from(["", "?priority=3", "?ttl=x"]),
    st.binary(max_size=40) | st.sampled_from([b"GET / HTTP/1.1\r\n\r\n", b"\r\n", *LONGEST]),
)
batches = (
    st.builds(
        batch, st.just("QUEUE"), st.lists(st.sampled_from([*MESSAGES, {"body": 1}]), max_size=4)
    )
    | st.builds(
        ack,
        st.just("QUEUE"),
        st.lists(st.sampled_from([*map(ID.format, range(3)), "none", ""]), max_size=4),
    )
    | st.sampled_from(
        [
            batch("not-there", MESSAGES),
            ack("not-there", ["x"]),
            batch("QUEUE", b"["),
            batch("QUEUE", b"1\r\n[\r\n0\r\n\r\n", CHUNKED),
            request("POST /QUEUE/batch", "Content-Length: 0"),
        ]
    )
)
of_emodb = (
    st.builds(
        lambda body, lines: emodb.send("QUEUE", body, *lines),
        st.sampled_from([*emodb.JSONS, *emodb.BAD[:9]]).filter(bool),
        st.sampled_from([[emodb.TYPE], emodb.JAVA, ["Content-Type: text/plain"]]),
    )
    | st.builds(
        lambda bodies: emodb.send("QUEUE", b"[%s]" % b",".join(bodies), verb="sendbatch"),
        st.lists(st.sampled_from([*emodb.JSONS[:-1], b"x"]), max_size=4),
    )
    | st.sampled_from(
        [
            *(emodb.poll("QUEUE", query) for query in ("", "?limit=1&ttl=9", "?ttl=0", "?ttl=x")),
            emodb.poll("QUEUE", "", "X-Other: 1"),
            emodb.send("QUEUE", b"[]", verb="ack"),
            emodb.send("no-queue", b"1"),
            emodb.send("QUEUE", b"1\r\n1\r\n0\r\n\r\n", emodb.TYPE, CHUNKED),
        ]
    )
)
of_dynamiq = st.builds(
    put, st.just("QUEUE"), st.sampled_from([b"x", b"\xff\r\n\r\n", *LONGEST])
) | st.sampled_from(
    [
        *(fetch("QUEUE", number) for number in (2, "x", 0)),
        fetch("QUEUE", 1, prefix=""),
        fetch("not-there"),
        put("not-there", b"x"),
        delete("QUEUE", "message/none"),
        delete("QUEUE", "messages/a,b"),
        fetch("QUEUE", 1, "X-Other: 1"),
        delete("QUEUE", f"messages/{ID.format(0)},{ID.format(1)}", prefix=""),
        put("QUEUE", b"1\r\n1\r\n0\r\n\r\n", CHUNKED),
        request("PUT /v1/queues/QUEUE/message", "Content-Length: 0"),
        request("PUT /v1/queues/QUEUE/message"),
    ]
)
sent_by_sqs = st.fixed_dictionaries(
    {
        "MessageBody": st.text(st.characters(codec="utf-8"), max_size=5)
        | st.sampled_from(["POST / HTTP/1.1\r\n\r\n", *(body.decode() for body in LONGEST)])
    },
    optional={
        "DelaySeconds": st.sampled_from([0, 1, "5", 901, None]),
        "MessageAttributes": st.sampled_from([sqs.ATTRIBUTES, {}, {"a": {}}]),
    },
)
of_sqs = (
    st.builds(lambda one: sqs.ask("SendMessage", {"QueueUrl": "QUEUE", **one}), sent_by_sqs)
    | st.builds(
        lambda entries: sqs.ask(
            "SendMessageBatch", {"QueueUrl": "QUEUE", "Entries": entries}, *sqs.SDK
        ),
        st.lists(
            st.builds(lambda name, one: {"Id": name, **one}, st.sampled_from("abcd"), sent_by_sqs),
            max_size=4,
        ),
    )
    | st.sampled_from(
        [
            sqs.ask("ReceiveMessage", {"QueueUrl": "QUEUE"}),
            sqs.ask("ReceiveMessage", {"QueueUrl": "QUEUE", "MaxNumberOfMessages": 2}, *sqs.SDK),
            sqs.ask("ReceiveMessage", {"QueueUrl": "QUEUE", "VisibilityTimeout": 0}),
            sqs.ask("ReceiveMessage", {"QueueUrl": "QUEUE"}, "X-Other: 1"),
            sqs.ask("DeleteMessage", {"QueueUrl": "QUEUE", "ReceiptHandle": "none"}),
            sqs.ask("GetQueueUrl", {"QueueName": "QUEUE"}),
            sqs.ask("SendMessage", {"QueueUrl": "no-such-queue", "MessageBody": "x"}),
            request("POST /", body=b"Action=SendMessage&QueueUrl=QUEUE&MessageBody=x"),
        ]
    )
)
requests = st.lists(
    st.one_of(posts, st.sampled_from([*NATIVE, *AIOHTTP]), batches, of_emodb, of_dynamiq, of_sqs),
    max_size=8,
)
# Cuts: the number of a request, and the distance from its beginning.
cuts = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from([0, 0, 0, 1, 9, 60, 90, 200, 400, -1, -9]))
)


@settings(max_examples=240, deadline=None, suppress_health_check=list(HealthCheck))
@given(parts=requests, end=st.one_of(st.none(), st.sampled_from(BROKEN)), where=cuts)
def test_pieces_and_pipelines(
    pair: Pair, parts: list[bytes], end: bytes | None, where: list[tuple[int, int]]
) -> None:
    for one in pair.both:
        one.empty()
    queue = pair.filled(b"1", b'{"a":2}', b"\xff")
    # A request that cannot be parsed ends all that came with it, so it comes when the others are
    # answered. Nothing follows the request that ends the connection: whether that is an error
    # depends on the moment.
    rounds = [parts, [LAST if end is None else end]]
    quick, plain = (exchange(one, queue.encode(), rounds, where) for one in pair.both)
    assert quick == plain
    assert pair.quick.tree() == pair.plain.tree()
    for one in pair.both:
        eventually(one.holds_nothing)


def exchange(
    server: Inside, queue: bytes, rounds: list[list[bytes]], where: list[tuple[int, int]]
) -> list[Told]:
    """Send each round in pieces, which the server reads one by one, and read its answers."""
    told = []
    with Wire(server.url) as wire:
        for requests in rounds:
            for piece in cut([one.replace(b"QUEUE", queue) for one in requests], where):
                try:
                    wire.send(piece)
                except OSError:
                    break  # it has sent its answer
                for _ in range(3):
                    server.call(lambda: None)  # it has read what came
            for one in filter(None, requests):
                try:
                    told.append(tell(wire.answer(head=one.startswith(b"HEAD"))))
                except (AssertionError, OSError):
                    return told
        assert wire.is_closed()
    return told


def cut(requests: list[bytes], where: list[tuple[int, int]]) -> list[bytes]:
    data = b"".join(requests)
    starts = [0, *accumulate(map(len, requests))]
    wanted = {starts[min(number, len(requests))] + offset for number, offset in where}
    places = sorted({0, len(data), *(place for place in wanted if 0 < place < len(data))})
    return [data[start:stop] for start, stop in pairwise(places)]


def test_the_fast_path_took_some_of_them(pair: Pair) -> None:
    assert pair.quick.taken
    assert not pair.plain.taken
