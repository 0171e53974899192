"""Requests in pieces, one behind the other: the same answers with the fast path and without it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, count, pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.suite import eventually
from tests.http.helpers import Wire
from tests.http.inside import Inside
from tests.http.pair import Pair, Told, pair_of, request, tell

_queues = count(1)
LAST = request("GET /_health/live", "Connection: close")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pair_of(tmp_path_factory.mktemp("pieces"), max_message_bytes=1000) as running:
        yield running


def posts() -> st.SearchStrategy[bytes]:
    line = st.sampled_from(
        ["POST /QUEUE/messages", "POST /QUEUE/messages?priority=3", "POST /QUEUE/messages?ttl=x"]
    )
    body = st.one_of(
        st.binary(max_size=40),
        st.sampled_from([b"GET / HTTP/1.1\r\n\r\n", b"x" * 1000, b"x" * 1001, b"\r\n"]),
    )
    return st.builds(lambda line, body: request(line, body=body), line, body)


PLAIN = [
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
OTHER = [
    request("GET /QUEUE/messages", "X-Other: 1"),
    request("POST /QUEUE/messages", "Transfer-Encoding: chunked", body=b"3\r\nabc\r\n0\r\n\r\n"),
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
requests = st.lists(
    st.one_of(posts(), st.sampled_from(PLAIN), st.sampled_from([*PLAIN, *OTHER])), max_size=8
)
# Behind the beginning of which request, and how far.
cuts = st.lists(st.tuples(st.integers(0, 9), st.sampled_from([0, 0, 0, 1, 9, 60, 90, -1, -9])))


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(parts=requests, end=st.one_of(st.none(), st.sampled_from(BROKEN)), cuts=cuts)
def test_pieces_and_pipelines(
    pair: Pair, parts: list[bytes], end: bytes | None, cuts: list[tuple[int, int]]
) -> None:
    queue = f"q{next(_queues)}"
    for one in pair.both:
        one.empty()
        one.queue(queue, ready=[b"one", b"two"])
        one.load(queue)
    # What cannot be parsed ends all that came with it: it comes when the others are answered. And
    # nothing comes behind what ends the connection: whether that is an error depends on the moment.
    rounds = [parts, [LAST if end is None else end]]
    told = [exchange(one, queue.encode(), rounds, cuts) for one in pair.both]
    quick, plain = told
    assert quick == plain
    assert pair.quick.tree() == pair.plain.tree()
    for one in pair.both:
        eventually(one.holds_nothing)


def compare_in_pieces(
    pair: Pair, queue: str, parts: list[bytes], where: list[tuple[int, int]]
) -> None:
    """Send requests to both servers, cut into pieces alike, and demand the same of both."""
    told = [exchange(one, queue.encode(), [parts, [LAST]], where) for one in pair.both]
    assert told[0] == told[1]
    assert pair.quick.tree() == pair.plain.tree()
    for one in pair.both:
        eventually(one.holds_nothing)
    assert not pair.plain.taken


def exchange(
    server: Inside, queue: bytes, rounds: list[list[bytes]], cuts: list[tuple[int, int]]
) -> list[Told]:
    """Send each round in pieces, each of which the server gets alone, and read its answers."""
    told = []
    with Wire(server.url) as wire:
        for requests in rounds:
            for piece in cut([one.replace(b"QUEUE", queue) for one in requests], cuts):
                try:
                    wire.send(piece)
                except OSError:
                    break  # it has heard enough
                for _ in range(3):
                    server.call(lambda: None)  # it has read what came
            for one in filter(None, requests):
                try:
                    told.append(tell(wire.answer(head=one.startswith(b"HEAD"))))
                except (AssertionError, OSError):
                    return told
        assert wire.is_closed()
    return told


def cut(requests: list[bytes], cuts: list[tuple[int, int]]) -> list[bytes]:
    data = b"".join(requests)
    starts = [0, *accumulate(map(len, requests))]
    wanted = {starts[min(number, len(requests))] + offset for number, offset in cuts}
    places = sorted({0, len(data), *(place for place in wanted if 0 < place < len(data))})
    return [data[start:stop] for start, stop in pairwise(places)]


def test_the_lane_has_some_of_them(pair: Pair) -> None:
    assert pair.quick.taken
    assert not pair.plain.taken
