"""The fast path answers like aiohttp: native requests, settings of queues, and keys."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsmq.http.guard.access import Access
from fsmq.http.guard.keys import load
from tests.http.keyfile import add_key
from tests.http.pair import HASTY, KIB, LIMIT, Pair, pair_of, request
from tests.soak.fuzz import BODIES

OPTIONS = {"dialects": ("emodb", "dynamiq"), "host_names": (), "max_message_bytes": LIMIT}


@pytest.fixture(autouse=True)
def apart(request: pytest.FixtureRequest) -> Iterator[None]:
    """Remove what a test has stored: the next one compares the whole spool."""
    yield
    for name in {"pair", "guarded"} & set(request.fixturenames):
        found = request.getfixturevalue(name)
        for one in (found if isinstance(found, Pair) else found[0]).both:
            one.empty()


# -- taken by the fast path ------------------------------------------------------------------------

TAKEN = [
    "/{q}/messages",
    "/{q}/messages?delay=0",
    "/{q}/messages?delay=0.5",
    "/{q}/messages?ttl=50",
    "/{q}/messages?priority=7",
    "/{q}/messages?priority=007&ttl=1e3&delay=60.25",
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
def test_the_fast_path_takes_posts(pair: Pair, target: str, body: bytes) -> None:
    taken, queue = pair.quick.taken, pair.queue()
    told = pair.compare(request(f"POST {target.format(q=queue)}", body=body))
    assert told[0].status == 201
    assert pair.quick.taken == taken + 1


def test_the_fast_path_takes_posts_with_a_deduplication_id(pair: Pair) -> None:
    queue = pair.queue(fifo=True)
    posts = [
        request(f"POST /{queue}/messages?group=g&dedup_id={one}", body=b"x")
        for one in ("first", "a_1", "b", "a_1")
    ]
    pair.compare(posts[0])  # messages of other programs are read in a thread, once
    taken = pair.quick.taken
    known = dict(pair.quick.fast_path._heads._lines)  # type: ignore[attr-defined]
    told = pair.compare(*posts[1:])
    assert [one.status for one in told[:3]] == [201] * 3
    assert pair.quick.taken == taken + 3
    assert pair.quick.fast_path._heads._lines == known  # type: ignore[attr-defined]
    assert len(pair.quick.tree()) == 3
    pair.compare(
        request(f"POST /{queue}/messages?group=g&dedup_id=", body=b"x"),
        request(f"POST /{queue}/messages?group=g&dedup_id=a%20b", body=b"x"),
        request(f"POST /{queue}/messages?group=g&dedup_id=a&id=own", body=b"x"),
        request(f"POST /{queue}/messages?dedup_id=c", body=b"x"),
        request(f"POST /{queue}-not/messages?group=g&dedup_id=c", body=b"x"),
    )


@pytest.mark.parametrize("lines", USUAL, ids=" & ".join)
def test_the_fast_path_takes_usual_headers(pair: Pair, lines: list[str]) -> None:
    taken, queue = pair.quick.taken, pair.queue(ready=[b"one", b"\xff two", b"", b"four"])
    other = pair.queue()
    [message_id] = pair.quick.queue(f"{queue}-x", ready=[b"x"])
    for one in pair.both:
        (one.root / "queues" / f"{queue}-x").mkdir(exist_ok=True)
        (one.root / "queues" / f"{queue}-x" / message_id).touch()
    told = pair.compare(
        request(f"POST /{other}/messages", *lines, body=b"x"),
        request(f"POST /{other}/messages", *lines, "Content-Length: 0"),
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


# The first takes six bytes in JSON; the second takes base64.
@pytest.mark.parametrize(
    ("byte", "sizes"),
    [
        (b"a", (0, 1, 60 * KIB, 95 * KIB, 96 * KIB, 300 * KIB)),
        (b"\x01", (1, 95 * KIB)),
        (b"\xff", (1, 95 * KIB)),
    ],
    ids=["text", "control", "binary"],
)
@pytest.mark.parametrize("query", ["", "?count=1", "?count=3"])
def test_bodies_of_any_size_are_claimed(
    pair: Pair, byte: bytes, sizes: tuple[int, ...], query: str
) -> None:
    for size in sizes:
        taken, queue = pair.quick.taken, pair.queue(ready=[byte * size, b"small", byte * size])
        told = pair.compare(*[request(f"GET /{queue}/messages{query}")] * 2)
        assert told[0].status == 200
        assert pair.quick.taken == taken + 2


def test_attributes_and_facts_in_names_of_files(pair: Pair, tmp_path: Path) -> None:
    """Attributes, priority, expiry and content type, also in files written by hand."""
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
            # The fraction of a time can look like a count of deliveries.
            os.utime(one.root / "queues" / queue / name, (1.7e9, 1.7e9))
        one.load(queue)
        one.seen(queue, 7)
    taken = pair.quick.taken
    told = pair.compare(*[request(f"GET /{queue}/messages")] * 8)
    assert [one.status for one in told] == [200] * 7 + [204, 200]
    assert pair.quick.taken == taken + 8


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?visibility=9",
        "?visibility=0",
        "?visibility=0.0",
        "?release=0",
        "?release=50",
        "?bury=true",
        "?bury=false",
        "?bury=true&release=1",
        "?visibility=1&release=1",
        "?visibility=604801",
        "?release=-1",
        "?unknown=1",
        "?visibility=5&visibility=5",
    ],
)
def test_changes(pair: Pair, query: str) -> None:
    """Of a message in flight, a ready one and a missing one."""
    message_id, queue = "01900000-0000-7000-8000-0000000000aa", pair.queue()
    for one in pair.both:
        for name in (message_id, message_id.replace("aa", "bb")):
            (one.root / "queues" / queue / name).write_bytes(b"x")
            os.utime(one.root / "queues" / queue / name, (1.7e9, 1.7e9))
        one.load(queue)
        one.seen(queue, 2)
    patch = request(f"PATCH /{queue}/messages/{message_id}{query}", "Content-Length: 0")
    pair.compare(
        request(f"GET /{queue}/messages?visibility=600"),
        patch,
        patch,
        request(f"PATCH /{queue}/messages/{message_id.replace('aa', 'bb')}{query}"),
        request(f"PATCH /{queue}/messages/none{query}", "Accept: application/json"),
        request(f"PATCH /not-there/messages/none{query}"),
        request(f"GET /{queue}/messages?wait=0.05"),
        request(f"PATCH /{queue}/messages/{message_id}{query}", body=b"body"),
    )


@pytest.mark.parametrize("query", ["?wait=0.02", "?wait=0.02&count=3", "?wait=0.02&visibility=5"])
def test_a_wait_that_ends_without_a_message(pair: Pair, query: str) -> None:
    taken, queue = pair.quick.taken, pair.queue()
    told = pair.compare(*[request(f"GET /{queue}/messages{query}")] * 2)
    assert told[0].status == 204
    assert pair.quick.taken == taken + 2


# -- queues ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{"max_message_bytes": 10}, {"max_depth": 1}], ids=str)
def test_posts_that_a_setting_refuses(pair: Pair, settings: dict[str, object]) -> None:
    queue = pair.queue(ready=[b"x" * 3], **settings)
    posts = [b"x", b"x" * 10, b"x" * 11, b"a" * 5000]
    pair.compare(*(request(f"POST /{queue}/messages", body=body) for body in posts))


def test_unreadable_settings(pair: Pair) -> None:
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


@pytest.mark.parametrize("size", [1, 200])
def test_requests_that_stay_incomplete(tmp_path: Path, size: int) -> None:
    """Incomplete heads and bodies: the answer after the timeout."""
    with pair_of(tmp_path, **HASTY) as pair:
        queue = pair.queue()
        whole = request(f"POST /{queue}/messages", body=b"x" * 300)
        pair.compare(whole[: len(whole) - 300 + size])
        pair.compare(whole[:size])


# -- keys ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pair, dict[str, str]]]:
    """Two servers with keys, and those keys."""
    folder = tmp_path_factory.mktemp("guarded")
    file = folder / "keys"
    keys = {
        "all": add_key(file, "all", "--send=*", "--receive=*"),
        "sender": add_key(file, "sender", "--send=*"),
        "receiver": add_key(file, "receiver", "--receive=*"),
        "other": add_key(file, "other", "--send=other", "--receive=other"),
    }
    with pair_of(folder, access=Access(load(file))) as running:
        yield running, keys


FORM = "Authorization: Bearer {}"


@pytest.mark.parametrize(
    ("name", "form"),
    [(name, FORM) for name in ("all", "sender", "receiver", "other")]
    + [
        ("all", form)
        for form in (
            "authorization: bearer {}",
            "Authorization: Bearer  {}",
            "Authorization: Basic {}",
            "Authorization: {}",
            "Authorization: Bearer {}x",
            "X: {}",
            "Authorization: Bearer {0}\r\nAuthorization: Bearer {0}",
            "Authorization: Bearer {}, a",
            "Authorization:Bearer {}\t",
            "Proxy-Authorization: Bearer {}",
            "Authorization: Bearer",
        )
    ],
)
def test_keys(guarded: tuple[Pair, dict[str, str]], name: str, form: str) -> None:
    pair, keys = guarded
    queue, header = pair.queue(ready=[b"x"]), form.format(keys[name])
    pair.compare(*[request(f"POST /{queue}/messages", header, body=b"x")] * 2)
    pair.compare(request(f"GET /{queue}/messages", header))
    pair.compare(request(f"DELETE /{queue}/messages/m", header))
    pair.compare(request("POST /not-there/messages", header, body=b"x"))
    if (name, form) == ("all", FORM):
        assert pair.quick.taken >= 4
