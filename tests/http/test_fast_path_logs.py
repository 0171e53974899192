"""Publishes, claims and acks of logs: the same answers with the fast path and without it."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import ExitStack
from itertools import count

import pytest

from fsmq.http.guard.access import Access
from fsmq.http.guard.keys import load
from fsmq.spool.log.consuming.channels import ChannelStore
from tests.harness.suite import eventually
from tests.http.helpers import Wire
from tests.http.keyfile import add_key
from tests.http.pair import Pair, pair_of, request
from tests.spool.test_log_retention import tend

LARGE = b"L" * 200_000
_logs = count(1)


@pytest.fixture(autouse=True)
def alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the random parts of answers."""
    monkeypatch.setattr("fsmq.spool.log.consuming.channel_files._first_generation", lambda: 1)


@pytest.fixture
def log(pair: Pair) -> str:
    """A log of four messages, of which one is large, with a channel."""
    name = f"log{next(_logs)}"
    for one in pair.both:
        made = one.spool.log(name, create=True)
        made.publish(b"one", key="a", content_type="text/plain", attributes={"Color": "red"})
        made.publish(LARGE)
        made.publish_many([b"three", b"four"])
        made.channel("mail").create("first", order="none", visibility_timeout=60.0)
    return name


def test_the_fast_path_takes_publishes(pair: Pair, log: str) -> None:
    at, taken = f"/_logs/{log}/messages", pair.quick.taken
    told = pair.compare(
        request(f"POST {at}", body=b"five"),
        request(f"POST {at}", "Content-Type: text/plain", "X-Message-Key: k", body=b"six"),
        request(f"POST {at}?id=7", body=b"seven"),
        request(f"POST {at}?id=7", body=b"again"),
    )
    assert [one.status for one in told] == [201, 201, 201, 201, 200]
    assert [one.body for one in told[:4]] == [f'{{"offset": {n}}}\n' for n in (4, 5, 6, 6)]
    assert dict(told[3].headers)["X-Message-Offset"] == "6"
    assert pair.quick.taken == taken + 4
    for one in pair.both:
        kept = one.spool.log(log).read(4)
        assert [(m.body, m.key, m.id, m.content_type) for m in kept] == [
            (b"five", None, None, None),
            (b"six", "k", None, "text/plain"),
            (b"seven", None, "7", None),
        ]


@pytest.mark.parametrize(
    ("line", "headers", "body"),
    [
        ("POST {}", ("X-Message-Attribute-Color: red",), b"x"),
        ("POST {}", (f"X-Message-Key: {'k' * 300}",), b"x"),
        (f"POST {{}}?id={'i' * 190}", (), b"x"),
        ("POST {}?id=", (), b"x"),
        ("POST {}?key=a", (), b"x"),
        ("POST {}?delay=1", (), b"x"),
        ("POST {}", (), b"x" * 100_000),
        ("POST {}/4", (), b"x"),
        ("GET {}?from=0", (), b""),
    ],
)
def test_other_publishes(
    pair: Pair, log: str, line: str, headers: tuple[str, ...], body: bytes
) -> None:
    at = f"/_logs/{log}/messages"
    pair.compare(request(line.format(at), *headers, body=body), request(f"POST {at}", body=b"y"))
    found = [list(one.spool.log(log).read(0)) for one in pair.both]
    assert [(m.offset, m.body, m.key, m.id) for m in found[0]] == [
        (m.offset, m.body, m.key, m.id) for m in found[1]
    ]


def test_publishes_that_are_refused(pair: Pair, log: str) -> None:
    at = f"/_logs/{log}/messages"
    for one in pair.both:
        one.spool.log(log).configure(when_full="refuse", max_bytes=8_000)
        tend(one.spool.log(log))
    told = pair.compare(request(f"POST {at}", body=b"x"))
    assert told[0].status == 503
    told = pair.compare(request("POST /_logs/none/messages", body=b"x"))
    assert told[0].status == 404


def messages(log: str) -> str:
    return f"/_logs/{log}/channels/mail/messages"


def test_the_fast_path_takes_claims_and_acks(pair: Pair, log: str) -> None:
    at, taken = messages(log), pair.quick.taken
    told = pair.compare(
        request(f"GET {at}"),
        request(f"GET {at}?visibility=5"),
        request(f"GET {at}?wait=0"),
        request(f"DELETE {at}/0"),
        request(f"DELETE {at}/0"),
        request(f"DELETE {at}/1?generation=1"),
        request(f"GET {at}", "Accept: */*", "User-Agent: x"),
    )
    assert [one.status for one in told] == [200, 200, 200, 202, 202, 202, 200, 200]
    assert [one.body for one in told[:3]] == ["one", LARGE.decode(), "three"]
    assert dict(told[0].headers)["X-Message-Offset"] == "0"
    assert pair.quick.taken == taken + 7
    for one in pair.both:
        state = one.spool.log(log).channel("mail").state()
        assert (state.position, state.in_flight) == (2, 2)


@pytest.mark.parametrize(
    "line",
    [
        "GET {}?count=2",
        "GET {}?json=true",
        "GET {}?visibility=-1",
        "GET {}?wait=99",
        "DELETE {}/3",
        "DELETE {}/x1",
        "DELETE {}/0?generation=2",
        "DELETE {}/0?generation=x",
        "DELETE {}/0?visibility=1",
        "DELETE {}/0000000000000000000000",
        "DELETE {}",
        "POST {}",
        "GET {}/0",
        "PATCH {}/0?visibility=9",
        "PATCH {}/0?release=0",
        "DELETE {}/-1",
    ],
)
def test_other_requests(pair: Pair, log: str, line: str) -> None:
    at = messages(log)
    pair.compare(request(f"GET {at}"), request(line.format(at)), request(f"GET {at}"))
    pair.compare(request(f"GET {at}", "Accept: application/json"), request(f"GET {at}"))


def test_the_reason_for_an_empty_answer(pair: Pair, log: str) -> None:
    at = messages(log)
    claims = [request(f"GET {at}")] * 5
    told = pair.compare(*claims, request(f"GET {at}?wait=0.01"))
    assert [one.status for one in told] == [200, 200, 200, 200, 204, 204, 200]
    for one in pair.both:
        one.spool.log(log).channel("mail").pause()
    told = pair.compare(claims[0])
    assert dict(told[0].headers)["X-Channel-State"] == "paused"
    for one in pair.both:
        one.spool.log(log).channel("mail").resume()
        one.spool.log(log).channel("mail").seek("first")
    told = pair.compare(request(f"DELETE {at}/0"), request(f"DELETE {at}/0?generation=1"))
    assert [one.status for one in told] == [404, 409, 200]


@pytest.mark.parametrize("path", ["/_logs/none/channels/mail", "/_logs/{}/channels/none"])
def test_missing_logs_and_channels(pair: Pair, log: str, path: str) -> None:
    at = f"{path.format(log)}/messages"
    told = pair.compare(request(f"GET {at}"), request(f"DELETE {at}/0"))
    assert [one.status for one in told] == [404, 404, 200]


def test_rights_on_the_channel(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("keys")
    keys = folder / "keys.toml"
    mine = add_key(keys, "mine", "--receive=logs/jobs/mail")
    other = add_key(keys, "other", "--receive=jobs")
    with pair_of(folder, access=Access(load(keys))) as running:
        for one in running.both:
            log = one.spool.log("jobs", create=True)
            log.publish_many([b"x"] * 3)
            log.channel("mail").create("first")
        at, taken = messages("jobs"), running.quick.taken
        for token, status in ((mine, 200), (other, 403), ("none", 401)):
            line = f"Authorization: Bearer {token}"
            told = running.compare(request(f"GET {at}", line))
            assert told[0].status == status
            told = running.compare(request("POST /_logs/jobs/messages", line, body=b"x"))
            assert told[0].status == (401 if status == 401 else 403)
        assert running.quick.taken == taken + 1


def test_a_claim_is_released_if_its_client_hung_up(pair: Pair, log: str) -> None:
    channel = pair.quick.spool.log(log).channel("mail")
    assert channel.state().in_flight == 0  # its lock is there
    lock = os.open(pair.quick.root / "logs" / log / "channels" / "mail" / "progress.1", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)  # the claim has to wait
    with Wire(pair.quick.url) as wire:
        wire.send(request(f"GET {messages(log)}"))
        eventually(lambda: pair.quick.service.logs._claiming._lines)
    eventually(lambda: not pair.quick.talking())
    os.close(lock)
    eventually(lambda: not pair.quick.service.logs._claiming._lines)
    eventually(lambda: channel.state().in_flight == 0)
    assert [message.offset for message in channel.claim(9)] == [0, 1, 2, 3]


def test_a_claim_is_answered_though_the_look_for_those_who_wait_fails(
    pair: Pair, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its messages would be in flight, and nobody would have got them."""
    spool, at = pair.quick.spool, messages(log)
    channel = spool.log(log).channel("mail")
    channel.seek(2)

    def fail(self: ChannelStore) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(ChannelStore, "again_in", fail)
    lock = os.open(pair.quick.root / "logs" / log / "channels" / "mail" / "progress.1", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)  # claims have to wait
    lines = pair.quick.service.logs._claiming._lines
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(pair.quick.url)) for _ in range(3)]
        for number, wire in enumerate(wires):
            wire.send(request(f"GET {at}"))
            eventually(lambda number=number: sum(map(len, lines.values())) == number and lines)
        os.close(lock)
        statuses = [wire.answer().status for wire in wires]
    assert statuses == [200, 200, 503]
