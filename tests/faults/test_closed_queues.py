"""Claims from several queues, one of which has an unreadable folder."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsmq import Spool
from tests.faults.inject import cpu_s, injected
from tests.faults.user import UNPRIVILEGED, needs_setpriv, refused, unprivileged
from tests.harness.suite import Suite, eventually
from tests.http.helpers import ARRIVAL_S, Answer, Wire

IN_VAIN_S = 0.3

pytestmark = needs_setpriv


@pytest.fixture(scope="module", params=["inotify", "poll"])
def suite(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Suite]:
    """A suite whose programs have no capabilities."""
    options = [] if request.param == "inotify" else ["--watch=poll", "--poll-interval=0.05"]
    with unprivileged(Suite(tmp_path_factory.mktemp("closed") / "mq", mq_options=options)) as suite:
        yield suite


@pytest.fixture
def queues(suite: Suite, queue: str) -> Iterator[list[Path]]:
    """The folders of two new queues; the first one is unreadable."""
    folders = [suite.root / "queues" / f"{queue}.{name}" for name in "ab"]
    for folder in folders:
        folder.mkdir()
    folders[0].chmod(0)
    yield folders
    for folder in folders:
        if folder.is_dir() and not folder.is_symlink():
            folder.chmod(0o700)


def claim(suite: Suite, asked: str, wait: float = 0.0) -> Answer:
    with Wire(suite.url) as wire:
        return wire.ask("GET", f"/_claim?queues={asked}&wait={wait}&visibility=600")


def post(suite: Suite, folder: Path, query: str = "") -> None:
    with Wire(suite.url) as wire:
        assert wire.ask("POST", f"/{folder.name}/messages{query}", body=b"x").status == 201


def asked_as(way: str, folders: list[Path]) -> str:
    """The queues of a claim by their names, or as a pattern."""
    return ",".join(f.name for f in folders) if way == "names" else f"{folders[0].name[:-1]}*"


@pytest.fixture(params=["names", "pattern"])
def asked(request: pytest.FixtureRequest, queues: list[Path]) -> str:
    return asked_as(request.param, queues)


def test_messages_of_readable_queues_are_claimed(
    suite: Suite, queues: list[Path], asked: str
) -> None:
    for _ in range(2):
        assert claim(suite, asked, IN_VAIN_S).status == 204
        post(suite, queues[1])
        answer = claim(suite, asked, ARRIVAL_S)
        assert (answer.status, answer.headers["X-Message-Queue"]) == (200, queues[1].name)
    assert refused(claim(suite, queues[0].name))


def test_a_message_in_a_readable_queue_ends_a_wait(
    suite: Suite, queues: list[Path], asked: str
) -> None:
    with Wire(suite.url) as first, Wire(suite.url) as second:
        before = cpu_s(suite["mq"].pid)
        for wire in (first, second):
            wire.request("GET", f"/_claim?queues={asked}&wait={ARRIVAL_S}&visibility=600")
        eventually(lambda: first.is_read() and second.is_read())
        assert not first.is_readable()
        assert not second.is_readable()
        for _ in range(2):
            post(suite, queues[1])
        assert [first.answer().status, second.answer().status] == [200, 200]
        assert cpu_s(suite["mq"].pid) - before < ARRIVAL_S / 4


def test_a_queue_that_becomes_readable_is_claimed_from(
    suite: Suite, queues: list[Path], asked: str
) -> None:
    with Wire(suite.url) as wire:
        wire.request("GET", f"/_claim?queues={asked}&wait={ARRIVAL_S}&visibility=600")
        eventually(wire.is_read)
        with Spool(suite.root) as spool:  # as a user with access
            spool.queue(queues[0].name).put(b"x")
            queues[0].chmod(0o700)
        answer = wire.answer()
        assert (answer.status, answer.headers["X-Message-Queue"]) == (200, queues[0].name)


@pytest.mark.parametrize("kind", ["plain", "fifo", "limited"])
def test_a_queue_that_becomes_unreadable_blocks_no_other(
    suite: Suite, queues: list[Path], asked: str, kind: str
) -> None:
    queues[0].rmdir()
    with Spool(suite.root) as spool:
        spool.create_queue(queues[0].name, fifo=kind == "fifo")
        if kind == "limited":
            spool.queue(queues[0].name).configure(max_in_flight=9)
    group = "?group=one" if kind == "fifo" else ""
    post(suite, queues[0], group)
    assert claim(suite, asked, ARRIVAL_S).status == 200
    post(suite, queues[0], group)
    eventually(lambda: os.listdir(queues[0]))
    queues[0].chmod(0)
    assert claim(suite, asked, IN_VAIN_S).status == 204
    post(suite, queues[1])
    answer = claim(suite, asked, ARRIVAL_S)
    assert (answer.status, answer.headers["X-Message-Queue"]) == (200, queues[1].name)


def test_a_claim_is_refused_if_no_queue_is_readable(
    suite: Suite, queues: list[Path], asked: str
) -> None:
    queues[1].chmod(0)
    for wait in (0, ARRIVAL_S):
        began = time.monotonic()
        assert refused(claim(suite, asked, wait))
        assert time.monotonic() - began < ARRIVAL_S / 2


def test_the_library_claims_from_readable_queues(
    suite: Suite, queues: list[Path], asked: str
) -> None:
    def get(wait: str) -> subprocess.CompletedProcess[str]:
        command = [*UNPRIVILEGED, sys.executable, "-m", "fsmq.cli", "get", asked, "--wait", wait]
        return subprocess.run(
            [*command, "--at", str(suite.root)], capture_output=True, text=True, check=False
        )

    assert get("0").returncode == 1  # no message
    post(suite, queues[1])
    found = get("10s")
    assert (found.returncode, found.stdout) == (0, "x"), found.stderr
    queues[1].chmod(0)
    assert "access to the spool is denied" in get("0").stderr


def test_an_unreadable_queue_is_logged_once(suite: Suite, queues: list[Path], asked: str) -> None:
    def logged() -> list[str]:
        return [
            str(event["event"])
            for event in suite.logs("mq")
            if f"'{queues[0].name}'" in str(event["event"]) and "claim" in str(event["event"])
        ]

    for _ in range(3):
        assert claim(suite, asked).status == 204
    [text] = logged()
    assert "access to the spool is denied" in text
    queues[0].chmod(0o700)
    assert claim(suite, asked).status == 204
    assert len(eventually(lambda: len(logged()) == 2 and logged())) == 2


def test_the_health_report_has_an_unreadable_queue(suite: Suite, queues: list[Path]) -> None:
    with Wire(suite.url) as wire:
        found = wire.ask("GET", "/_cluster?health=true").json["health"]["findings"]
    texts = [one["text"] for one in found if one["name"] == "unreadable"]
    assert texts == [f"the folder of {queues[0].name} cannot be read: Permission denied"]


def test_a_file_or_link_is_no_queue(suite: Suite, queues: list[Path]) -> None:
    """A claim by name gets 404, and a pattern does not match it."""
    post(suite, queues[1])
    by_name, by_pattern = asked_as("names", queues), asked_as("pattern", queues)
    for place in (lambda: queues[0].touch(), lambda: queues[0].symlink_to(queues[1])):
        if queues[0].is_dir() and not queues[0].is_symlink():
            queues[0].rmdir()
        else:
            queues[0].unlink()
        place()
        assert claim(suite, by_name).status == 404
        post(suite, queues[1])
        assert claim(suite, by_pattern, ARRIVAL_S).status == 200
    queues[0].unlink()


@pytest.mark.parametrize("way", ["names", "pattern"])
@pytest.mark.parametrize("call", ["openat", "newfstatat"])
def test_an_error_of_one_folder_blocks_no_other_queue(root: Path, way: str, call: str) -> None:
    with Suite(root, mover=False, reaper=False) as suite:
        folders = [suite.root / "queues" / name for name in ("q.a", "q.b")]
        for folder in folders:
            folder.mkdir()
        asked = asked_as(way, folders)
        # The path in the calls is relative to the root.
        paths = [folders[0].relative_to(suite.root)]
        with injected(suite, f"{call}:error=EIO", programs=["mq"], paths=paths) as fault:
            assert claim(suite, asked).status == 204
            (suite.root / "tmp").mkdir(exist_ok=True)
            (suite.root / "tmp" / "x").write_bytes(b"x")
            (suite.root / "tmp" / "x").rename(folders[1] / "x")
            assert claim(suite, asked, ARRIVAL_S).status == 200
            assert fault.hits
