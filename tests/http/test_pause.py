"""Pauses over HTTP: real daemons on two hosts, of which one has no file events."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime

import pytest

from tests.harness.suite import Suite, eventually
from tests.http.helpers import Wire
from tests.http.test_daemons import ask, cpu_seconds

WAITERS = 200


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Suite, Suite]]:
    root = tmp_path_factory.mktemp("hosts") / "mq"
    with ExitStack() as stack:
        one = stack.enter_context(Suite(root, mq_options=["--node=one", "--processes=2"]))
        two = stack.enter_context(
            Suite(
                root,
                mq_options=["--node=two", "--watch=poll"],
                mover=False,
                reaper=False,
                logs=root.parent / "logs-two",
            )
        )
        yield one, two


def pause(suite: Suite, queue: str, paused: object) -> None:
    assert ask(suite, "PATCH", f"/{queue}", json.dumps({"paused": paused}).encode()).status == 200


def paused_queue(suite: Suite, queue: str, messages: int) -> None:
    ask(suite, "PUT", f"/{queue}")
    pause(suite, queue, True)
    for number in range(messages):
        assert ask(suite, "POST", f"/{queue}/messages", b"%d" % number).status == 201
    eventually(
        lambda: json.loads(ask(suite, "GET", f"/{queue}").body)["messages"]["ready"] == messages
    )


def test_a_resume_wakes_waiters_of_all_processes_and_hosts(hosts: tuple[Suite, Suite]) -> None:
    one, two = hosts
    paused_queue(one, "woken", 6)
    with ExitStack() as stack:
        wires = []
        for suite in (one, one, one, one, two, two):
            wires.append(stack.enter_context(Wire(suite.url)))
            # The fast path and aiohttp.
            more = "&count=1" if len(wires) % 2 else ""
            wires[-1].request("GET", f"/woken/messages?wait=20{more}")
        time.sleep(0.3)  # none may be answered before the resume
        assert ask(two, "GET", "/woken/messages?wait=0.2").status == 204
        pause(two, "woken", None)
        started = time.monotonic()
        answers = [wire.answer() for wire in wires]
        assert [answer.status for answer in answers] == [200] * 6
        assert time.monotonic() - started < 15


def test_a_pause_with_an_end_wakes_waiters(hosts: tuple[Suite, Suite]) -> None:
    one, two = hosts
    paused_queue(one, "moment", 2)
    end = time.time() + 1.5
    pause(one, "moment", datetime.fromtimestamp(end, UTC).isoformat())
    with Wire(one.url) as first, Wire(two.url) as second:
        for wire in (first, second):
            wire.request("GET", "/moment/messages?wait=20")
        for wire in (first, second):
            assert wire.answer().status == 200
            assert end - 0.01 <= time.time() < end + 15


def test_a_wait_at_a_paused_queue_ends_in_time(hosts: tuple[Suite, Suite]) -> None:
    paused_queue(hosts[0], "ends", 1)
    for suite in hosts:
        started = time.monotonic()
        assert ask(suite, "GET", "/ends/messages?wait=0.5").status == 204
        assert 0.5 <= time.monotonic() - started < 20
        # The post does not wait.
        with Wire(suite.url) as wire:
            assert wire.ask("POST", "/ends/messages", body=b"x").status == 201
            assert wire.ask("GET", "/ends/messages").status == 204


def test_deleting_a_paused_queue_ends_waits(hosts: tuple[Suite, Suite]) -> None:
    one, two = hosts
    paused_queue(one, "deleted", 1)
    with Wire(one.url) as first, Wire(two.url) as second:
        for wire in (first, second):
            wire.request("GET", "/deleted/messages?wait=20")
        assert wire.ask is not None
        time.sleep(0.2)  # they wait by then, or are refused at once
        ask(one, "DELETE", "/deleted")
        assert [wire.answer().status for wire in (first, second)] == [404, 404]


def test_waiters_at_a_paused_queue_use_no_cpu(hosts: tuple[Suite, Suite]) -> None:
    one, two = hosts
    paused_queue(one, "many", 3)
    with ExitStack() as stack:
        for suite in hosts:
            for _ in range(WAITERS):
                wire = stack.enter_context(Wire(suite.url))
                wire.request("GET", "/many/messages?wait=20")
        ask(one, "GET", "/many/messages?wait=0.5")
        shares = []
        while len(shares) < 3 and not (shares and shares[-1] <= 0.02):
            before = [cpu_seconds(suite["mq"].pid) for suite in hosts]
            started = time.monotonic()
            ask(two, "GET", "/many/messages?wait=2")
            elapsed = time.monotonic() - started
            after = [cpu_seconds(suite["mq"].pid) for suite in hosts]
            shares.append(max(a - b - 0.01 for a, b in zip(after, before, strict=True)) / elapsed)
        assert min(shares) <= 0.02, shares
        # Puts do not wake waiters.
        for _ in range(20):
            ask(one, "POST", "/many/messages", b"x")


def test_a_pause_is_shown(hosts: tuple[Suite, Suite]) -> None:
    one, _ = hosts
    paused_queue(one, "shown", 0)
    assert json.loads(ask(one, "GET", "/shown").body)["settings"]["paused"] is True
    eventually(lambda: b'fsmq_queue_paused{queue="shown"} 1.0' in ask(one, "GET", "/_metrics").body)
    problem = ask(one, "PATCH", "/shown", b'{"paused": "soon"}')
    assert (problem.status, problem.json["field"]) == (400, "paused")
