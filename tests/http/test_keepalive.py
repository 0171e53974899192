"""HTTP on the wire: kept connections, pipelines, targets and ambiguous requests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.suite import Suite, eventually
from tests.http.helpers import Wire
from tests.http.inside import Inside
from tests.http.pair import request


def test_a_connection_is_kept(suite: Suite, queue: str) -> None:
    with Wire(suite.url) as wire:
        for n in range(50):
            assert wire.ask("POST", f"/{queue}/messages", {}, b"%d" % n).status == 201
        for n in range(50):
            answer = wire.ask("GET", f"/{queue}/messages?wait=20")
            assert answer.body == b"%d" % n
            assert wire.ask("DELETE", f"/{queue}/messages/{answer.id}").status == 202


def test_connection_close_is_honoured(suite: Suite) -> None:
    with Wire(suite.url) as wire:
        assert wire.ask("GET", "/", {"Connection": "close"}).status == 200
        assert wire.is_closed()


def test_http_1_0(suite: Suite, queue: str) -> None:
    with Wire(suite.url) as wire:
        wire.send(f"POST /{queue}/messages HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi")
        assert wire.answer().status == 201
        assert wire.is_closed()


def test_a_large_answer_to_http_1_0_ends_with_the_connection(suite: Suite, queue: str) -> None:
    with Wire(suite.url) as wire:
        assert wire.ask("POST", f"/{queue}/messages", {}, b"x" * 200_000).status == 201
        wire.send(
            f"GET /{queue}/messages?count=1&wait=20 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
        )
        assert wire.answer().headers["Content-Length"] is None
        told = json.loads(wire.rest())
        assert [message["body"] for message in told["messages"]] == ["x" * 200_000]


def test_requests_in_a_pipeline_are_answered_in_turn(suite: Suite, queue: str) -> None:
    with Wire(suite.url) as wire:
        for n in range(100):
            wire.request("POST", f"/{queue}/messages?id=m{n:03}", {}, b"%d" % n)
        wire.request("GET", "/")
        assert [wire.answer().id for _ in range(100)] == [f"m{n:03}" for n in range(100)]
        assert wire.answer().status == 200


def test_a_pipeline_behind_a_refusal_goes_on(suite: Suite, queue: str) -> None:
    with Wire(suite.url) as wire:
        wire.request("POST", "/not-there/messages", {}, b"x" * 100_000)
        wire.request("POST", f"/{queue}/messages", {}, b"y")
        assert [wire.answer().status, wire.answer().status] == [404, 201]


def test_unexpected_bodies_are_skipped(suite: Suite, queue: str) -> None:
    trap = b"DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with Wire(suite.url) as wire:
        for method, path, status in (
            ("GET", f"/{queue}", 200),
            ("GET", f"/{queue}/messages", 204),
            ("DELETE", f"/{queue}/messages/none", 404),
            ("DELETE", f"/{queue}/messages", 200),
            ("DELETE", f"/{queue}", 200),
            ("PUT", f"/{queue}", 201),
        ):
            assert wire.ask(method, path, {}, trap).status == status
        assert wire.ask("GET", f"/{queue}").status == 200


def test_a_put_with_an_endless_body_is_cut_off(suite: Suite) -> None:
    with Wire(suite.url) as wire:
        wire.request("PUT", "/endless", {"Transfer-Encoding": "chunked"})
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        try:
            while True:
                wire.send(chunk)
        except OSError:
            pass  # cut off
    with Wire(suite.url) as wire:
        assert wire.ask("GET", "/endless").status == 200


@pytest.mark.parametrize("form", ["http://elsewhere.example{}", "HTTP://x:1{}", "{}#fragment"])
def test_absolute_targets_and_fragments(suite: Suite, queue: str, form: str) -> None:
    with Wire(suite.url) as wire:
        answer = wire.ask("GET", form.format(f"/{queue}"))
        assert answer.json["queue"] == queue


def test_a_target_without_a_path(suite: Suite) -> None:
    with Wire(suite.url) as wire:
        assert wire.ask("GET", "http://elsewhere.example").status == 200
        assert wire.ask("OPTIONS", "*").status == 204


def test_connect_is_not_served(suite: Suite) -> None:
    with Wire(suite.url) as wire:
        assert wire.ask("CONNECT", "example.org:80").status in (400, 404, 405)


def test_an_upgrade_is_ignored(suite: Suite, queue: str) -> None:
    headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "AAAA"}
    with Wire(suite.url) as wire:
        assert wire.ask("GET", f"/{queue}", headers).status == 200
        assert wire.ask("GET", f"/{queue}").status == 200


UPGRADES = [
    ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"],
    ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: AAAA"],
    ["Connection: Upgrade, keep-alive", "Upgrade: foo"],
]


BEHIND = b"".join(request(f"GET /nothing-{n}/messages/m") for n in range(3))


@pytest.mark.parametrize("upgrade", UPGRADES, ids=lambda lines: str(lines[1]))
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunks"])
@pytest.mark.parametrize("body", [b"", b"x", b"x" * 140_000, b"x" * 300_000], ids=len)
def test_requests_behind_an_upgrade_are_answered_in_order_or_not_at_all(
    suite: Suite, queue: str, upgrade: list[str], chunked: bool, body: bytes
) -> None:
    """No answer can be mistaken for that of another request."""
    line, framing, content = "GET /_health/live", [], b""
    if body:
        line, framing, content = f"POST /{queue}/messages", [f"Content-Length: {len(body)}"], body
    if body and chunked:
        framing = ["Transfer-Encoding: chunked"]
        content = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    head = request(line, *upgrade, *framing)
    whole = head + content
    for parts in (
        [whole + BEHIND],
        [head, content + BEHIND],
        [whole[:-3], whole[-3:] + BEHIND],
        [whole[:-2], whole[-2:] + BEHIND],
        [whole[:-1], whole[-1:] + BEHIND],
        [whole[:20], whole[20:] + BEHIND],
        [request(f"GET /{queue}") + whole + BEHIND],
        [whole + BEHIND[:20], BEHIND[20:]],
    ):
        with Wire(suite.url) as wire:
            for part in parts:
                wire.send(part)
                eventually(lambda: wire.is_read() or wire.is_readable())
            if parts[0].startswith(b"GET /%b " % queue.encode()):
                assert wire.answer().status == 200
            told = wire.answer()
            assert told.status in (200, 201)
            if told.headers["Connection"] == "close":
                assert wire.rest() == b""
                continue
            details = [wire.answer().json["detail"] for _ in range(3)]
            assert [f"nothing-{n}" in detail for n, detail in enumerate(details)] == [True] * 3


@pytest.mark.parametrize("upgrade", UPGRADES, ids=lambda lines: str(lines[1]))
@pytest.mark.parametrize("body", [b"", b"x", b"x" * 300_000], ids=len)
def test_a_connection_is_kept_after_an_upgrade_request(
    suite: Suite, queue: str, upgrade: list[str], body: bytes
) -> None:
    """Java's client asks for HTTP/2 with each of its requests."""
    head = request(f"POST /{queue}/messages", *upgrade, f"Content-Length: {len(body)}")
    with Wire(suite.url) as wire:
        for _ in range(3):
            for parts in ([head + body], [head, body], [head, body[:9], body[9:]]):
                for part in parts:
                    wire.send(part)
                    eventually(wire.is_read)
                assert wire.answer().status == 201
        assert wire.ask("GET", f"/{queue}/messages?wait=20").body == body


@pytest.mark.parametrize("upgrade", UPGRADES, ids=lambda lines: str(lines[1]))
def test_an_upgrade_request_with_an_unexpected_body(
    suite: Suite, queue: str, upgrade: list[str]
) -> None:
    """The next request is answered, or the connection ends."""
    with Wire(suite.url) as wire:
        wire.send(request(f"POST /{queue}/none", *upgrade, "Content-Length: 5"))
        told = wire.answer()
        assert told.status == 404
        wire.send(b"abcde")
        if told.headers["Connection"] == "close":
            assert wire.rest() == b""
        else:
            assert wire.ask("GET", f"/{queue}").status == 200


def test_http_1_0_with_chunks_ends_the_connection(suite: Suite, queue: str) -> None:
    with Wire(suite.url) as wire:
        head = f"POST /{queue}/messages HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n"
        wire.send(f"{head}Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n")
        wire.send(SMUGGLED.replace(b"{queue}", queue.encode()))
        assert wire.answer().status == 201
        assert wire.rest() == b""
    assert not [p for p in (suite.root / "new").iterdir() if "smuggled" in p.name]


SMUGGLED = (
    b"POST /{queue}/messages?id=smuggled HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
)


@pytest.mark.parametrize(
    "framing",
    [
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Content-Length: 5"],
        ["Content-Length: 5", "Content-Length: 6"],
        ["Content-Length: 5, 5"],
        ["Content-Length: +5"],
        ["Content-Length: 0x5"],
        ["Content-Length: 5_0"],
        ["Content-Length : 5"],
        ["Transfer-Encoding: xchunked"],
        ["Transfer-Encoding: gzip, chunked"],
        ["Transfer-Encoding: chunked, identity"],
        ["Transfer-Encoding : chunked"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
        [" Content-Length: 5"],
    ],
    ids=" & ".join,
)
def test_ambiguous_framing_is_refused(suite: Suite, queue: str, framing: list[str]) -> None:
    head = "\r\n".join([f"POST /{queue}/messages HTTP/1.1", "Host: localhost", *framing])
    with Wire(suite.url) as wire:
        wire.send(
            head.encode() + b"\r\n\r\n0\r\n\r\n" + SMUGGLED.replace(b"{queue}", queue.encode())
        )
        assert wire.answer().status == 400
        assert wire.is_closed()
    for folder in ("new", f"queues/{queue}"):
        assert not [p for p in (suite.root / folder).iterdir() if "smuggled" in p.name]


@pytest.mark.parametrize(
    "chunks",
    [
        b"5;ext=\r\n\r\nhello\r\n0\r\n\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhelloX\r\n0\r\n\r\n",
        b"5\nhello\n0\n\n",
        b"fffffffffffffffff\r\nhello\r\n",
        b"5\r\nhello\r\nZZ\r\n",
    ],
)
def test_malformed_chunks_are_refused(suite: Suite, queue: str, chunks: bytes) -> None:
    with Wire(suite.url) as wire:
        wire.request("POST", f"/{queue}/messages", {"Transfer-Encoding": "chunked"})
        wire.send(chunks)
        assert wire.answer().status == 400
        assert wire.is_closed()
    with Wire(suite.url) as wire:
        assert wire.ask("GET", f"/{queue}/messages?wait=0.1").status == 204


def test_a_malformed_chunk_in_the_same_turn_as_its_head(tmp_path: Path) -> None:
    """The chunk arrives in the same turn of the loop as the head, in another read."""
    with Inside(tmp_path / "mq") as inside, Wire(inside.url) as wire:
        inside.queue("q")
        assert wire.ask("GET", "/_health/live").status == 200

        def receive() -> None:
            [connection] = inside.server._connections.open
            head = "POST /q/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked"
            connection.data_received(f"{head}\r\n\r\n".encode())
            connection.data_received(b"-5\r\nhello\r\n0\r\n\r\n")

        inside.call(receive)
        assert wire.answer().status == 400
        assert wire.is_closed()


@pytest.mark.parametrize(("method", "path"), [("POST", "/not-there/messages"), ("PUT", "/expects")])
def test_an_early_answer_to_expect_ends_the_connection(
    suite: Suite, method: str, path: str
) -> None:
    """A body must not be mistaken for the next request, nor the other way round."""
    with Wire(suite.url) as wire:
        answer = wire.ask(method, path, {"Expect": "100-continue", "Content-Length": "500"})
        assert answer.status in (201, 404)
        assert answer.headers["Connection"] == "close"


def test_expect_is_ignored_in_http_1_0(suite: Suite, queue: str) -> None:
    with Wire(suite.url) as wire:
        head = f"POST /{queue}/messages HTTP/1.0\r\nContent-Length: 2\r\nExpect: 100-continue"
        wire.send(f"{head}\r\n\r\nhi")
        assert wire.answer().status == 201


def test_trailers_are_ignored(suite: Suite, queue: str) -> None:
    with Wire(suite.url) as wire:
        wire.request("POST", f"/{queue}/messages", {"Transfer-Encoding": "chunked"})
        wire.send(b"5\r\nhello\r\n0\r\nX-Message-Attribute-Late: 1\r\n\r\n")
        assert wire.answer().status == 201
        answer = wire.ask("GET", f"/{queue}/messages?wait=20")
        assert answer.body == b"hello"
        assert answer.headers["X-Message-Attribute-Late"] is None
