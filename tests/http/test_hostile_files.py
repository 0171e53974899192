"""Files that other users plant in the tree: links are not followed and nothing hangs."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import ClientSession

from tests.harness.suite import Suite
from tests.http.helpers import ask, fetch, post, send
from tests.http.monitoring import until


def link(place: Path) -> None:
    """A link to a secret file outside the root."""
    place.symlink_to(secret(place))


def dangling(place: Path) -> None:
    place.symlink_to("/nowhere/at/all")


def loop(place: Path) -> None:
    place.symlink_to(place.name)


def link_to_folder(place: Path) -> None:
    place.symlink_to(secret(place).parent)


def fifo(place: Path) -> None:
    os.mkfifo(place)


def folder(place: Path) -> None:
    place.mkdir()
    (place / "inside").write_bytes(b"x")


def listening(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        # Paths of sockets have a limit that paths of tests can exceed.
        here = os.open(place.parent, os.O_RDONLY)
        try:
            one.bind(f"/proc/self/fd/{here}/{place.name}")
        finally:
            os.close(here)


def device(place: Path) -> None:
    try:
        os.mknod(place, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero, which is endless
    except PermissionError:
        pytest.skip("only root can make device nodes")


PLANTED = [link, dangling, loop, link_to_folder, fifo, folder, listening, device]


def secret(place: Path) -> Path:
    while place.name != "mq":
        place = place.parent
    file = place.parent / "outside" / "secret"
    file.parent.mkdir(exist_ok=True)
    if not file.exists():
        file.write_bytes(b"SECRET")
    return file


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
async def test_in_place_of_messages(
    suite: Suite, client: ClientSession, queue: str, plant: Callable[[Path], None]
) -> None:
    outside = secret(suite.root)
    before = (outside.read_bytes(), outside.stat().st_mtime_ns, sorted(outside.parent.iterdir()))
    places = (f"queues/{queue}/0-bad", f"delay/{queue}:1-bad", f"new/{queue}:2-bad")
    for place in places:
        plant(suite.root / place)
    message_id = await post(client, queue, b"good")
    got = await fetch(client, queue)
    assert (got.body, got.id) == (b"good", message_id)
    assert (await fetch(client, queue, wait=0.1)).status == 204
    for planted in ("0-bad", "1-bad", "2-bad"):
        for method, query in (("GET", ""), ("PATCH", "?visibility=5"), ("PATCH", "?visibility=0")):
            answer = await ask(client, method, f"/{queue}/messages/{planted}{query}")
            # A release moves a delayed message without opening it.
            found = {404, 204} if (planted, query[-2:]) == ("1-bad", "=0") else {404}
            assert answer.status in found, (method, planted)
    peeked = await ask(client, "GET", f"/{queue}/peek?count=100")
    assert b"SECRET" not in peeked.body
    assert (await ask(client, "GET", f"/{queue}")).status == 200
    assert (await ask(client, "DELETE", f"/{queue}/messages/{message_id}")).status == 202
    # Everything can be removed like a message.
    for planted, place in zip(("0-bad", "1-bad", "2-bad"), places, strict=True):
        answer = await ask(client, "DELETE", f"/{queue}/messages/{planted}")
        assert answer.status == 202, planted
        assert not os.path.lexists(suite.root / place)
    now = (outside.read_bytes(), outside.stat().st_mtime_ns, sorted(outside.parent.iterdir()))
    assert now == before
    clear(suite, queue)


@pytest.mark.parametrize("plant", [p for p in PLANTED if p is not folder], ids=lambda p: p.__name__)
async def test_in_place_of_a_queue(
    suite: Suite, client: ClientSession, plant: Callable[[Path], None]
) -> None:
    name = f"planted-{plant.__name__}"
    outside = secret(suite.root)
    plant(suite.root / "queues" / name)
    for method, path in (
        ("GET", f"/{name}"),
        ("GET", f"/{name}/messages"),
        ("POST", f"/{name}/messages"),
        ("GET", f"/{name}/messages/secret"),
        ("PATCH", f"/{name}"),
    ):
        answer = await ask(client, method, path, data=b"{}" if method == "PATCH" else None)
        assert answer.status in (404, 503), (method, path)
        assert b"SECRET" not in answer.body
    assert (await ask(client, "PUT", f"/{name}")).status in (200, 201, 503)
    assert (await ask(client, "DELETE", f"/{name}")).status in (200, 404, 503)
    assert name not in (await ask(client, "GET", "/")).json["queues"]
    assert [p.name for p in outside.parent.iterdir()] == ["secret"]
    assert outside.read_bytes() == b"SECRET"
    with suppress(OSError):
        (suite.root / "queues" / name).unlink()


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
async def test_in_place_of_settings(
    suite: Suite, client: ClientSession, queue: str, plant: Callable[[Path], None]
) -> None:
    plant(suite.root / "config" / f"{queue}.json")
    for _ in range(2):
        assert (await send(client, queue, b"x")).status in (201, 503)
        assert (await ask(client, "GET", f"/{queue}")).status in (200, 503)
    answer = await ask(client, "PATCH", f"/{queue}", json={"default_delay": 1})
    assert answer.status in (200, 503)
    assert secret(suite.root).read_bytes() == b"SECRET"
    assert (await ask(client, "GET", "/")).status == 200
    clear(suite, queue)


async def test_names_that_are_no_text_have_no_metrics(
    suite: Suite, client: ClientSession, queue: str
) -> None:
    await post(client, queue, b"x")
    [node, *_] = os.listdir(suite.root / "metrics")[0].split(":")
    report = suite.root / "metrics" / os.fsdecode(f"{node}:".encode() + b"\xff:1")
    report.write_text(json.dumps({"counts": [], "gauges": [], "histograms": []}))
    consumers = [suite.root / "consumers" / name for name in (queue, os.fsdecode(b"\xff"))]
    for consumer in consumers:
        consumer.mkdir()
        (consumer / ".lock").write_text(json.dumps({"queues": [queue]}))
    try:
        found = await until(client, "fsmq_consumer_messages_behind", 1, queue=queue)
        assert found.sum("fsmq_consumer_messages_behind", consumer=queue) == 1
    finally:
        report.unlink()
        for consumer in consumers:
            shutil.rmtree(consumer)
    clear(suite, queue)


def clear(suite: Suite, queue: str) -> None:
    """Remove the planted files, and check that the programs still run."""
    for pattern in (f"queues/{queue}/*", f"delay/{queue}:*", f"new/{queue}:*", f"config/{queue}*"):
        for place in suite.root.glob(pattern):
            with suppress(OSError):
                if place.is_dir() and not place.is_symlink():
                    (place / "inside").unlink()
                    place.rmdir()
                else:
                    place.unlink()
    for program in ("mq", "mover", "reaper"):
        assert suite[program].is_running()
        assert not [e for e in suite.logs(program) if "traceback" in e]
