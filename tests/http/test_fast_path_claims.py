"""Requests with the name of a claim on the fast path."""

from __future__ import annotations

import os

import pytest

from fsmq.spool.layout.stamps import Stamps
from tests.http.pair import Pair, request

OURS, PLAIN = "01900000-0000-7000-8000-0000000000aa", "own"
UNTIL_MS = 4_000_000_000_047  # the claim has the name c5-47
MINE, OTHER = "X-Message-Claim: c5-47", "X-Message-Claim: c4-47"


@pytest.fixture
def queue(pair: Pair) -> str:
    """A queue with two messages in flight, and one that is ready."""
    name = pair.queue(ready=[b"ready"])
    for one in pair.both:
        for message_id in (OURS, PLAIN):
            path = one.root / "delay" / f"{name}:{message_id}"
            path.write_bytes(b"x")
            stamp = Stamps().encode(message_id, UNTIL_MS, 5)
            os.utime(path, ns=(stamp, stamp))
    return name


@pytest.mark.parametrize(
    ("message_id", "line"),
    [(OURS, MINE), (OURS, OTHER), (PLAIN, MINE.lower()), (PLAIN, "X-Message-Claim: c5-46")],
)
@pytest.mark.parametrize(
    "what", ["DELETE {}", "PATCH {}?visibility=9", "PATCH {}?release=9", "PATCH {}?release=0"]
)
def test_the_fast_path_takes_requests_with_a_claim(
    pair: Pair, queue: str, what: str, line: str, message_id: str
) -> None:
    taken = pair.quick.taken
    asked = request(what.format(f"/{queue}/messages/{message_id}"), line)
    is_mine = line in (MINE, MINE.lower())
    told = pair.compare(asked, asked)
    if not is_mine:
        assert [one.status for one in told] == [409, 409, 200]
        assert "claim-ended" in told[0].body
    elif "visibility" in what:
        assert [one.status for one in told] == [204, 204, 200]
        assert dict(told[1].headers)["X-Message-Claim"] == "c5-NN"
    else:
        again = 404 if "DELETE" in what else 409
        assert [one.status for one in told][1:] == [again, 200]
        assert told[0].status in (202, 204)
    assert pair.quick.taken == taken + 2


@pytest.mark.parametrize(
    "lines",
    [
        ["X-Message-Claim: 5-47"],
        ["X-Message-Claim: c5-47x"],
        ["X-Message-Claim:"],
        ["X-Message-Claim: *"],
        [MINE, MINE],
    ],
)
@pytest.mark.parametrize("method", ["DELETE", "PATCH"])
def test_invalid_claims_are_refused(pair: Pair, queue: str, method: str, lines: list[str]) -> None:
    told = pair.compare(request(f"{method} /{queue}/messages/{OURS}", *lines))
    assert told[0].status == 400
    assert '"field": "X-Message-Claim"' in told[0].body


@pytest.mark.parametrize("line", [MINE, "X-Message-Claim: nonsense"])
def test_posts_and_claims_ignore_the_header(pair: Pair, queue: str, line: str) -> None:
    told = pair.compare(
        request(f"POST /{queue}/messages", line, body=b"x"), request(f"GET /{queue}/messages", line)
    )
    assert [one.status for one in told] == [201, 200, 200]
    assert dict(told[1].headers)["X-Message-Claim"] == "c1-NN"
