"""Refused requests and the order of the checks: each row of the contract's tables."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
from aiohttp import ClientSession

from tests.http.emodb.helpers import EXCEPTION, ILLEGAL, JSON, SERVICES, SUCCESS, Emo
from tests.http.helpers import Wire, ask

LONG = "a" * 256


class Row(NamedTuple):
    """A request behind ``/{service}/1``, and what is answered."""

    request: str
    status: int
    body: bytes = b""
    exception: str | None = None
    kind: str | None = None


IAE = {"status": 400, "exception": ILLEGAL, "kind": "text/plain"}
MALFORMED = {"status": 400, "exception": None, "kind": "text/plain"}
NOT_JSON = {"status": 400, "exception": None, "kind": "application/json"}
EMPTY = {"status": 422, "exception": None, "kind": "application/json"}

ROWS = [
    # names (1.7)
    *(
        Row(f"{method} /{name}/{verb}", body=body, **IAE)
        for name in ("_", "_x", "UPPER", "a%20b", "a%3Bb", "a%2Fb", "%2E%2E", "%2E", LONG, "%C3%A9")
        for method, verb, body in (
            ("POST", "send", b"1"),
            ("GET", "size", b""),
            ("GET", "poll", b""),
            ("POST", "ack", b"[]"),
        )
    ),
    *(
        Row(f"GET /{name}/size", 200)
        for name in ("__", "__x", "a.b:c@d_e-f", "a%3Ab", "a;m=1", "0", "-")
    ),
    # paths and methods (1.1, 2.14)
    Row("GET /q", 405),
    Row("GET /q/size/", 200),
    Row("GET /q;x=1/size;y=2", 200),
    Row("GET /q//size", 404),
    Row("GET //q/size", 404),
    Row("GET /q/size//", 404),
    Row("GET /q/nothing", 404),
    Row("GET /q/Size", 404),
    Row("POST /q/sendbatch1", 404),
    Row("GET /q/uncached_size", 404),
    Row("PUT /queue/q/QueueExecutionAttributes", 404),
    Row("GET ", 405),
    Row("GET /_sendbatch", 405),
    Row("DELETE /_move", 405),
    Row("POST /_move/send", 405),
    Row("GET /_move/claimcount", **IAE),
    Row("POST /q/poll", 405),
    Row("GET /q/send", 405),
    Row("HEAD /q/size", 200),
    Row("HEAD /q/claimcount", 200),
    Row("OPTIONS /q/send", 204),
    Row("OPTIONS /q", 204),
    # numbers (1.8)
    *(Row(f"GET /q/poll?ttl={v}", **IAE) for v in ("-1", "3601", "2147483647")),
    *(Row(f"GET /q/poll?limit={v}", **IAE) for v in ("0", "-1", "1001")),
    *(Row(f"GET /q/peek?limit={v}", **IAE) for v in ("0", "-1", "5001")),
    *(Row(f"GET /q/size?limit={v}", **IAE) for v in ("0", "-1")),
    *(
        Row(f"GET /q/poll?{name}={v}", **MALFORMED)
        for name in ("ttl", "limit")
        for v in ("1.5", "30s", "+5", "2147483648", "x", "%2B", "1%202")
    ),
    *(Row(f"GET /q/peek?limit={v}", **MALFORMED) for v in ("1.5", "x")),
    *(Row(f"GET /q/size?limit={v}", **MALFORMED) for v in ("x", "9223372036854775808")),
    *(
        Row(f"GET /q/poll?{query}", 200)
        for query in (
            "ttl=",
            "limit=",
            "ttl=3600&limit=1000",
            "ttl=%2B5",
            "ttl=007",
            "ttl=0",
            "unknown=1",
            "ttl=5&ttl=x",
            "limit=1&limit=0",
        )
    ),
    Row("GET /q/peek?limit=5000", 200),
    Row("GET /q/size?limit=9223372036854775807", 200),
    # partitioned (1.8)
    *(
        Row(f"{method} /q/{verb}?partitioned=perhaps", body=body, **MALFORMED)
        for method, verb, body in (
            ("GET", "claimcount", b""),
            ("GET", "poll", b""),
            ("POST", "renew", b"[]"),
            ("POST", "ack", b"[]"),
            ("POST", "unclaimall", b""),
        )
    ),
    Row("DELETE /q?partitioned=2", **MALFORMED),
    *(
        Row(f"GET /q/{verb}?partitioned={v}", 200)
        for verb in ("claimcount", "poll", "size", "peek")
        for v in ("true", "FALSE", "")
    ),
    # bodies (1.5, 1.6)
    *(
        Row(f"POST /q/{verb}", body=body, **NOT_JSON)
        for verb in ("send", "sendbatch", "ack", "renew")
        for body in (b"{", b"'a'", b"NaN", b"[1,]", b"01", b"1.", b"+1", b"tru", b"truex", b"\xff")
    ),
    *(
        Row(f"POST /q/{verb}", body=body, **NOT_JSON)
        for verb in ("sendbatch", "ack", "renew")
        for body in (b"{}", b'"a"', b"1", b"true")
    ),
    *(Row("POST /_sendbatch", body=b, **NOT_JSON) for b in (b"[]", b'{"a":1}', b'{"a":{}}')),
    *(
        Row(f"POST /{verb}", body=body, **EMPTY)
        for verb in ("q/sendbatch", "q/ack", "q/renew", "_sendbatch")
        for body in (b"", b"  ", b"null")
    ),
    Row("POST /q/send", body=b"", **EMPTY),
    Row("POST /q/send", body=b"1e400", **IAE),
    Row("POST /q/send", body=b"9" * 310, **IAE),
    Row("POST /q/send", body=b'"' + b"x" * 30_719 + b'"', **IAE),
    Row("POST /_sendbatch", body=b'{"a":null}', **IAE),
    Row("POST /_sendbatch", body=b'{"A":[1]}', **IAE),
    # ids (1.5, 3.1)
    *(
        Row(f"POST /q/{verb}", body=body, **IAE)
        for verb in ("ack", "renew", "renew?ttl=0")
        for body in (
            b'["x"]',
            b'["abc"]',
            b'[""]',
            b"[null]",
            b"[[]]",
            b"[1]",
            b"[true]",
            b'["%s"]' % (b"0" * 40),
            b'["%s"]' % (b"f" * 38),
        )
    ),
    # moves (2.12, 2.13)
    *(
        Row(f"POST /_move{query}", **IAE)
        for query in (
            "",
            "?from=a",
            "?to=a",
            "?from=&to=a",
            "?from=a&to=",
            "?from=a&to=a",
            "?from=A&to=b",
            "?from=b&to=_x",
            "?from=a&from=b&to=c",
        )
    ),
    Row("GET /_move/size", 404),
    Row("GET /_move/nothing", 404),
    Row("GET /_move/MFRGG", **IAE),
    # the order of the checks (1.3): the first failure is answered
    Row("GET /_x/poll?ttl=x", **MALFORMED),
    Row("POST /_x/renew?ttl=x", body=b"{", **MALFORMED),
    Row("POST /_x/renew?ttl=-1", body=b"{", **NOT_JSON),
    Row("GET /_x/poll?partitioned=x&ttl=y", **MALFORMED),
]


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.request[:40]} {row.body[:12]!r}")
async def test_each_row_of_the_contract(client: ClientSession, service: str, row: Row) -> None:
    method, _, path = row.request.partition(" ")
    headers = JSON if method == "POST" else {}
    answer = await ask(
        client, method, f"/{service}/1{path}", data=row.body or None, headers=headers
    )
    assert answer.status == row.status, answer
    if row.kind is not None:
        assert answer.headers.get(EXCEPTION) == row.exception
        assert answer.headers["Content-Type"].partition(";")[0] == row.kind
    if row.status == 400 and row.kind == "text/plain":
        assert b"\n" not in answer.body
        assert answer.body
    if row.status == 400 and row.kind == "application/json":
        assert list(answer.json) == ["message"]
    if row.status == 422:
        assert answer.json == {"errors": []}


@pytest.mark.parametrize("name", ["a" * 181, "a" * 255, ".hidden"])
async def test_a_name_that_is_too_long_for_fsmq_is_refused_with_its_limit(
    client: ClientSession, name: str
) -> None:
    for service, limit in (("queue", 180), ("dedupq", 165)):
        answer = await ask(client, "GET", f"/{service}/1/{name}/size")
        assert (answer.status, answer.headers[EXCEPTION]) == (400, ILLEGAL)
        assert name[0] == "." or str(limit) in answer.body.decode()
        longest = await ask(client, "GET", f"/{service}/1/{'a' * limit}/size")
        assert (longest.status, longest.body) == (200, b"0")
        assert (await ask(client, "GET", f"/{service}/1/{'a' * limit}a/size")).status == 400


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ("application/json", 200),
        ("application/json;charset=utf-8", 200),
        ("APPLICATION/Json ; x=y", 200),
        ("text/json", 415),
        ("*/*", 415),
        ("application/x+json", 415),
        ("application/x-www-form-urlencoded", 415),
        (None, 415),
        ("garbage", 400),
        ("a b", 400),
    ],
)
@pytest.mark.parametrize("verb", ["send", "sendbatch", "renew", "ack"])
def test_the_content_type_has_to_be_json(
    emo: Emo, verb: str, given: str | None, status: int
) -> None:
    with Wire(emo.suite.url) as wire:
        headers = {} if given is None else {"Content-Type": given}
        answer = wire.ask("POST", emo.path(verb), headers=headers, body=b"[]")
        assert answer.status == status
        assert EXCEPTION not in answer.headers
        # Before names and keys are looked at.
        answer = wire.ask("POST", f"/{emo.service}/1/_x/{verb}", headers=headers, body=b"[]")
        assert answer.status == (400 if status == 200 else status)


def test_requests_without_a_body_ignore_the_content_type(emo: Emo) -> None:
    with Wire(emo.suite.url) as wire:
        for method, verb in (("POST", "unclaimall"), ("DELETE", "")):
            headers = {"Content-Type": "text/plain"}
            answer = wire.ask(method, emo.path(verb), headers=headers, body=b"anything")
            assert (answer.status, answer.body) == (200, SUCCESS)


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/json", 200),
        ("*/*", 200),
        ("application/*", 200),
        ("text/html, application/json;q=0.5", 200),
        ("text/html, */*;q=0.1", 200),
        ("text/html", 406),
        ("application/xml", 406),
        ("application/json;q=0, */*", 406),
        ("*/*;q=0", 406),
        (None, 200),
    ],
)
def test_a_client_that_does_not_accept_json_gets_406(
    emo: Emo, accept: str | None, status: int
) -> None:
    with Wire(emo.suite.url) as wire:
        headers = {} if accept is None else {"Accept": accept}
        for method, verb in (("GET", "size"), ("GET", "poll"), ("POST", "unclaimall")):
            answer = wire.ask(method, emo.path(verb), headers=headers)
            assert answer.status == status
            assert EXCEPTION not in answer.headers
        answer = wire.ask("POST", emo.path("send"), headers={**JSON, **headers}, body=b"1")
        assert answer.status == status


async def test_options_and_405_have_an_allow_header(emo: Emo) -> None:
    for path, allowed in (
        (emo.path(), "DELETE,OPTIONS"),
        (emo.path("send"), "OPTIONS,POST"),
        (emo.path("poll"), "GET,HEAD,OPTIONS"),
        (f"/{emo.service}/1", "OPTIONS"),
    ):
        options = await ask(emo.client, "OPTIONS", path)
        assert (options.status, options.headers["Allow"], options.body) == (204, allowed, b"")
        refused = await ask(emo.client, "PATCH", path)
        assert (refused.status, refused.headers["Allow"]) == (405, allowed)


@pytest.mark.parametrize(
    ("encoding", "encode"), [("gzip", gzip.compress), ("deflate", zlib.compress)]
)
async def test_a_body_may_be_compressed_and_chunked(
    emo: Emo, encoding: str, encode: object
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        packed = encode(b'{"a": 1}')
        yield packed[:3]
        yield packed[3:]

    headers = {**JSON, "Content-Encoding": encoding}
    answer = await emo.post("send", b"", headers=headers, data=chunks())
    assert answer.body == SUCCESS
    assert [m["payload"] for m in await emo.poll()] == [{"a": 1}]


async def test_ping(client: ClientSession) -> None:
    answer = await ask(client, "GET", "/ping")
    assert (answer.status, answer.body) == (200, b"pong")
