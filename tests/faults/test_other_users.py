"""Files and folders of another user in the spool, which programs may not change."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fsmq.spool import Spool
from fsmq.spool.layout.names import seal_of, staged_entry
from fsmq.spool.layout.tree import Tree
from fsmq.spool.layout.uuids import uuid7
from fsmq.spool.records.alive import find_alive
from tests.faults.inject import cpu_s
from tests.faults.left import leave_work
from tests.faults.user import PROGRAMS, needs_setpriv, unprivileged
from tests.harness.suite import Suite, eventually
from tests.http.helpers import Answer, Wire

NOBODY = 65534

pytestmark = needs_setpriv


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with unprivileged(Suite(tmp_path_factory.mktemp("strangers") / "mq")) as running:
        yield running


def give_away(path: Path, mode: int = 0o600) -> None:
    """Give a file, or a folder with its content, to another user."""
    for inner in path.rglob("*") if path.is_dir() else ():
        os.chown(inner, NOBODY, NOBODY)
    os.chown(path, NOBODY, NOBODY)
    path.chmod(mode)


def put_foreign(place: Path, body: bytes = b"x") -> None:
    """Create a whole file of another user at once."""
    draft = place.parent / f".{uuid7()}"
    draft.write_bytes(body)
    give_away(draft)
    draft.rename(place)


def fetch(suite: Suite, queue: str, wait: float = 15.0) -> Answer:
    with Wire(suite.url) as wire:
        return wire.ask("GET", f"/{queue}/messages?wait={wait}")


def post(suite: Suite, queue: str, body: bytes) -> None:
    with Wire(suite.url) as wire:
        assert wire.ask("POST", f"/{queue}/messages", body=body).status == 201


def test_many_foreign_files_hide_no_message(suite: Suite, queue: str) -> None:
    for number in range(150):
        put_foreign(suite.root / "queues" / queue / f"0-{number:03}")
    post(suite, queue, b"mine")
    assert fetch(suite, queue).body == b"mine"
    assert fetch(suite, queue, wait=0).status == 204


def test_waiters_beside_a_foreign_file_do_not_wake_each_other(suite: Suite, queue: str) -> None:
    put_foreign(suite.root / "queues" / queue / "0-theirs")
    mq = suite["mq"].pid
    before = cpu_s(mq)
    with ThreadPoolExecutor() as clients:
        waiting = [clients.submit(fetch, suite, queue, 3.0) for _ in range(2)]
        assert [one.result().status for one in waiting] == [204, 204]
    assert cpu_s(mq) - before < 0.5
    with ThreadPoolExecutor() as clients:
        waiting = [clients.submit(fetch, suite, queue) for _ in range(2)]
        for body in (b"one", b"two"):
            post(suite, queue, body)
        assert sorted(one.result().body for one in waiting) == [b"one", b"two"]


def test_undeliverable_entries_delay_no_other(suite: Suite, queue: str) -> None:
    new, queues = suite.root / "new", suite.root / "queues"
    closed = queues / f"{queue}-closed"
    closed.mkdir()
    give_away(closed, 0o755)
    delays = []
    for number in range(20):
        for name in (f"{closed.name}:{number}", f"{queue}:{number}"):
            draft = new / f".{uuid7()}"
            draft.touch()
            draft.rename(new / name)
        began = time.monotonic()
        eventually((queues / queue / str(number)).exists)
        delays.append(time.monotonic() - began)
    assert statistics.median(delays) < 0.2
    assert len([name for name in os.listdir(new) if name.startswith(closed.name)]) == 20
    logged = [event for event in suite.logs("mover") if closed.name in str(event.get("what"))]
    assert 1 <= len(logged) < 5
    os.chown(closed, 0, 0)
    eventually(lambda: len(os.listdir(closed)) == 20)


def test_foreign_files_block_no_unfinished_work(root: Path) -> None:
    with Spool(root, sync="none") as spool:
        left = leave_work(spool)
        spool.create_queue("set")
    left.append(f"new/{staged_entry('q', 'mine', seal_of(b'whole'))}")
    (root / left[-1]).write_bytes(b"whole")
    put_foreign(root / "new" / staged_entry("q", "theirs", seal_of(b"x")))
    put_foreign(root / "config" / "set.json", b"{}")
    (root / "consumers" / "bad").mkdir()
    (root / "consumers" / "bad" / f"{uuid7()}.done").touch()
    give_away(root / "consumers" / "bad", 0o700)
    put_foreign(root / "consumers" / "good" / "00000000-0000-7000-8000-000000000000.done")
    for number in range(9):
        bad = root / "staging" / f"bad-{number}:0"
        shutil.copytree(root / "staging" / "zz-good:0", bad)
        [part] = (path for path in bad.iterdir() if path.is_dir())
        give_away(part, 0o700)
    (root / "remove" / "q:grave").mkdir()
    (root / "remove" / "q:grave" / "inside").touch()
    give_away(root / "remove" / "q:grave", 0o555)
    with unprivileged(Suite(root)) as suite:
        eventually(lambda: not [name for name in left if (root / name).exists()])
        post(suite, "q", b"posted")
        bodies = sorted(fetch(suite, "q").body for _ in range(3))
        assert bodies == [b"posted", b"staged", b"whole"]
        assert fetch(suite, "to").body == b"moved"
        tree = Tree(root)
        found = find_alive(tree, patience=30)
        tree.close()
        assert found.mover is not None
        assert found.reaper is not None
        assert all(suite[name].is_running() for name in PROGRAMS)
        logged = [event for name in PROGRAMS for event in suite.logs(name)]
        assert not [event for event in logged if "traceback" in event], logged
