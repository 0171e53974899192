"""Stops: open requests are answered, new ones refused, and a second signal ends at once."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.suite import Suite, eventually
from tests.http.helpers import Wire


@contextlib.contextmanager
def suite_of(root: Path, *options: str) -> Iterator[Suite]:
    """A new suite with the queue ``q``, which the test stops."""
    with Suite(root, mq_options=options) as suite:
        with Wire(suite.url) as wire:
            wire.ask("PUT", "/q")
        yield suite


def waiting_fetch(suite: Suite, *, queue: str = "q") -> Wire:
    """A waiting fetch."""
    wire = Wire(suite.url)
    wire.request("GET", f"/{queue}/messages?wait=20")
    with Wire(suite.url) as other:
        assert other.ask("GET", f"/{queue}/messages?wait=0.05").status == 204
    return wire


def stopping(suite: Suite) -> None:
    """Let mq stop, and return when it has begun to."""
    suite["mq"].signal(signal.SIGTERM)
    eventually(lambda: any(e["event"] == "stopping" for e in suite.logs("mq")))


def test_an_idle_server_stops_cleanly(root: Path) -> None:
    with suite_of(root) as suite, Wire(suite.url) as idle:
        assert idle.ask("GET", "/q").status == 200
        assert suite.terminate("mq") == 0
        assert idle.is_closed()
        assert suite.logs("mq")[-1]["event"] == "stopped"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("name", ["mq", "mover", "reaper"])
def test_every_program_ends_on_a_signal(suite: Suite, name: str, number: signal.Signals) -> None:
    suite[name].signal(number)
    assert suite[name].wait() == 0
    suite.restart(name)


def test_waiting_requests_are_answered(root: Path) -> None:
    with suite_of(root) as suite:
        waiting = [waiting_fetch(suite) for _ in range(3)]
        started = time.monotonic()
        assert suite.terminate("mq") == 0
        answers = [wire.answer() for wire in waiting]
        assert time.monotonic() - started < 18
        assert [a.status for a in answers] == [204] * 3
        assert [a.headers["Connection"] for a in answers] == ["close"] * 3


def test_no_new_connection_is_accepted(root: Path) -> None:
    with suite_of(root) as suite:
        with Wire(suite.url) as half:
            half.request("POST", "/q/messages", {"Content-Length": "5"})
            half.send(b"12")
            stopping(suite)
            refused = eventually(lambda: is_refused(suite))
            half.send(b"345")
            answer = half.answer()
        assert refused
        assert suite["mq"].wait() == 0
        assert answer.status == 201  # it was under way when the signal came
        eventually(lambda: list((suite.root / "queues" / "q").iterdir()))


def is_refused(suite: Suite) -> bool:
    try:
        Wire(suite.url).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_post_on_a_kept_connection_is_the_last_one(root: Path) -> None:
    with suite_of(root) as suite, Wire(suite.url) as half, Wire(suite.url) as kept:
        half.request("POST", "/q/messages", {"Content-Length": "1"})
        # A request that is sent before the signal and read after it.
        kept.send("POST /q/messages HTTP/1.1\r\nHost: localhost\r\n")
        with Wire(suite.url) as other:
            other.ask("GET", "/")
        stopping(suite)
        kept.send("Content-Length: 1\r\n\r\nx")
        answers = [kept.answer()]
        half.send(b"y")
        answers.append(half.answer())
        assert suite["mq"].wait() == 0
        assert [a.status for a in answers] == [201, 201]
        assert [a.headers["Connection"] for a in answers] == ["close", "close"]


def test_a_stalled_upload_does_not_delay_the_stop(root: Path) -> None:
    with suite_of(root, "--shutdown-timeout=0.5") as suite, Wire(suite.url) as stalled:
        stalled.request("POST", "/q/messages", {"Content-Length": "5"})
        stalled.send(b"12")
        with Wire(suite.url) as other:
            other.ask("GET", "/")
        started = time.monotonic()
        assert suite.terminate("mq") == 0
        assert time.monotonic() - started < 9  # without the option: 10
        assert stalled.is_closed()
        assert not list((suite.root / "new").iterdir())


def test_a_second_signal_ends_at_once(root: Path) -> None:
    with suite_of(root, "--shutdown-timeout=600") as suite, Wire(suite.url) as stalled:
        stalled.request("POST", "/q/messages", {"Content-Length": "5"})
        with Wire(suite.url) as other:
            other.ask("GET", "/")
        stopping(suite)
        suite["mq"].signal(signal.SIGINT)
        assert suite["mq"].wait() == 128 + signal.SIGINT


def test_posts_during_a_stop_are_stored_or_refused(root: Path) -> None:
    """A message with answer 201 is stored, and no message is stored twice."""
    with suite_of(root) as suite:
        told: list[str] = []
        unknown: list[str] = []
        begun = threading.Barrier(9)

        def produce(worker: int) -> None:
            with Wire(suite.url) as wire:
                for n in range(100_000):
                    own = f"w{worker}-{n}"
                    if n == 5:
                        begun.wait()
                    try:
                        answer = wire.ask("POST", f"/q/messages?id={own}", {}, b"x")
                    except (OSError, AssertionError):
                        unknown.append(own)
                        return
                    if answer.status != 201:
                        assert answer.status == 503
                        assert answer.headers["Retry-After"].isdecimal()
                        return
                    told.append(own)

        workers = [threading.Thread(target=produce, args=(n,)) for n in range(8)]
        for worker in workers:
            worker.start()
        begun.wait()
        assert suite.terminate("mq") == 0
        for worker in workers:
            worker.join()
        eventually(lambda: not list((suite.root / "new").iterdir()))
        stored = {p.name for p in (suite.root / "queues" / "q").iterdir()}
        assert set(told) <= stored <= set(told) | set(unknown)
        assert len(told) >= 8 * 5


def test_sighup_reloads_the_configuration(root: Path) -> None:
    with suite_of(root) as suite:
        config = root.parent / "fsmq.toml"
        config.write_text('log-level = "info"\n')
        for name in ("mq", "mover", "reaper"):
            suite[name].options.append(f"--config={config}")
            suite.restart(name)
        config.write_text('log-level = "debug"\n')
        for name in ("mq", "mover", "reaper"):
            suite[name].signal(signal.SIGHUP)
        with Wire(suite.url) as wire:
            for n in range(20):
                answer = wire.ask("POST", "/q/messages?delay=0.01", {}, b"%d" % n)
                assert answer.status == 201
                answer = wire.ask("GET", "/q/messages?wait=20")
                assert answer.body == b"%d" % n
                assert wire.ask("DELETE", f"/q/messages/{answer.id}").status == 202
        for name in ("mover", "reaper"):
            eventually(lambda n=name: [e for e in suite.logs(n) if e.get("level") == "debug"])
        assert suite["mq"].is_running()


def test_sighup_with_a_broken_configuration_changes_nothing(root: Path) -> None:
    with suite_of(root) as suite:
        config = root.parent / "fsmq.toml"
        config.write_text("")
        for name in ("mq", "mover", "reaper"):
            suite[name].options.append(f"--config={config}")
            suite.restart(name)
        config.write_text("this is = not [ toml")
        for name in ("mq", "mover", "reaper"):
            suite[name].signal(signal.SIGHUP)
            eventually(lambda n=name: [e for e in suite.logs(n) if e.get("level") == "error"])
        with Wire(suite.url) as wire:
            wire.ask("POST", "/q/messages", {}, b"still served")
            assert wire.ask("GET", "/q/messages?wait=20").body == b"still served"
        assert all(suite[name].is_running() for name in ("mq", "mover", "reaper"))
