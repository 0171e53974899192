"""Files that shell users move in by hand can be fetched over HTTP."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from aiohttp import ClientSession

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
async def test_any_file_name_can_be_an_id(
    client: ClientSession, suite: Suite, name: str, folder: str, tmp_path: Path
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
async def test_ids_in_json_and_in_headers_are_the_same(
    client: ClientSession, suite: Suite, queue: str, name: str, tmp_path: Path
) -> None:
    move_in(tmp_path, suite, f"new/{queue}:{name}", b"x")
    [message] = (await fetch(client, queue, count=1)).json["messages"]
    looked = await ask(client, "GET", f"/{queue}/messages/{message['id']}")
    assert (looked.status, looked.id) == (200, message["id"])


async def test_a_file_moved_into_delay_is_delivered_at_once(
    client: ClientSession, suite: Suite, queue: str, tmp_path: Path
) -> None:
    move_in(tmp_path, suite, f"delay/{queue}:by-hand", b"x")
    answer = await fetch(client, queue)
    assert (answer.id, answer.headers["X-Message-Deliveries"]) == ("by-hand", "1")


async def test_a_message_moved_out_of_delay_is_ready(
    client: ClientSession, suite: Suite, queue: str
) -> None:
    message_id = await post(client, queue, b"x", delay=1000)
    hidden = suite.root / "delay" / f"{queue}:{message_id}"
    eventually(hidden.exists)
    hidden.rename(suite.root / "queues" / queue / message_id)
    assert (await fetch(client, queue)).id == message_id


async def test_an_unlinked_message_is_gone(client: ClientSession, suite: Suite, queue: str) -> None:
    message_id = await post(client, queue, b"x")
    path = suite.root / "queues" / queue / message_id
    eventually(path.exists)
    path.unlink()
    assert (await fetch(client, queue, wait=0)).status == 204


async def test_a_link_in_place_of_a_queue_is_not_followed(
    client: ClientSession, suite: Suite, tmp_path: Path
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
        # The mover has logged the one without a queue, so it has looked at both.
        for name in ("linked:planted", "linked:planted-too"):
            eventually(lambda n=name: any(e.get("file") == n for e in suite.logs("mover")))
        assert [path.name for path in elsewhere.iterdir()] == ["secret"]
    finally:
        link.unlink()
    # The stuck message goes to the real queue.
    await ask(client, "PUT", "/linked")
    assert (await fetch(client, "linked")).body == b"x"


async def test_a_header_block_written_by_hand(
    client: ClientSession, suite: Suite, queue: str, tmp_path: Path
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
async def test_a_malformed_header_block_is_part_of_the_body(
    client: ClientSession, suite: Suite, queue: str, block: bytes, tmp_path: Path
) -> None:
    move_in(tmp_path, suite, f"new/{queue}:{UUID}2.h", block)
    answer = await fetch(client, queue, visibility=0.1)
    assert answer.status == 200
    assert "Set-Cookie" not in answer.headers
    assert "X-Evil" not in answer.headers
    # Nothing is lost: lines that are not headers are in the body.
    assert answer.body in (b"body", block)
    [again] = (await fetch(client, queue, count=1)).json["messages"]
    assert again["id"] == answer.id
    text = "".join(f"{n}: {v}" for n, v in answer.headers.items())
    assert not re.search(r"[\x00-\x08\x0a-\x1f]", text)


def move_in(tmp_path: Path, suite: Suite, place: str, body: bytes) -> None:
    """Write a file elsewhere on the filesystem, then move it in."""
    draft = tmp_path / "draft"
    draft.write_bytes(body)
    draft.rename(suite.root / place)


def test_mv_of_several_files_reports_no_error(suite: Suite, queue: str, tmp_path: Path) -> None:
    """mv checks each file after its rename."""
    for turn in range(10):
        files = [tmp_path / f"{queue}:r{turn}-{n}" for n in range(8)]
        for file in files:
            file.write_text("x")
        done = subprocess.run(
            ["mv", "-n", *files, suite.root / "new"], capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
    eventually(lambda: len(os.listdir(suite.root / "queues" / queue)) == 80)
