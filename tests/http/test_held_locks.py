"""Locks that another process holds for long delay only the requests that need them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from fsmq import Client
from fsmq.spool import Spool
from fsmq.spool.durability import ids
from fsmq.spool.durability.locks import Lock, lock
from fsmq.spool.durability.send_lines import PATIENCE_S, lock_sends
from fsmq.spool.durability.settings_lock import LOG, SCHEDULE
from fsmq.spool.durability.shared_names import claims_name
from fsmq.spool.durability.sync import Group
from fsmq.spool.errors import Unavailable
from fsmq.spool.layout.messages.given_ids import link_name
from fsmq.spool.layout.transitions import CONFIG
from tests.harness.suite import Suite
from tests.http.helpers import Answer, Wire
from tests.http.inside import Inside

# More than there are threads for blocking calls.
NAMES = [f"held-{number}" for number in range(6)]
PROMPT_S = 2.0
MANY = json.dumps([{"body": "x", "group": "g"}] * 300).encode()


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with Suite(tmp_path_factory.mktemp("held") / "mq", mover=False, reaper=False) as suite:
        with Client(suite.url) as client:
            client.create_queue("free", index=True)
        yield suite


class Asked:
    """Running requests, each on its own connection."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self._url = url
        self._pool = stack.enter_context(ThreadPoolExecutor(32))

    def ask(self, method: str, path: str, body: bytes = b"") -> Future[Answer]:
        return self._pool.submit(self._ask, method, path, body)

    def _ask(self, method: str, path: str, body: bytes) -> Answer:
        with Wire(self._url, 60) as wire:
            return wire.ask(method, path, body=body)


def hold(stack: ExitStack, held: Lock | None) -> None:
    """Keep a lock until the end."""
    assert held is not None
    stack.callback(held.unlock)


def others_are_prompt(suite: Suite) -> None:
    """Requests to another queue are answered at once."""
    with Wire(suite.url, 60) as wire:
        put = json.dumps([{"body": "x", "id": "mine"}]).encode()
        find = json.dumps({"do": "find", "ids": ["mine"]}).encode()
        for method, path, body in (
            ("GET", "/free", b""),
            ("POST", "/free/ids", put),
            ("POST", "/free/by-id", find),
            ("DELETE", "/free/messages", b""),
        ):
            since = time.monotonic()
            answer = wire.ask(method, path, body=body)
            assert answer.status < 300, answer
            assert time.monotonic() - since < PROMPT_S, (method, path)


def are_told_to_wait(waiting: list[Future[Answer]]) -> None:
    for one in waiting:
        answer = one.result(60)
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1"), answer


def test_waiting_sends_block_no_other_queue(suite: Suite) -> None:
    """Sends into more fifo queues than there are threads, until they time out."""
    with (
        ExitStack() as stack,
        Client(suite.url) as client,
        Spool(suite.root, delivers=False) as stopped,
    ):
        for name in NAMES:
            client.create_queue(name, fifo=True)
            client.queue(name).put("0", group="g")
            hold(stack, lock_sends(stopped.tree, name))
        asked, since = Asked(suite.url, stack), time.monotonic()
        # In some queues only one message waits.
        waiting = [asked.ask("POST", f"/{name}/messages?group=g", b"x") for name in NAMES]
        waiting += [asked.ask("POST", f"/{name}/batch", MANY) for name in NAMES[::2]]
        time.sleep(0.2)
        others_are_prompt(suite)
        assert not any(one.done() for one in waiting)
        are_told_to_wait(waiting)
        assert PATIENCE_S <= time.monotonic() - since < 1.5 * PATIENCE_S


def test_a_waiting_recovery_blocks_no_other_queue(suite: Suite) -> None:
    """Senders died and a claiming process is stopped: the next send waits for both."""
    names = [f"dead-{number}" for number in range(6)]
    with (
        ExitStack() as requests,
        ExitStack() as stack,
        Client(suite.url) as client,
        Spool(suite.root, delivers=False) as stopped,
    ):
        for name in names:
            client.create_queue(name, fifo=True)
            path = stopped.tree.folder(CONFIG, claims_name(name))
            hold(stack, lock(stopped.tree, path, os.O_CREAT))
        asked = Asked(suite.url, requests)
        waiting = [asked.ask("POST", f"/{name}/messages?group=g", b"x") for name in names]
        time.sleep(0.2)
        others_are_prompt(suite)
        assert not any(one.done() for one in waiting)
        stack.close()
        assert [one.result(60).status for one in waiting] == [201] * len(names)


def test_locked_ids_block_no_other_queue(suite: Suite) -> None:
    """Puts by locked ids, and verbs on messages that are being replaced."""
    with (
        ExitStack() as stack,
        Client(suite.url) as client,
        Spool(suite.root, delivers=False) as stopped,
    ):
        client.create_queue("ids", index=True)
        put = json.dumps([{"body": "x", "id": "one"}]).encode()
        asked = Asked(suite.url, stack)
        assert asked.ask("POST", "/ids/ids", put).result().status == 201
        links = [link_name("one"), link_name("two")]
        held = ids.hold(stopped.tree, {"ids": links})
        assert held is not None
        stack.callback(held.free)
        # One is being replaced, the other did not exist.
        one, coming, two = (
            suite.root / ids.link_path(stopped.tree, "ids", link, coming=coming)
            for link, coming in ((links[0], False), (links[0], True), (links[1], False))
        )
        coming.hardlink_to(one)
        two.write_bytes(b"")
        remove = json.dumps({"do": "remove", "ids": ["other", "one"]}).encode()
        find = json.dumps({"do": "find", "ids": ["two"]}).encode()
        since = time.monotonic()
        waiting = [asked.ask("POST", "/ids/ids", put) for _ in range(6)]
        waiting += [asked.ask("POST", "/ids/ids?ensure=true", put) for _ in range(6)]
        waiting += [asked.ask("POST", "/ids/by-id", remove) for _ in range(6)]
        waiting += [asked.ask("POST", "/ids/by-id", find) for _ in range(6)]
        time.sleep(0.2)
        others_are_prompt(suite)
        [found] = (
            asked.ask("POST", "/ids/by-id", find.replace(b"two", b"one")).result().json["results"]
        )
        assert found["given_id"] == "one"
        assert not any(one.done() for one in waiting)
        are_told_to_wait(waiting)
        assert time.monotonic() - since < 10.0


def test_waiting_changes_of_settings_block_no_other_queue(suite: Suite) -> None:
    """Of a queue, a log and a schedule, by more clients than threads."""
    names = (".stuck.lock", f".{LOG}stuck.lock", f".{SCHEDULE}stuck.lock")
    schedule = json.dumps({"cron": "30 3 * * *", "queue": "free", "body": "x"}).encode()
    with ExitStack() as stack, Spool(suite.root, delivers=False) as stopped:
        asked = Asked(suite.url, stack)
        for name in names:
            hold(stack, lock(stopped.tree, stopped.tree.folder(CONFIG, name), os.O_CREAT))
        waiting = []
        for _ in range(5):
            waiting += [
                asked.ask("PUT", "/stuck"),
                asked.ask("DELETE", "/stuck"),
                asked.ask("PUT", "/_logs/stuck"),
                asked.ask("PUT", "/_schedules/stuck", schedule),
            ]
        time.sleep(0.2)
        others_are_prompt(suite)
        assert [one.result() for one in waiting if one.done()] == []
        are_told_to_wait(waiting)


def test_a_failed_sync_frees_the_queue(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(group: Group) -> None:
        group.done, group.error = True, Unavailable("the disk refuses")

    with Inside(root) as server, Wire(server.url) as wire:
        server.spool.create_queue("q", fifo=True)
        monkeypatch.setattr(server.spool.syncer, "run_only", fails)
        assert wire.ask("POST", "/q/batch", body=MANY).status == 503
        monkeypatch.undo()
        assert wire.ask("POST", "/q/messages?group=g", body=b"x").status == 201
        assert len(os.listdir(root / "queues" / "q")) == 1
        assert os.listdir(root / "new") == []
