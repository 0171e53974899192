"""Shell users: files that are moved in by hand come out over HTTP, whatever they are named."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import aiohttp
import pytest

from tests.harness.suite import Suite, eventually
from tests.http.helpers import ask, fetch, post

UUID = "01900000-0000-7000-8000-00000000000"
NAMES = [
    "plain",
    "with space",
    "ünïcödé-日本",
    "percent%20sign",
    "hash#tag",
    "question?mark",
    "brackets[]{}^`|\\",
    "quotes\"'<>",
    "line\nfeed",
    "tab\tand\rreturn",
    "~tilde+plus&and=equals;semi,comma",
    "notes.h",
    "p01.not-a-uuid",
    "-rf",
    "*",
    "x" * 150,
    os.fsdecode(b"latin-1-\xe9\xff"),
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize("folder", ["new", "queues"])
async def test_any_file_name_is_an_id(
    client: aiohttp.ClientSession, suite: Suite, name: str, folder: str, tmp_path: Path
) -> None:
    queue = f"names-{folder}-{NAMES.index(name)}"
    await ask(client, "PUT", f"/{queue}")
    place = f"new/{queue}:{name}" if folder == "new" else f"queues/{queue}/{name}"
    move_in(tmp_path, suite, place, b"by hand")
    fetched = await fetch(client, queue)
    assert (fetched.status, fetched.body) == (200, b"by hand")
    assert fetched.headers["X-Message-Deliveries"] == "1"
    assert fetched.id.isascii()
    path = f"/{queue}/messages/{fetched.id}"
    assert (await ask(client, "GET", path)).body == b"by hand"
    assert (await ask(client, "PATCH", f"{path}?visibility=60")).status == 204
    assert (await ask(client, "DELETE", path)).status == 202
    assert not (suite.root / "delay" / f"{queue}:{name}").exists()


@pytest.mark.parametrize("name", ["with space", "hash#tag", os.fsdecode(b"\xff")], ids=ascii)
async def test_an_id_in_json_is_the_one_of_the_header(
    client: aiohttp.ClientSession, suite: Suite, queue: str, name: str, tmp_path: Path
) -> None:
    move_in(tmp_path, suite, f"new/{queue}:{name}", b"x")
    [message] = (await fetch(client, queue, count=1)).json["messages"]
    looked = await ask(client, "GET", f"/{queue}/messages/{message['id']}")
    assert (looked.status, looked.id) == (200, message["id"])


async def test_a_file_in_delay_comes_at_once(
    client: aiohttp.ClientSession, suite: Suite, queue: str, tmp_path: Path
) -> None:
    move_in(tmp_path, suite, f"delay/{queue}:by-hand", b"x")
    answer = await fetch(client, queue)
    assert (answer.id, answer.headers["X-Message-Deliveries"]) == ("by-hand", "1")


async def test_a_message_is_taken_out_of_delay_by_hand(
    client: aiohttp.ClientSession, suite: Suite, queue: str
) -> None:
    message_id = await post(client, queue, b"x", delay=1000)
    hidden = suite.root / "delay" / f"{queue}:{message_id}"
    eventually(hidden.exists)
    hidden.rename(suite.root / "queues" / queue / message_id)
    assert (await fetch(client, queue)).id == message_id


async def test_a_message_that_is_unlinked_by_hand_is_gone(
    client: aiohttp.ClientSession, suite: Suite, queue: str
) -> None:
    message_id = await post(client, queue, b"x")
    path = suite.root / "queues" / queue / message_id
    eventually(path.exists)
    path.unlink()
    assert (await fetch(client, queue, wait=0)).status == 204


async def test_a_queue_is_made_by_hand(client: aiohttp.ClientSession, suite: Suite) -> None:
    (suite.root / "queues" / "handmade").mkdir()
    await post(client, "handmade", b"x")
    assert (await fetch(client, "handmade")).body == b"x"


@pytest.mark.parametrize("kind", ["fifo", "link", "folder", "socket"])
@pytest.mark.parametrize("place", ["new", "queues", "delay"])
async def test_what_is_no_file_is_no_message(
    client: aiohttp.ClientSession, suite: Suite, kind: str, place: str, tmp_path: Path
) -> None:
    queue = f"no-file-{kind}-{place}"
    await ask(client, "PUT", f"/{queue}")
    secret = tmp_path / "secret"
    secret.write_text("not for clients")
    name = "00-planted"
    stray = tmp_path / "stray"
    make(kind, stray, secret)
    inside = f"queues/{queue}/{name}" if place == "queues" else f"{place}/{queue}:{name}"
    stray.rename(suite.root / inside)
    await post(client, queue, b"a true one")
    answer = await fetch(client, queue)
    assert answer.body == b"a true one"
    assert (await fetch(client, queue, wait=0.1)).status == 204
    path = f"/{queue}/messages/{name}"
    assert (await ask(client, "GET", path)).status == 404
    assert (await ask(client, "PATCH", f"{path}?visibility=5")).status == 404
    assert secret.read_text() == "not for clients"
    # It can be removed like a message.
    assert (await ask(client, "DELETE", path)).status == 202
    assert not os.path.lexists(suite.root / inside)
    assert secret.exists()


def make(kind: str, path: Path, target: Path) -> None:
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(target)
    elif kind == "folder":
        path.mkdir()
        (path / "file").write_text("x")
    else:
        os.mknod(path, 0o140600)


async def test_nothing_moves_through_a_link_in_a_queue_s_place(
    client: aiohttp.ClientSession, suite: Suite, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "secret").write_text("not in the spool")
    link = suite.root / "queues" / "linked"
    link.symlink_to(elsewhere)
    try:
        move_in(tmp_path, suite, "new/linked:planted", b"x")
        move_in(tmp_path, suite, "delay/linked:planted-too", b"x")
        for method in ("DELETE", "PATCH", "GET"):
            path = "/linked/messages/secret"
            assert (await ask(client, method, path)).status == 404
        for method, path in (
            ("GET", "/linked/messages"),
            ("DELETE", "/linked"),
            ("GET", "/linked"),
        ):
            assert (await ask(client, method, path)).status == 404
        assert (await ask(client, "PUT", "/linked")).status == 503
        # The mover has looked at both by now: it tells of what has no queue.
        for name in ("linked:planted", "linked:planted-too"):
            eventually(lambda n=name: any(e.get("file") == n for e in suite.logs("mover")))
        assert [path.name for path in elsewhere.iterdir()] == ["secret"]
    finally:
        link.unlink()
    # What was stuck goes to the true queue.
    await ask(client, "PUT", "/linked")
    assert (await fetch(client, "linked")).body == b"x"


async def test_a_header_block_by_hand(
    client: aiohttp.ClientSession, suite: Suite, queue: str, tmp_path: Path
) -> None:
    block = b"Content-Type: text/x-mine\nTrace: 1: 2\n\nthe body"
    move_in(tmp_path, suite, f"new/{queue}:{UUID}1.h", block)
    answer = await fetch(client, queue)
    assert answer.body == b"the body"
    assert answer.headers["Content-Type"] == "text/x-mine"
    assert answer.headers["X-Message-Attribute-Trace"] == "1: 2"


@pytest.mark.parametrize(
    "block",
    [
        b"Content-Type: a/b\r\nSet-Cookie: x=1\r\n\r\nbody",
        b"A: 1\rSet-Cookie: x=1\n\nbody",
        b"A\r\nSet-Cookie: x=1\n\nbody",
        b"Content-Type: a/b\r\n\r\nX-Evil: 1\n\nbody",
        b"A B: 1\n\nbody",
        b"\xff\xfe: 1\n\nbody",
        b"A: \xff\x00\x7f\n\nbody",
        b": empty\n\nbody",
        b"Content-Type: \n\nbody",
        b"\n\nbody",
        b"no block at all",
        b"",
    ],
    ids=ascii,
)
async def test_a_header_block_by_hand_that_is_none(
    client: aiohttp.ClientSession, suite: Suite, queue: str, block: bytes, tmp_path: Path
) -> None:
    move_in(tmp_path, suite, f"new/{queue}:{UUID}2.h", block)
    answer = await fetch(client, queue, visibility=0.1)
    assert answer.status == 200
    assert "Set-Cookie" not in answer.headers
    assert "X-Evil" not in answer.headers
    # Nothing is lost: what is not told in headers stands in the body.
    assert answer.body in (b"body", block)
    [again] = (await fetch(client, queue, count=1)).json["messages"]
    assert again["id"] == answer.id
    text = "".join(f"{n}: {v}" for n, v in answer.headers.items())
    assert not re.search(r"[\x00-\x08\x0a-\x1f]", text)


def move_in(tmp_path: Path, suite: Suite, place: str, body: bytes) -> None:
    """What a shell user does: write elsewhere on the filesystem, then move."""
    draft = tmp_path / "draft"
    draft.write_bytes(body)
    draft.rename(suite.root / place)


def test_mv_of_several_files_says_nothing(suite: Suite, queue: str, tmp_path: Path) -> None:
    """It looks at each behind its rename, and the file has to be there still."""
    for turn in range(10):
        files = [tmp_path / f"{queue}:r{turn}-{n}" for n in range(8)]
        for file in files:
            file.write_text("x")
        done = subprocess.run(
            ["mv", "-n", *files, suite.root / "new"], capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
    eventually(lambda: len(os.listdir(suite.root / "queues" / queue)) == 80)
