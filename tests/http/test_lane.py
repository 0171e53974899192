"""The lane answers what aiohttp would answer: the same bytes, with it and without it."""

from __future__ import annotations

import gzip
import json
import random
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from fsmq.http.guard.access import Access
from fsmq.http.guard.keys import load
from fsmq.http.guard.limits import Limits
from tests.fuzz import BODIES, HEADERS, NAMES, VALUES, Generator
from tests.http.helpers import Answer, Wire
from tests.http.inside import Inside, alike
from tests.http.keyfile import add_key
from tests.http.test_errors import BAD_IDS, BAD_NAMES

KIB = 1024
# A body may have so many bytes on these servers, a slow one so many seconds.
LIMIT = 96 * KIB
READ_S = 0.3
HEAD_S = 0.4
_queues = count(1)


class Told(NamedTuple):
    """An answer as far as it is the same on two servers."""

    status: int
    headers: list[tuple[str, str]]
    body: str


class Pair:
    """The same server twice, on roots of their own: with the lane and without it."""

    def __init__(self, quick: Inside, plain: Inside) -> None:
        self.both = (quick, plain)
        self.quick, self.plain = self.both

    def queue(self, ready: Sequence[bytes] = (), **settings: object) -> str:
        """A queue on both that is in use."""
        name = f"q{next(_queues)}"
        for one in self.both:
            one.queue(name, ready=ready)
            if settings:
                path = one.root / "config" / f"{name}.json"
                path.parent.mkdir(exist_ok=True)
                path.write_text(json.dumps(settings))
            one.load(name)
        return name

    def compare(self, *requests: bytes) -> list[Told]:
        """Send requests one after the other on one connection each, and demand the same answers."""
        quick, plain = (exchange(one, requests) for one in self.both)
        assert quick == plain
        assert self.quick.tree() == self.plain.tree()
        for one in self.both:
            assert one.admission.memory == 0
        return quick


def exchange(server: Inside, requests: Sequence[bytes]) -> list[Told]:
    told: list[Told] = []
    in_step = request("GET /_health/live", "X-Other: 1")
    with Wire(server.url) as wire:
        for data in (*requests, in_step):
            try:
                wire.send(data)
            except OSError:
                pass  # it was refused before its end
            try:
                told.append(tell(wire.answer(head=data.startswith(b"HEAD"))))
                if told[-1].status == 100:
                    told.append(tell(wire.answer()))
            except (AssertionError, OSError):
                return [*told, Told(0, [], "closed")]
    return told


def tell(answer: Answer) -> Told:
    headers = sorted((k, alike(v)) for k, v in answer.headers.items() if k != "Date")
    return Told(answer.status, headers, alike(answer.body.decode("latin-1")))


def request(line: str, *lines: str, body: bytes = b"", host: str | None = "localhost") -> bytes:
    """A request; the length of a body is added, unless a line says something about that."""
    head = [f"{line} HTTP/1.1", *([f"Host: {host}"] if host is not None else []), *lines]
    if body and not any(one.lower().startswith(("content-l", "transfer")) for one in lines):
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    limits = Limits(header_timeout=HEAD_S)

    def server(name: str, *, lane: bool) -> Inside:
        return Inside(
            folder / name,
            lane=lane,
            dialects=("emodb", "dynamiq"),
            host_names=(),
            limits=limits,
            read_timeout=READ_S,
            max_message_bytes=LIMIT,
        )

    with server("quick", lane=True) as quick, server("plain", lane=False) as plain:
        yield Pair(quick, plain)


@pytest.fixture(autouse=True)
def apart(request: pytest.FixtureRequest) -> Iterator[None]:
    """Take away what a test has stored: the next one looks at all that there is."""
    yield
    for name in {"pair", "guarded"} & set(request.fixturenames):
        found = request.getfixturevalue(name)
        for one in (found if isinstance(found, Pair) else found[0]).both:
            one.empty()


# -- what the lane takes ---------------------------------------------------------------------------

TAKEN = [
    *("/{q}/messages", "/{q}/messages?delay=0", "/{q}/messages?delay=0.5", "/{q}/messages?ttl=50"),
    *("/{q}/messages?priority=7", "/{q}/messages?priority=007&ttl=1e3&delay=60.25"),
]
BODIES_TAKEN = [b"x", b"\0\xff\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"y" * (60 * KIB)]
USUAL = [
    [],
    ["User-Agent: curl/8.5.0", "Accept: */*"],
    ["Accept: application/json"],
    ["accept: text/html, application/json;q=0.9"],
    ["Accept: application/json, */*"],
    ["Accept-Encoding: gzip, deflate", "Accept-Language: de"],
    ["Connection: keep-alive"],
    ["CONNECTION: Keep-Alive"],
    ["Content-Type: text/plain"],
    ["content-type:   application/json; charset=utf-8  "],
    ["Content-Type: application/octet-stream"],
    ["Content-Type: application/x-www-form-urlencoded"],
    ["Content-Type:text/x-a b"],
    ["Authorization: Basic eDp5"],
]


@pytest.mark.parametrize("target", TAKEN)
@pytest.mark.parametrize("body", BODIES_TAKEN, ids=len)
def test_a_post_is_taken(pair: Pair, target: str, body: bytes) -> None:
    taken, queue = pair.quick.taken, pair.queue()
    told = pair.compare(request(f"POST {target.format(q=queue)}", body=body))
    assert told[0].status == 201
    assert pair.quick.taken == taken + 1


@pytest.mark.parametrize("lines", USUAL, ids=" & ".join)
def test_usual_headers_are_taken(pair: Pair, lines: list[str]) -> None:
    taken, queue = pair.quick.taken, pair.queue(ready=[b"one", b"\xff two", b"", b"four"])
    [message_id] = pair.quick.queue(f"{queue}-x", ready=[b"x"])
    for one in pair.both:
        (one.root / "queues" / f"{queue}-x").mkdir(exist_ok=True)
        (one.root / "queues" / f"{queue}-x" / message_id).touch()
    told = pair.compare(
        request(f"POST /{queue}/messages", *lines, body=b"x"),
        request(f"POST /{queue}/messages", *lines, "Content-Length: 0"),
        request(f"GET /{queue}/messages", *lines),
        request(f"GET /{queue}/messages?count=2&visibility=7.5", *lines),
        request(f"GET /{queue}/messages?wait=0", *lines, "Content-Length: 0"),
        request(f"GET /{queue}/messages", *lines),
        request(f"DELETE /{queue}-x/messages/{message_id}", *lines),
        request(f"DELETE /{queue}-x/messages/{message_id}", *lines),
    )
    assert [one.status for one in told] == [201, 201, 200, 200, 200, 204, 202, 404, 200]
    assert pair.quick.taken == taken + 8
    assert pair.plain.taken == 0


@pytest.mark.parametrize("size", [0, 1, 60 * KIB, 95 * KIB, 96 * KIB, 300 * KIB])
@pytest.mark.parametrize("query", ["", "?count=1", "?count=3"])
@pytest.mark.parametrize("byte", [b"\x01", b"\xff", b"a"], ids=["control", "binary", "text"])
def test_bodies_of_any_size_are_given_out(pair: Pair, size: int, query: str, byte: bytes) -> None:
    taken, queue = pair.quick.taken, pair.queue(ready=[byte * size, b"small", byte * size])
    told = pair.compare(*[request(f"GET /{queue}/messages{query}")] * 2)
    assert told[0].status == 200
    assert pair.quick.taken == taken + 2


def test_what_a_message_keeps_is_given_out(pair: Pair, tmp_path: Path) -> None:
    """Attributes, priority, expiry and content type; also those that someone wrote by hand."""
    queue = pair.queue()
    for one in pair.both:
        for number, (flags, raw) in enumerate(
            [
                (".h", b"Content-Type: a/b\nName: value\n\nbody"),
                (".h", b"Content-Type: a\r\nName: v\x00\x7f\n\nbody"),
                (".h", "Content-Type: \u00e4\nName: \u2028\n\nbody".encode()),
                (".h", b"Name: \n\nbody"),
                (".h", b"Name: \xff\xfe\n\nbody"),
                (".h", b"no header"),
                (".x7fffffff", b"body"),
            ]
        ):
            name = f"p0{number}.01900000-0000-7000-8000-00000000000{number}{flags}"
            (one.root / "queues" / queue / name).write_bytes(raw)
        one.load(queue)
        one.seen(queue, 7)
    taken = pair.quick.taken
    told = pair.compare(*[request(f"GET /{queue}/messages")] * 8)
    assert [one.status for one in told] == [200] * 7 + [204, 200]
    assert pair.quick.taken == taken + 8


# -- whatever it is --------------------------------------------------------------------------------

PARAMETERS = ("delay", "priority", "ttl", "id", "visibility", "wait", "count", "json", "release")


@pytest.mark.parametrize("name", [*PARAMETERS, "x"])
def test_every_value_of_a_parameter(pair: Pair, name: str) -> None:
    queue = pair.queue(ready=[b"x"] * 3)
    for value in VALUES:
        if (name, value) == ("wait", "5"):
            continue  # nobody has the time
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
        *(
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
        ),
        *(
            "?delay=1&delay=1",
            "?priority=1&delay=1",
            "?delay=1;priority=2",
            "?DELAY=1",
            "?count=1.",
        ),
        *("?delay=1#x", "#x", "?delay=1?delay=2", "?visibility=1&wait=0&count=2", "?wait=0&wait=0"),
        *("?id=own", "?id=own-2&priority=1", "?id=01900000-0000-7000-8000-000000000001"),
        "?" + "&" * 199,
        "?" + "delay=1&" * 30,
        "?delay=" + "0" * 300,
    ],
)
def test_every_form_of_a_query(pair: Pair, query: str) -> None:
    queue = pair.queue(ready=[b"x"])
    for line in ("POST /{}/messages", "GET /{}/messages", "DELETE /{}/messages/m"):
        pair.compare(*[request(f"{line.format(queue)}{query}")] * 2)
    pair.compare(*[request(f"POST /{queue}/messages{query}", body=b"body")] * 2)


@pytest.mark.parametrize("name", dict.fromkeys([*BAD_NAMES, *NAMES, "Queue", "a" * 180, "0"]))
def test_every_name_of_a_queue(pair: Pair, name: str) -> None:
    pair.compare(request(f"POST /{name}/messages", body=b"x"))
    pair.compare(request(f"GET /{name}/messages"))
    pair.compare(request(f"DELETE /{name}/messages/some"))


@pytest.mark.parametrize("name", dict.fromkeys([*BAD_IDS, *NAMES, "a.h", "x.lock", "p07.x"]))
def test_every_id(pair: Pair, name: str) -> None:
    queue = pair.queue()
    for method in ("DELETE", "GET", "PATCH", "HEAD", "POST", "PUT"):
        pair.compare(request(f"{method} /{queue}/messages/{name}"))


@pytest.mark.parametrize("first", ["queue", "dedupq", "queues", "topics", "_topics", "_health"])
def test_first_segments_of_others(pair: Pair, first: str) -> None:
    for one in pair.both:
        (one.root / "queues" / first).mkdir(exist_ok=True)
    for rest in ("messages", "messages/1", "1/messages", "messages/messages"):
        for method in ("GET", "POST", "DELETE", "HEAD"):
            pair.compare(request(f"{method} /{first}/{rest}"))


@pytest.mark.parametrize(
    "line",
    [
        *("GET /{}", "GET /{}/messages/", "GET //{}/messages", "GET /{}//messages", "HEAD /{}"),
        *("HEAD /{}/messages", "DELETE /{}/messages", "POST /{}/messages/", "GET /{}/messages/.."),
        *("GET http://localhost/{}/messages", "GET /{}/Messages", "get /{}/messages", "GET  /{}/x"),
        *("POST /{}/batch", "GET /{}/peek", "POST /{}/ack", "OPTIONS /{}/messages", "GET {}"),
        *(
            "GET /{};a=b/messages",
            "GET /{}/messages;a=b",
            "GET /%71/messages",
            "GET /{}/%6dessages",
        ),
    ],
)
def test_other_lines(pair: Pair, line: str) -> None:
    pair.compare(request(line.format(pair.queue())))


EVERY_HEADER = [
    *(*HEADERS, "Host: other", "Host: localhost", "Content-Length: 3", "Content-Length: 03"),
    *("Content-Length: +3", "Content-Length: 3, 3", "Content-Length : 3", "content-length: 3"),
    *("Content-Length: 0x3", "Content-Length: 3\r\nContent-Length: 3", "Content-Length: -3"),
    *("Content-Length: 3\r\nTransfer-Encoding: chunked", "Content-Length:3", "Content-Length:\t3 "),
    *("Content-Length: \xb3", "Content-Length: 99999999", "Content-Length: " + "9" * 30),
    *("Content-Length:", "Content-Length: ", "Content-Length: 3.0", "Content_Length: 3"),
    *(
        "X-A: b\r\n folded",
        "Accept: a\r\n\tb",
        " Accept: a",
        "Accept : a",
        "Accept",
        ": a",
        "A\0: b",
    ),
    *("Accept: a\rb", "Accept: a\nb", "Accept: a\x01b", "Accept: \x7f", "Accept: a\tb", "Accept:"),
    *("Accept: a\r\nAccept: application/json", "Accept:\x0bapplication/json", "Accept:\xa0b"),
    *("Connection: close", "Connection: Close", "Connection: keep-alive, close", "Connection: x"),
    *("Connection: keep-alive\r\nConnection: close", "Keep-Alive: timeout=5", "Cache-Control: no"),
    *("Origin: http://localhost", "Origin: http://evil.example", "Sec-Fetch-Site: cross-site"),
    *("Content-Type: a\r\nContent-Type: b", 'Content-Type: a/b; q="\xff"', "Content-Type: \x80"),
    *("X-Message-Attribute-A: b\r\nX-Message-Attribute-a: c", "X-Message-Attribute-A: \xc3\xa4"),
    *("Traceparent: 00-0-0-00", "Proxy-Connection: close", "Trailer: a", "TE: trailers"),
    "User-Agent: " + "x" * 3000,
    "User-Agent: " + "x" * 5000,
    "User-Agent: " + "a " * 1500 + "\x01",
]


@pytest.mark.parametrize("header", dict.fromkeys(EVERY_HEADER), ids=lambda one: repr(one)[:60])
def test_every_header(pair: Pair, header: str) -> None:
    """Among others and as the last; with a body and without one."""
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
        *(None, "localhost", "LOCALHOST:80", "127.0.0.1", "[::1]:8080", "evil.example", "x", ""),
        *("localhost:", "localhost.", "a.localhost", "local host", "localhost,evil.example", "@x"),
    ],
)
def test_every_host(pair: Pair, host: str | None) -> None:
    queue = pair.queue()
    pair.compare(*[request(f"POST /{queue}/messages", host=host, body=b"x")] * 2)
    pair.compare(request(f"GET /{queue}/messages", host=host))


@pytest.mark.parametrize(
    "version",
    ["HTTP/1.0", "HTTP/0.9", "HTTP/1.2", "HTTP/2.0", "http/1.1", "HTTP/1.1 ", "HTTP/01.1"],
)
def test_every_version(pair: Pair, version: str) -> None:
    queue = pair.queue(ready=[b"x"])
    pair.compare(f"GET /{queue}/messages {version}\r\nHost: localhost\r\n\r\n".encode())


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\r\n"], ids=repr)
def test_other_ends_of_lines(pair: Pair, end: bytes) -> None:
    queue = pair.queue(ready=[b"x"])
    whole = request(f"GET /{queue}/messages", "Accept: */*")
    for number in range(whole.count(b"\r\n")):
        lines = whole.split(b"\r\n")
        before, behind = b"\r\n".join(lines[: number + 1]), b"\r\n".join(lines[number + 1 :])
        pair.compare(before + end + behind)


def test_blank_lines_before_a_request(pair: Pair) -> None:
    queue = pair.queue()
    pair.compare(b"\r\n\r\n" + request(f"GET /{queue}/messages"))


@pytest.mark.parametrize("number", range(60))
def test_what_the_fuzzer_makes(pair: Pair, number: int) -> None:
    """Requests for messages whose names, parameters, headers and bodies may be anything."""
    draw = random.Random(number)
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
        if b"Expect" not in data:
            pair.compare(data)


# -- queues ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"max_message_bytes": 10},
        {"max_depth": 1},
        {"retention": 50},
        {"retention": 0},
        {"compress": True},
        {"default_delay": 5},
        {"visibility_timeout": 7},
        {"max_deliveries": 1, "dead_letter_queue": "dead"},
        {"partitions": 2},
        {"no-setting": 1},
    ],
    ids=str,
)
def test_every_setting_of_a_queue(pair: Pair, settings: dict[str, object]) -> None:
    for one in pair.both:
        (one.root / "queues" / "dead").mkdir(exist_ok=True)
    queue = pair.queue(ready=[b"x" * 3], **settings)
    posts = [b"x", b"x" * 10, b"x" * 11, b"a" * 5000]
    pair.compare(*(request(f"POST /{queue}/messages", body=body) for body in posts))
    pair.compare(*[request(f"GET /{queue}/messages")] * 2)


def test_settings_that_nobody_can_read(pair: Pair) -> None:
    queue = pair.queue()
    for one in pair.both:
        (one.root / "config").mkdir(exist_ok=True)
        (one.root / "config" / queue).write_text("{")
        (one.root / "config" / f"{queue}.json").write_text("{")
    pair.compare(request(f"POST /{queue}/messages", body=b"x"))
    pair.compare(request(f"GET /{queue}/messages"))


@pytest.mark.parametrize("size", [LIMIT - 1, LIMIT, LIMIT + 1, 64 * KIB, 64 * KIB + 1, 1000 * KIB])
def test_large_bodies(pair: Pair, size: int) -> None:
    queue = pair.queue()
    pair.compare(request(f"POST /{queue}/messages", body=b"x" * size))
    pair.compare(request("POST /not-there/messages", body=b"x" * size))


def test_packed_bodies(pair: Pair) -> None:
    queue = pair.queue()
    for body in (gzip.compress(b"x" * 100), b"no gzip", *BODIES[:5]):
        pair.compare(request(f"POST /{queue}/messages", "Content-Encoding: gzip", body=body))


@pytest.mark.parametrize("size", [0, 1, 10, 200])
def test_what_does_not_come_to_its_end(pair: Pair, size: int) -> None:
    """A head and a body that are cut: what is said after the time for it."""
    queue = pair.queue()
    whole = request(f"POST /{queue}/messages", body=b"x" * 300)
    pair.compare(whole[: len(whole) - 300 + size])
    if size:
        pair.compare(whole[:size])


@pytest.mark.parametrize("pause", [False, True])
def test_requests_in_pieces(pair: Pair, pause: bool) -> None:
    for cut in (10, 40, 70, 71, 72, 75):
        for one in pair.both:
            queue = "pieces"
            one.queue(queue)
            whole = request(f"POST /{queue}/messages", "Accept: */*", body=b"body")
            with Wire(one.url) as wire:
                wire.send(whole[:cut])
                one.call(lambda: None)
                if pause:
                    time.sleep(0.002)
                wire.send(whole[cut:])
                assert wire.answer().status == 201
    assert pair.quick.tree() == pair.plain.tree()


# -- keys ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pair, dict[str, str]]]:
    """Two servers with keys, and these."""
    folder = tmp_path_factory.mktemp("guarded")
    file = folder / "keys"
    keys = {
        "all": add_key(file, "all", "--send=*", "--receive=*"),
        "sender": add_key(file, "sender", "--send=*"),
        "receiver": add_key(file, "receiver", "--receive=*"),
        "other": add_key(file, "other", "--send=other", "--receive=other"),
    }
    limits = Limits(header_timeout=HEAD_S)

    def server(name: str, *, lane: bool) -> Inside:
        access = Access(load(file))
        return Inside(folder / name, lane=lane, limits=limits, access=access, read_timeout=READ_S)

    with server("quick", lane=True) as quick, server("plain", lane=False) as plain:
        yield Pair(quick, plain), keys


@pytest.mark.parametrize("name", ["all", "sender", "receiver", "other"])
@pytest.mark.parametrize(
    "form",
    [
        *("Authorization: Bearer {}", "authorization: bearer {}", "Authorization: Bearer  {}"),
        *("Authorization: Basic {}", "Authorization: {}", "Authorization: Bearer {}x", "X: {}"),
        *("Authorization: Bearer {0}\r\nAuthorization: Bearer {0}", "Authorization: Bearer {}, a"),
        *("Authorization:Bearer {}\t", "Proxy-Authorization: Bearer {}", "Authorization: Bearer"),
    ],
)
def test_keys(guarded: tuple[Pair, dict[str, str]], name: str, form: str) -> None:
    pair, keys = guarded
    queue, header = pair.queue(ready=[b"x"]), form.format(keys[name])
    pair.compare(*[request(f"POST /{queue}/messages", header, body=b"x")] * 2)
    pair.compare(request(f"GET /{queue}/messages", header))
    pair.compare(request(f"DELETE /{queue}/messages/m", header))
    pair.compare(request("POST /not-there/messages", header, body=b"x"))
    if (name, form) == ("all", "Authorization: Bearer {}"):
        assert pair.quick.taken >= 4
