"""Limits of claims over HTTP, shared by three processes on two hosts."""

from __future__ import annotations

import json
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness.suite import PATIENCE_S, Suite, eventually
from tests.http.helpers import Wire, moment

RATE, BURST = 50, 5
STRETCH_S = 3.0
MESSAGES = 3000


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Suite]]:
    """Two processes on a host where file events arrive, and one on a host that lists folders."""
    folder: Path = tmp_path_factory.mktemp("hosts")
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                Suite(
                    folder / "mq",
                    mq_options=[f"--node={node}", f"--watch={watch}", "--peers=2"],
                    mover=node == "one",
                    reaper=node == "one",
                    logs=folder / f"{node}-logs",
                )
            )
            for node, watch in (("one", "events"), ("one-b", "events"), ("two", "poll"))
        ]


def filled(suite: Suite, queue: str, messages: int, **settings: float) -> None:
    with Wire(suite.url) as wire:
        wire.ask("PUT", f"/{queue}")
        assert wire.ask("PATCH", f"/{queue}", body=json.dumps(settings).encode()).status == 200
        for _ in range(0, messages, 100):
            many = json.dumps([{"body": "x"}] * min(messages, 100)).encode()
            assert wire.ask("POST", f"/{queue}/batch", body=many).status == 201
        eventually(
            lambda: wire.ask("GET", f"/{queue}").json["messages"]["ready"] == messages  # delivered
        )


def test_a_rate_over_three_processes(hosts: list[Suite]) -> None:
    """No interval has more claims than allowed; and one has the maximum, however long it
    takes on a busy machine."""
    filled(hosts[0], "rate", MESSAGES, max_rate=RATE, max_burst=BURST)
    times: list[float] = []
    over = threading.Event()
    threads = [
        threading.Thread(target=_take, args=(suite, over, times))
        for suite in hosts
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: max(_claims(times)) >= 0.95 * RATE * STRETCH_S, 2 * PATIENCE_S)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert max(_claims(times)) <= 1.05 * RATE * STRETCH_S
    assert max(times) - min(times) >= (len(times) - BURST) / (1.05 * RATE)


def _claims(times: list[float]) -> list[int]:
    """The claims in each interval that begins with one, after the first second's burst."""
    found = sorted(times)
    begins = found[bisect_left(found, found[0] + 1.0) :] if found else []
    return [bisect_left(found, at + STRETCH_S) - bisect_left(found, at) for at in begins] or [0]


def _take(suite: Suite, over: threading.Event, times: list[float]) -> None:
    """Claim and delete; the times of claims are those of the server."""
    with Wire(suite.url) as wire:
        while not over.is_set():
            answer = wire.ask("GET", "/rate/messages?wait=1&visibility=600")
            if answer.status == 200:
                times.append(moment(answer.headers["X-Message-Deadline"]).timestamp() - 600)
                wire.ask("DELETE", f"/rate/messages/{answer.id}")


def test_claims_at_one_time_over_three_processes(hosts: list[Suite]) -> None:
    filled(hosts[0], "narrow", 200, max_in_flight=3)
    lock, held, most = threading.Lock(), 0, 0

    def work(suite: Suite) -> None:
        nonlocal held, most
        with Wire(suite.url) as wire:
            while (answer := wire.ask("GET", "/narrow/messages?wait=3")).status == 200:
                with lock:
                    held += 1
                    most = max(most, held)
                time.sleep(0.002)  # the work
                with lock:
                    held -= 1
                assert wire.ask("DELETE", f"/narrow/messages/{answer.id}").status == 202

    threads = [threading.Thread(target=work, args=(suite,)) for suite in hosts for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 3
    with Wire(hosts[0].url) as wire:
        assert wire.ask("GET", "/narrow").json["messages"]["ready"] == 0


def test_an_ack_and_a_higher_limit_wake_on_every_host(hosts: list[Suite]) -> None:
    filled(hosts[0], "full", 100, max_in_flight=1)
    with ExitStack() as stack:
        first = stack.enter_context(Wire(hosts[0].url))
        held = first.ask("GET", "/full/messages?visibility=600")
        wires = [stack.enter_context(Wire(suite.url)) for suite in hosts]
        for wire in wires:
            wire.request("GET", "/full/messages?wait=20&visibility=600")
        assert first.ask("GET", "/full/messages?wait=0.2").status == 204
        started = time.monotonic()
        assert first.ask("DELETE", f"/full/messages/{held.id}").status == 202
        assert first.ask("PATCH", "/full", body=b'{"max_in_flight": 3}').status == 200
        assert [wire.answer().status for wire in wires] == [200] * 3
        assert time.monotonic() - started < 15
        assert first.ask("GET", "/full/messages").status == 204


def test_a_killed_process_leaks_no_permits(hosts: list[Suite]) -> None:
    filled(hosts[0], "killed", 100, max_in_flight=2)
    with Wire(hosts[1].url) as wire:
        for _ in range(2):
            assert wire.ask("GET", "/killed/messages?visibility=1").status == 200
    hosts[1].kill("mq")
    hosts[1].start("mq")
    for suite in hosts:
        with Wire(suite.url) as wire:
            assert wire.ask("GET", "/killed/messages?wait=20&count=1&visibility=0").status == 200


def test_a_new_limit_holds_for_claims_by_id(hosts: list[Suite]) -> None:
    """Their threads cannot list folders, which the first count of claims needs."""
    with Wire(hosts[0].url) as wire:
        wire.ask("PUT", "/tasks?index=true")
        ids = json.dumps([{"id": one, "body": one} for one in "abc"]).encode()
        assert wire.ask("POST", "/tasks/ids", body=ids).status == 201
        assert wire.ask("PATCH", "/tasks", body=b'{"max_in_flight": 1}').status == 200

        def claim(one: str) -> object:
            body = json.dumps({"do": "claim", "ids": [one]}).encode()
            answer = wire.ask("POST", "/tasks/by-id", body=body)
            assert answer.status in (200, 503)
            return answer.json["results"][0] if answer.status == 200 else "later"

        assert eventually(lambda: (found := claim("a")) != "later" and found)["body"] == "a"
        assert claim("b") is None
