"""Without free instances or watches of inotify, programs list folders and report it.

The limits are those of a new user namespace.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from fsmq import Client
from tests.harness.forkserver import environment
from tests.harness.rounds import part_of
from tests.harness.suite import HOME, Suite, eventually
from tests.http.stock import Stored

LIMITS = Path("/proc/sys/user")
INSTANCES, WATCHES = "max_inotify_instances", "max_inotify_watches"
# The delay of a listing on a busy machine.
SLACK_S = 10.0
PROGRAMS = ("mq", "mover", "reaper")


def limited(**limits: int) -> list[str]:
    """The beginning of a command line that runs with limits."""
    set_all = [f"echo {value} > {LIMITS}/{name}" for name, value in limits.items()]
    return ["unshare", "-Ur", "sh", "-c", " && ".join([*set_all, 'exec "$0" "$@"'])]


def works() -> bool:
    command = [*limited(**{INSTANCES: 0}), "cat", f"{LIMITS}/{INSTANCES}"]
    done = subprocess.run(command, capture_output=True, check=False)
    return done.stdout == b"0\n"


pytestmark = pytest.mark.skipif(not works(), reason="needs user namespaces")


@contextmanager
def suite_with(root: Path, *options: str, **limits: int) -> Iterator[Suite]:
    """A suite whose programs share these limits."""
    suite = Suite(root, mq_options=["--log-level=debug", *options])
    holder = subprocess.Popen([*limited(**limits), "sleep", "infinity"], stdout=subprocess.PIPE)
    try:
        # Now the namespace has its limits.
        eventually(lambda: Path(f"/proc/{holder.pid}/comm").read_text() == "sleep\n")
        for name in PROGRAMS:
            suite[name].under = ["nsenter", f"--target={holder.pid}", "--user"]
        with suite:
            yield suite
    finally:
        holder.kill()
        holder.wait()


def ready(suite: Suite) -> Any:
    with urllib.request.urlopen(f"{suite.url}/_health/ready", timeout=30) as answer:
        return json.load(answer)


def whole_life(client: Client, name: str) -> None:
    """Use features that need events, or listings, of all programs."""
    jobs = client.queue(name, create=True)
    jobs.configure(visibility_timeout=1)
    jobs.put(b"delayed", delay=0.2)
    [message] = jobs.claim(wait=20)
    assert message.body == b"delayed"
    [again] = jobs.claim(wait=20)  # its claim has ended
    assert (again.body, again.deliveries) == (b"delayed", 2)
    jobs.ack(again)
    jobs.put(b"x")
    jobs.purge()
    assert jobs.counts().total == 0


def unexpected(suite: Suite) -> list[str]:
    """Unexpected warnings and errors of the programs."""
    good = ("probe", "folders cannot be watched and are listed instead")
    events = [event for name in PROGRAMS for event in suite.logs(name)]
    wrong = [e for e in events if e.get("level") in ("warning", "error", None)]
    return [str(event) for event in wrong if event["event"] not in good]


@pytest.mark.parametrize("number", part_of([0, 1, 3, 5], list(range(11))))
@pytest.mark.parametrize("kind", [INSTANCES, WATCHES])
def test_all_programs_work_with_few_watches_or_instances(
    root: Path, kind: str, number: int
) -> None:
    with suite_with(root, **{kind: number}) as suite, Client(suite.url) as client:
        whole_life(client, "jobs")
        limit = f"fs.inotify.{kind.replace('inotify_', 'user_')}"
        if number < 4:
            eventually(lambda: ready(suite) == {"ready": True, "short": [limit]})
        for name in PROGRAMS:
            said = [e for e in suite.logs(name) if e["event"].startswith("folders cannot")]
            assert len(said) <= 1, said
        assert unexpected(suite) == []
        assert not (root / "remove").exists() or eventually(lambda: not os.listdir(root / "remove"))


def test_limits_groups_and_sizes_work_with_few_watches(root: Path) -> None:
    """They depend on other folders than that of the queue."""
    with suite_with(root, **{WATCHES: 6}) as suite, Client(suite.url) as client:
        for number in range(8):
            few = client.queue(f"few{number}", create=True)
            few.configure(max_in_flight=1, visibility_timeout=30)
            few.put_many([b"a", b"b"])
            [one] = few.claim(5, wait=20)
            assert few.claim(5) == []
            few.ack(one)
            [two] = few.claim(5, wait=20)
            assert {one.body, two.body} == {b"a", b"b"}
            order = f"order{number}.fifo"
            client.create_queue(order, fifo=True)
            ordered = client.queue(order)
            for body in (b"1", b"2", b"3"):
                ordered.put(body, group="g")
            came: list[bytes] = []
            while len(came) < 3:
                messages = ordered.claim(3, wait=20)
                assert messages
                came += [message.body for message in messages]
                ordered.ack(*messages)
            assert came == [b"1", b"2", b"3"]
            size = f"{suite.url}/queue/1/few{number}/size"
            with urllib.request.urlopen(size, timeout=30) as answer:
                assert json.load(answer) == 1
        assert unexpected(suite) == []


def lower(program_pid: int, **limits: int) -> None:
    """Set the limits of the namespace of a program."""
    enter = ["nsenter", f"--target={program_pid}", "--user", "sh", "-c"]
    for name, value in limits.items():
        subprocess.run([*enter, f"echo {value} > {LIMITS}/{name}"], check=True)


def test_running_programs_survive_a_change_of_the_limits(root: Path) -> None:
    many = 1000
    with suite_with(root, **{INSTANCES: many, WATCHES: many}) as suite, Client(suite.url) as client:
        whole_life(client, "before")
        assert ready(suite) == {"ready": True}
        lower(suite["mq"].pid, **{INSTANCES: 0, WATCHES: 0})
        whole_life(client, "during")
        client.queue("used", create=True).claim()
        limit = "fs.inotify.max_user_watches"
        eventually(lambda: ready(suite).get("short") == [limit])
        # The folders of the layout need new watches as well.
        for name in ("new", "delay", "queues"):
            (root / name).rename(root / f"{name}.old")
            (root / f"{name}.old").rename(root / name)
        whole_life(client, "moved")
        lower(suite["mq"].pid, **{INSTANCES: many, WATCHES: many})
        whole_life(client, "after")
        eventually(lambda: ready(suite) == {"ready": True})
        assert unexpected(suite) == []


def watches(suite: Suite) -> int:
    """The number of watches of the programs."""
    found = 0
    for name in PROGRAMS:
        for info in Path(f"/proc/{suite[name].pid}/fdinfo").iterdir():
            with suppress(OSError):
                found += info.read_text().count("inotify wd:")
    return found


def test_watched_queues_stay_watched_when_the_limit_is_reached(root: Path) -> None:
    """Messages arrive by events or by the next listing; the limit is logged once."""
    interval = 4.0
    with (
        suite_with(root, f"--poll-interval={interval}", **{WATCHES: 1000}) as suite,
        Client(suite.url) as client,
    ):

        def arrives_after(name: str) -> float:
            """The time until a waiting client gets a message of a shell."""
            queue = client.queue(name)
            with ThreadPoolExecutor() as pool:
                waiting = pool.submit(queue.claim, wait=20)
                eventually(lambda: waits(suite) == 1)
                started = time.monotonic()
                Stored(b"x").place(root / "queues" / name)
                [message] = waiting.result()
                took = time.monotonic() - started
            queue.ack(message)
            return took

        def reported() -> list[dict[str, Any]]:
            events = suite.logs("mq")
            return [event for event in events if event["event"].startswith("folders cannot")]

        for name in ("one", "two"):
            client.create_queue(name)
            arrives_after(name)
        # No further watch is possible.
        eventually(lambda: len({watches(suite) for _ in range(3)}) == 1)
        lower(suite["mq"].pid, **{WATCHES: watches(suite)})
        assert reported() == []
        later = ("three", "four", "five")
        for name in later:
            client.create_queue(name)
            assert arrives_after(name) < interval + SLACK_S
        for name in ("one", "two"):
            assert min(arrives_after(name) for _ in range(3)) < interval / 4, "still by events"
        eventually(
            lambda: ready(suite) == {"ready": True, "short": ["fs.inotify.max_user_watches"]}
        )
        assert len(reported()) == 1
        lower(suite["mq"].pid, **{WATCHES: 1000})
        eventually(lambda: min(map(arrives_after, later)) < interval / 4, patience=60)
        assert len(reported()) == 1
        assert unexpected(suite) == []


def waits(suite: Suite) -> int:
    with urllib.request.urlopen(f"{suite.url}/_cluster", timeout=30) as answer:
        return int(json.load(answer)["waiting"])


def test_programs_that_require_events_refuse_to_start(root: Path) -> None:
    command = [*limited(**{INSTANCES: 0}), sys.executable, "-m"]
    for program in ("mq", "mover", "reaper"):
        done = subprocess.run(
            [*command, f"fsmq.daemons.{program}", f"--root={root}", "--watch=events"]
            + (["--port=0"] if program == "mq" else []),
            cwd=HOME,
            env=environment(),
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == 78, done.stderr
        assert b"fs.inotify.max_user_instances" in done.stderr


@pytest.mark.parametrize("kind", [INSTANCES, WATCHES])
def test_every_command_works_without_events(root: Path, kind: str) -> None:
    def fsmq(*arguments: str, code: int = 0) -> str:
        command = [*limited(**{kind: 0}), sys.executable, "-m", "fsmq.cli", *arguments]
        done = subprocess.run(
            command,
            cwd=HOME,
            env=environment(FSMQ_AT=str(root)),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    limit = f"fs.inotify.{kind.replace('inotify_', 'user_')}"
    fsmq("put", "jobs", "--create", "--body", "one")
    fsmq("put", "jobs", "--body", "two", "--delay", "200ms")
    assert "jobs" in fsmq("queue", "list")
    assert "one" in fsmq("get", "jobs", "--wait=20", "--ack")
    waited = fsmq("get", "jobs", "--wait=20", "--ack")
    assert "two" in waited
    assert waited.count(limit) == 1
    assert limit in fsmq("top", "--once", "--interval=100ms")
    assert limit in fsmq("doctor", code=1)
    fsmq("queue", "purge", "jobs", "--yes")


@pytest.mark.parametrize("kind", [INSTANCES, WATCHES])
@pytest.mark.parametrize("recursive", [True, False])
def test_a_watched_folder_is_listed_without_events(
    root: Path, tmp_path: Path, kind: str, recursive: bool
) -> None:
    inbox = tmp_path / "inbox"
    (inbox / "deep").mkdir(parents=True)
    errors = tmp_path / "errors"
    more = ["--recursive"] if recursive else []
    with errors.open("wb") as file:
        drop = subprocess.Popen(
            [
                *limited(**{kind: 0}),
                sys.executable,
                "-m",
                "fsmq.cli",
                "put",
                "jobs",
                "--create",
                "--watch",
                str(inbox),
                *more,
            ],
            cwd=HOME,
            env=environment(FSMQ_AT=str(root)),
            stdout=subprocess.DEVNULL,
            stderr=file,
        )
    try:
        eventually(lambda: f"max_user_{kind.rpartition('_')[2]}" in errors.read_text())
        (inbox / "one").write_text("1")
        eventually(lambda: (inbox / "done" / "one").exists(), patience=10)
        if recursive:
            (inbox / "deep" / "two").write_text("2")
            eventually(lambda: (inbox / "done" / "deep" / "two").exists(), patience=10)
        assert errors.read_text().count("fs.inotify") == 1
    finally:
        drop.send_signal(signal.SIGTERM)
        assert drop.wait(30) == 0
