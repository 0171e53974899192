"""Library, client, command line and programs without inotify and uvloop, as on other systems."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.missing import environment, run_without
from tests.harness.suite import Suite, eventually
from tests.http.helpers import Wire

LINUX_ONLY = ("inotify_simple", "uvloop")
# Tests that need no events.
CORE = (
    "tests/client/test_verbs.py::test_a_claimed_message_equals_that_of_the_library",
    "tests/client/test_verbs.py::test_a_claim_is_renewed_released_and_buried",
    "tests/client/test_verbs.py::test_many_are_put_in_order_and_removed",
    "tests/http/test_native.py::test_a_queue_is_created_once",
    "tests/spool/test_delivery.py::test_a_shell_user_puts_a_message_with_mv[poll]",
    "tests/cli/test_verbs.py::test_a_message_goes_through_a_pipe_byte_for_byte[root]",
)


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    """The three programs without events, so that they poll."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(LINUX_ONLY).items():
            patch.setenv(name, value)
        with Suite(tmp_path_factory.mktemp("suite") / "mq") as running:
            yield running


def run(*arguments: str) -> str:
    """Run Python with these arguments, which has to succeed; its output."""
    done = run_without(LINUX_ONLY, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_packages_cannot_be_imported() -> None:
    for package in LINUX_ONLY:
        assert "ModuleNotFoundError" in run_without(LINUX_ONLY, "-c", f"import {package}").stderr


def test_the_library_polls(root: Path) -> None:
    script = f"""
from fsmq.spool import Spool
with Spool({str(root)!r}) as spool:
    jobs = spool.queue("jobs", create=True)
    for body, delay in ((b"y", 0), (b"x", 0.3)):
        jobs.put(body, delay=delay)
        [message] = jobs.claim(wait=20)
        print(message.body.decode(), message.deliveries)
        jobs.remove(message.id)
    print(spool.polls, spool.reap(), jobs.counts().total)
    jobs.put(b"z")
    jobs.purge()
    print(jobs.counts().total)
"""
    assert run("-c", script) == "y 1\nx 1\nTrue 2 0\n0\n"


def test_watching_by_events_is_refused(root: Path) -> None:
    script = f"from fsmq.spool import Spool; Spool({str(root)!r}, watch='events')"
    error = "this system has no file events (inotify): set watch to auto or poll"
    assert error in run_without(LINUX_ONLY, "-c", script).stderr
    for program in ("mq", "mover", "reaper"):
        options = (f"--root={root}", "--watch=events")
        refused = run_without(LINUX_ONLY, "-m", f"fsmq.daemons.{program}", *options)
        assert (refused.returncode, error in refused.stderr) == (78, True)


def test_the_programs_serve_by_polling(suite: Suite) -> None:
    for name in ("mq", "mover", "reaper"):
        [started] = [event for event in suite.logs(name) if event["event"] == "started"]
        assert started["watch"] == "poll"
        loaded = Path(f"/proc/{suite[name].pid}/maps").read_text()
        assert "uvloop" not in loaded
    script = f"""
from fsmq import Client
with Client({suite.url!r}) as client:
    client.create_queue("jobs")
    jobs = client.queue("jobs")
    jobs.put(b"x")
    [message] = jobs.claim(wait=20)
    jobs.release(message.id)
    [message] = jobs.claim(wait=20)
    print(message.body.decode(), message.deliveries)
    jobs.remove(message.id)
    print(jobs.counts().total)
"""
    assert run("-c", script) == "x 2\n0\n"
    eventually(lambda: not os.listdir(suite.root / "remove"))


def test_the_command_line_works_on_a_server_and_on_a_folder(suite: Suite) -> None:
    for place in (suite.url, str(suite.root)):
        fsmq = ("-m", "fsmq.cli")
        message_id = run(*fsmq, "put", "verbs", "--body=body", "--at", place, "--create").strip()
        assert run(*fsmq, "get", "verbs", "--at", place, "--wait=20s") == "body"
        run(*fsmq, "ack", "verbs", message_id, "--at", place)
        assert "verbs" in run(*fsmq, "queue", "list", "--at", place, "--names").split()


def test_the_probe_reports_missing_events(root: Path) -> None:
    report = run_without(LINUX_ONLY, "-m", "fsmq.cli", "probe", "--root", str(root)).stdout
    assert "this system has no inotify: the folders are polled" in report


def test_the_core_of_the_suite_passes() -> None:
    done = run_without(LINUX_ONLY, "-m", "pytest", "-q", "-p", "no:cacheprovider", *CORE)
    assert done.returncode == 0, done.stdout


def test_a_waiting_fetch_ends_when_its_queue_is_deleted(suite: Suite) -> None:
    with Wire(suite.url, timeout=10) as waiting, Wire(suite.url) as other:
        other.ask("PUT", "/short")
        waiting.request("GET", "/short/messages?wait=20")
        assert other.ask("GET", "/short/messages?wait=0.05").status == 204
        assert other.ask("DELETE", "/short").status == 200
        assert waiting.answer().status == 404
