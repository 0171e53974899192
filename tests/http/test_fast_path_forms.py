"""All forms of requests get the same answers with the fast path and without it."""

from __future__ import annotations

import random

import pytest

from tests.harness.rounds import part_of
from tests.http.pair import HASTY, LIMIT, Pair, request
from tests.http.test_errors import BAD_IDS, BAD_NAMES
from tests.soak.fuzz import HEADERS, NAMES, VALUES, Generator

pytestmark = pytest.mark.usefixtures("emptied")
OPTIONS = {"dialects": ("emodb", "dynamiq"), "host_names": (), "max_message_bytes": LIMIT, **HASTY}


# -- forms -----------------------------------------------------------------------------------------

PARAMETERS = ("delay", "priority", "ttl", "id", "visibility", "wait", "count", "json", "release")


@pytest.mark.parametrize("name", [*PARAMETERS, "x"])
def test_values_of_parameters(pair: Pair, name: str) -> None:
    queue = pair.queue(ready=[b"x"] * 3)
    for value in VALUES:
        if (name, value) == ("wait", "5"):
            continue  # that would take too long
        query = f"?{name}={value}"
        pair.compare(
            request(f"POST /{queue}/messages{query}", body=b"x"),
            request(f"GET /{queue}/messages{query}"),
            request(f"DELETE /{queue}/messages/none{query}"),
            request(f"PATCH /{queue}/messages/none{query}"),
        )


@pytest.mark.parametrize(
    "query",
    [
        "?",
        "?&",
        "?&&",
        "?=",
        "?=1",
        "?delay",
        "?delay=",
        "?delay=1&",
        "?&delay=1",
        "?delay==1",
        "?delay=1&delay=1",
        "?priority=1&delay=1",
        "?delay=1;priority=2",
        "?DELAY=1",
        "?count=1.",
        "?delay=1#x",
        "#x",
        "?delay=1?delay=2",
        "?visibility=1&wait=0&count=2",
        "?wait=0&wait=0",
        "?id=own",
        "?id=own-2&priority=1",
        "?id=01900000-0000-7000-8000-000000000001",
        "?" + "&" * 199,
        "?" + "delay=1&" * 30,
        "?delay=" + "0" * 300,
    ],
)
def test_forms_of_queries(pair: Pair, query: str) -> None:
    queue = pair.queue(ready=[b"x"])
    for line in ("POST /{}/messages", "GET /{}/messages", "DELETE /{}/messages/m"):
        pair.compare(*[request(f"{line.format(queue)}{query}")] * 2)
    pair.compare(*[request(f"POST /{queue}/messages{query}", body=b"body")] * 2)


@pytest.mark.parametrize("name", dict.fromkeys([*BAD_NAMES, *NAMES, "Queue", "a" * 180, "0"]))
def test_names_of_queues(pair: Pair, name: str) -> None:
    pair.compare(request(f"POST /{name}/messages", body=b"x"))
    pair.compare(request(f"GET /{name}/messages"))
    pair.compare(request(f"DELETE /{name}/messages/some"))


@pytest.mark.parametrize("name", dict.fromkeys([*BAD_IDS, *NAMES, "a.h", "x.lock", "p07.x"]))
def test_ids_of_messages(pair: Pair, name: str) -> None:
    queue = pair.queue()
    for method in ("DELETE", "GET", "PATCH", "HEAD", "POST", "PUT"):
        pair.compare(request(f"{method} /{queue}/messages/{name}"))


@pytest.mark.parametrize("first", ["queue", "dedupq", "queues", "topics", "_topics", "_health"])
def test_reserved_first_segments(pair: Pair, first: str) -> None:
    for one in pair.both:
        (one.root / "queues" / first).mkdir(exist_ok=True)
    for rest in ("messages", "messages/1", "1/messages", "messages/messages"):
        for method in ("GET", "POST", "DELETE", "HEAD"):
            pair.compare(request(f"{method} /{first}/{rest}"))


@pytest.mark.parametrize(
    "line",
    [
        "GET /{}",
        "GET /{}/messages/",
        "GET //{}/messages",
        "GET /{}//messages",
        "HEAD /{}",
        "HEAD /{}/messages",
        "DELETE /{}/messages",
        "POST /{}/messages/",
        "GET /{}/messages/..",
        "GET http://localhost/{}/messages",
        "GET /{}/Messages",
        "get /{}/messages",
        "GET  /{}/x",
        "POST /{}/batch",
        "GET /{}/peek",
        "POST /{}/ack",
        "OPTIONS /{}/messages",
        "GET {}",
        "GET /{};a=b/messages",
        "GET /{}/messages;a=b",
        "GET /%71/messages",
        "GET /{}/%6dessages",
    ],
)
def test_other_request_lines(pair: Pair, line: str) -> None:
    pair.compare(request(line.format(pair.queue())))


EVERY_HEADER = [
    *HEADERS,
    "Host: other",
    "Host: localhost",
    "Content-Length: 3",
    "Content-Length: 03",
    "Content-Length: +3",
    "Content-Length: 3, 3",
    "Content-Length : 3",
    "content-length: 3",
    "Content-Length: 0x3",
    "Content-Length: 3\r\nContent-Length: 3",
    "Content-Length: -3",
    "Content-Length: 3\r\nTransfer-Encoding: chunked",
    "Content-Length:3",
    "Content-Length:\t3 ",
    "Content-Length: \xb3",
    "Content-Length: " + "9" * 30,
    "Content-Length:",
    "Content-Length: ",
    "Content-Length: 3.0",
    "Content_Length: 3",
    "X-A: b\r\n folded",
    "Accept: a\r\n\tb",
    " Accept: a",
    "Accept : a",
    "Accept",
    ": a",
    "A\0: b",
    "Accept: a\rb",
    "Accept: a\nb",
    "Accept: a\x01b",
    "Accept: \x7f",
    "Accept: a\tb",
    "Accept:",
    "Accept: a\r\nAccept: application/json",
    "Accept:\x0bapplication/json",
    "Accept:\xa0b",
    "Connection: close",
    "Connection: Close",
    "Connection: keep-alive, close",
    "Connection: x",
    "Connection: keep-alive\r\nConnection: close",
    "Keep-Alive: timeout=5",
    "Cache-Control: no",
    "Origin: http://localhost",
    "Origin: http://evil.example",
    "Sec-Fetch-Site: cross-site",
    "Content-Type: a\r\nContent-Type: b",
    'Content-Type: a/b; q="\xff"',
    "Content-Type: \x80",
    "X-Message-Attribute-A: b\r\nX-Message-Attribute-a: c",
    "X-Message-Attribute-A: \xc3\xa4",
    "Traceparent: 00-0-0-00",
    "Proxy-Connection: close",
    "Trailer: a",
    "TE: trailers",
    "User-Agent: " + "x" * 3000,
    "User-Agent: " + "x" * 5000,
    "User-Agent: " + "a " * 1500 + "\x01",
]


@pytest.mark.parametrize("header", dict.fromkeys(EVERY_HEADER), ids=lambda one: repr(one)[:60])
def test_headers(pair: Pair, header: str) -> None:
    """Between other headers and as the last; with a body and without one."""
    queue = pair.queue(ready=[b"x"] * 8)
    own = header.lower().startswith(("content-length", "content-length :", "transfer"))
    for lines in ([header, "User-Agent: a"], ["User-Agent: a", header]):
        length = [] if own else ["Content-Length: 3"]
        pair.compare(request(f"POST /{queue}/messages", *lines, *length, body=b"abc"))
        pair.compare(request(f"GET /{queue}/messages", *lines))
        pair.compare(request(f"DELETE /{queue}/messages/none", *lines))


@pytest.mark.parametrize(
    "host",
    [
        None,
        "localhost",
        "LOCALHOST:80",
        "127.0.0.1",
        "[::1]:8080",
        "evil.example",
        "x",
        "",
        "localhost:",
        "localhost.",
        "a.localhost",
        "local host",
        "localhost,evil.example",
        "@x",
    ],
)
def test_host_headers(pair: Pair, host: str | None) -> None:
    queue = pair.queue()
    pair.compare(*[request(f"POST /{queue}/messages", host=host, body=b"x")] * 2)
    pair.compare(request(f"GET /{queue}/messages", host=host))


@pytest.mark.parametrize(
    "version",
    ["HTTP/1.0", "HTTP/0.9", "HTTP/1.2", "HTTP/2.0", "http/1.1", "HTTP/1.1 ", "HTTP/01.1"],
)
def test_versions_of_http(pair: Pair, version: str) -> None:
    queue = pair.queue(ready=[b"x"])
    pair.compare(f"GET /{queue}/messages {version}\r\nHost: localhost\r\n\r\n".encode())


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\r\n"], ids=repr)
def test_other_line_endings(pair: Pair, end: bytes) -> None:
    queue = pair.queue(ready=[b"x"])
    whole = request(f"GET /{queue}/messages", "Accept: */*")
    for number in range(whole.count(b"\r\n")):
        lines = whole.split(b"\r\n")
        before, behind = b"\r\n".join(lines[: number + 1]), b"\r\n".join(lines[number + 1 :])
        pair.compare(before + end + behind)


def test_blank_lines_before_a_request(pair: Pair) -> None:
    queue = pair.queue()
    pair.compare(b"\r\n\r\n" + request(f"GET /{queue}/messages"))


# More than one read; a hasty server may time out while it waits for the rest.
LARGE = 60_000


@pytest.mark.parametrize("number", range(part_of(25, 60)))
def test_fuzzed_requests(pair: Pair, number: int) -> None:
    """Requests with random names, parameters, headers and bodies.

    The same ones in each run; others in `make soak-models`.
    """
    seed = part_of(number, random.randrange(2**32))
    print("seed", seed)  # shown if it fails
    draw = random.Random(seed)
    described: dict[str, dict[str, dict[str, list[dict[str, str]]]]] = {
        "paths": {
            "/{queue}/messages": {
                "post": {"parameters": [{"name": n} for n in PARAMETERS[:4]]},
                "get": {"parameters": [{"name": n} for n in ("visibility", "count")]},
            },
            "/{queue}/messages/{id}": {"delete": {"parameters": []}},
        }
    }
    for one in pair.both:
        for name in ("jobs", "a", "some"):
            one.queue(name)
            one.load(name)
    generator = Generator(described, draw.randrange(2**32))
    for _ in range(15):
        data = generator.request(wrong=draw.random() < 0.2)
        if b"Expect" not in data and len(data) < LARGE:
            pair.compare(data)
