"""The daemons as programs: options, crashes, exit codes and idleness."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from tests.harness.suite import Suite, eventually
from tests.http.helpers import Answer, Wire, moment


@contextmanager
def suite_of(root: Path, *, mover: bool = True, more: tuple[str, ...] = ()) -> Iterator[Suite]:
    """A new suite with the queue ``q``; ``more`` are options of all three programs."""
    suite = Suite(root, mover=mover)
    for name in ("mq", "mover", "reaper"):
        if name != "mover" or mover:
            suite[name].options.extend(more)
    with suite:
        ask(suite, "PUT", "/q")
        yield suite


def ask(suite: Suite, method: str, path: str, body: bytes = b"") -> Answer:
    with Wire(suite.url) as wire:
        return wire.ask(method, path, {}, body)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# -- one program each ------------------------------------------------------------------------------


def test_movers_and_a_reaper_with_one_folder_each(root: Path) -> None:
    with suite_of(root, mover=False) as suite:
        suite.terminate("reaper")
        into = f"--destination={root / 'queues'}"
        suite.add("deliver", "mover", [f"--source={root / 'new'}", into])
        suite.add("redeliver", "mover", [f"--source={root / 'delay'}", into, "--delay=0.3"])
        suite.add("unlink", "reaper", [f"--source={root / 'remove'}"])
        for name in ("deliver", "redeliver", "unlink"):
            suite.start(name)
        posted = ask(suite, "POST", "/q/messages", b"around").id
        claims = [
            ask(suite, "GET", f"/q/messages?wait=20&visibility={seconds}") for seconds in (0, 60)
        ]
        assert [claim.id for claim in claims] == [posted] * 2
        # --delay holds even if the claim ends at once.
        first, second = (moment(claim.headers["X-Message-Deadline"]) for claim in claims)
        assert second - first - timedelta(seconds=60) >= timedelta(seconds=0.2)
        assert ask(suite, "DELETE", f"/q/messages/{posted}").status == 202
        eventually(lambda: not names(root / "remove"))


def test_a_mover_of_new_messages_recovers_an_unfinished_put(root: Path) -> None:
    with suite_of(root, mover=False) as suite:
        (root / "new" / ".q:left-by-a-crash:c459294f").write_bytes(b"whole")
        into = f"--destination={root / 'queues'}"
        suite.add("deliver", "mover", [f"--source={root / 'new'}", into])
        suite.start("deliver")
        eventually((root / "queues" / "q" / "left-by-a-crash").exists)
        assert suite.terminate("deliver") == 0


def test_a_mover_between_any_two_folders(tmp_path: Path) -> None:
    source, destination = tmp_path / "in", tmp_path / "out"
    for folder in (source, destination, destination / "jobs"):
        folder.mkdir()
    (source / "jobs:early").write_bytes(b"1")
    suite = Suite(tmp_path / "unused", mover=False, reaper=False)
    suite.add("leg", "mover", [f"--source={source}", f"--destination={destination}"])
    try:
        suite.start("leg")
        eventually((destination / "jobs" / "early").exists)
        (source / "jobs:late").write_bytes(b"2")
        eventually((destination / "jobs" / "late").exists)
        (source / "none:x").write_bytes(b"3")
        eventually(lambda: any(e.get("file") == "none:x" for e in suite.logs("leg")))
        (destination / "none").mkdir()
        eventually((destination / "none" / "x").exists)
        assert not names(source)
        assert names(destination) == ["jobs", "none"]
        assert suite.terminate("leg") == 0
    finally:
        suite.close()


def test_a_mover_delays_messages(tmp_path: Path) -> None:
    source, destination = tmp_path / "in", tmp_path / "out"
    for folder in (source, destination, destination / "jobs"):
        folder.mkdir()
    suite = Suite(tmp_path / "unused", mover=False, reaper=False)
    suite.add("leg", "mover", [f"--source={source}", f"--destination={destination}", "--delay=0.5"])
    try:
        suite.start("leg")
        (source / "jobs:x").write_bytes(b"1")
        eventually((destination / "jobs" / "x").exists)
        moved = (destination / "jobs" / "x").stat()
        assert moved.st_ctime - moved.st_mtime >= 0.45  # from the write to the rename
    finally:
        suite.close()


def test_a_reaper_of_any_folder(tmp_path: Path) -> None:
    rubbish = tmp_path / "rubbish"
    (rubbish / "q:old-queue" / "deep").mkdir(parents=True)
    (rubbish / "q:old-queue" / "m1").touch()
    (rubbish / "q:m2").touch()
    (rubbish / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    suite = Suite(tmp_path / "unused", mover=False, reaper=False)
    suite.add("unlink", "reaper", [f"--source={rubbish}"])
    try:
        suite.start("unlink")
        eventually(lambda: not names(rubbish))
        (rubbish / "q:m3").touch()
        eventually(lambda: not names(rubbish))
        assert names(tmp_path / "kept") == ["file"]
    finally:
        suite.close()


# -- concurrency -----------------------------------------------------------------------------------


def test_three_movers_on_one_tree_do_no_harm(root: Path) -> None:
    with suite_of(root) as suite:
        for name in ("second", "third"):
            suite.add(name, "mover", [f"--root={root}"])
            suite.start(name)
        total = 90
        with Wire(suite.url) as wire:
            posted = [wire.ask("POST", "/q/messages", {}, b"x").id for _ in range(total)]
            fetched = [
                wire.ask("GET", "/q/messages?wait=20&visibility=600").id for _ in range(total)
            ]
        assert sorted(fetched) == posted
        for name in ("mover", "second", "third"):
            assert suite.terminate(name) == 0
            # The result of the probe depends on the machine.
            said = [e for e in suite.logs(name) if e["event"] != "probe"]
            assert not [e for e in said if e["level"] in ("error", "warning")]


def test_mq_alone_is_responsive(root: Path) -> None:
    """The service needs mq only; the others catch up when they start."""
    with suite_of(root) as suite:
        suite.kill("mover")
        suite.kill("reaper")
        at_once = ask(suite, "POST", "/q/messages", b"at once").id
        assert ask(suite, "GET", "/q/messages?visibility=600").id == at_once
        posted = ask(suite, "POST", "/q/messages?delay=0.1", b"patient").id
        assert ask(suite, "GET", "/q/messages?wait=0.5").status == 204
        assert ask(suite, "GET", f"/q/messages/{posted}").headers["X-Message-State"] != "ready"
        removed = ask(suite, "POST", "/q/messages", b"unwanted").id
        assert ask(suite, "DELETE", f"/q/messages/{removed}").status == 202
        suite.restart("mover")
        assert ask(suite, "GET", "/q/messages?wait=20").id == posted
        assert names(root / "remove") == [f"q:{removed}"]
        suite.restart("reaper")
        eventually(lambda: not names(root / "remove"))


def test_polling_serves_as_events_do(root: Path) -> None:
    with suite_of(root, more=("--watch=poll", "--poll-interval=0.05")) as suite:
        posted = ask(suite, "POST", "/q/messages", b"polled").id
        assert ask(suite, "GET", "/q/messages?wait=20&visibility=0.2").id == posted
        assert ask(suite, "GET", "/q/messages?wait=20&visibility=60").id == posted
        assert ask(suite, "DELETE", f"/q/messages/{posted}").status == 202
        eventually(lambda: not names(root / "remove"))
        assert ask(suite, "POST", "/q/messages?delay=0.3", b"later").status == 201
        assert ask(suite, "GET", "/q/messages?wait=20").body == b"later"


def test_a_message_waits_for_its_queue_to_be_created(root: Path) -> None:
    with suite_of(root) as suite:
        (root / "draft").write_bytes(b"early")
        (root / "draft").rename(root / "new" / "unborn:m")
        eventually(lambda: any(e.get("file") == "unborn:m" for e in suite.logs("mover")))
        assert ask(suite, "PUT", "/unborn").status == 201
        assert ask(suite, "GET", "/unborn/messages?wait=20").body == b"early"


# -- crashes ---------------------------------------------------------------------------------------


def test_acknowledged_posts_survive_kills(root: Path) -> None:
    with suite_of(root) as suite:
        told: set[str] = set()
        tried: set[str] = set()
        over = threading.Event()

        def produce(worker: int) -> None:
            n = 0
            while not over.is_set():
                try:
                    with Wire(suite.url) as wire:
                        while not over.is_set():
                            n += 1
                            own = f"w{worker}-{n}"
                            tried.add(own)
                            if wire.ask("POST", f"/q/messages?id={own}", {}, b"x").status == 201:
                                told.add(own)
                except (OSError, AssertionError):
                    continue

        workers = [threading.Thread(target=produce, args=(n,)) for n in range(4)]
        for worker in workers:
            worker.start()
        for round_ in range(4):
            many = len(told) + 40
            eventually(lambda enough=many: len(told) >= enough)
            suite.restart("mq")
            suite.restart("mover" if round_ % 2 else "reaper")
        over.set()
        for worker in workers:
            worker.join()
        stored: list[str] = []

        def are_all_there() -> bool:
            stored.extend(ready_ids(suite))
            return told <= set(stored)

        eventually(are_all_there)
        assert len(set(stored)) == len(stored)
        assert set(stored) <= tried


def ready_ids(suite: Suite) -> list[str]:
    """The ids of messages that can be fetched now."""
    answer = ask(suite, "GET", "/q/messages?visibility=600&count=1000")
    if answer.status != 200:
        return []
    return [message["id"] for message in answer.json["messages"] if message["body"] == "x"]


def test_a_killed_mover_loses_no_message_and_no_timer(root: Path) -> None:
    with suite_of(root) as suite:
        ids = set()
        with Wire(suite.url) as wire:
            for _ in range(5):
                ids |= {wire.ask("POST", "/q/messages", {}, b"x").id for _ in range(15)}
                ids.add(wire.ask("POST", "/q/messages?delay=0.2", {}, b"x").id)
                suite.kill("mover")
                ids |= {wire.ask("POST", "/q/messages", {}, b"x").id for _ in range(10)}
                suite.restart("mover")
            fetched = [wire.ask("GET", "/q/messages?wait=20&visibility=600").id for _ in ids]
        assert sorted(fetched) == sorted(ids)


def test_a_claim_ends_after_all_programs_were_killed(root: Path) -> None:
    with suite_of(root) as suite:
        posted = ask(suite, "POST", "/q/messages", b"held").id
        assert ask(suite, "GET", "/q/messages?wait=20&visibility=1").id == posted
        for name in ("mq", "mover", "reaper"):
            suite.kill(name)
        for name in ("mq", "mover", "reaper"):
            suite.restart(name)
        again = ask(suite, "GET", "/q/messages?wait=20")
        assert (again.id, again.headers["X-Message-Deliveries"]) == (posted, "2")


def test_unfinished_puts_are_completed_or_dropped(root: Path) -> None:
    with suite_of(root) as suite:
        suite.kill("mq")
        suite.kill("mover")
        (root / "new" / ".q:whole:c459294f").write_bytes(b"whole")
        (root / "new" / ".q:torn:c459294f").write_bytes(b"to")
        suite.restart("mq")
        suite.restart("mover")
        assert ask(suite, "GET", "/q/messages?wait=20").body == b"whole"
        assert ask(suite, "GET", "/q/messages?wait=0.2").status == 204
        assert ask(suite, "GET", "/q/messages/torn").status == 404


# -- exit codes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "options", "code", "said"),
    [
        ("mq", ["--root={file}"], 78, "file"),
        ("mq", ["--root={root}", "--port={taken}"], 78, "in use"),
        ("mq", ["--root={root}", "--address=192.0.2.1", "--port=0"], 78, "192.0.2.1"),
        ("mq", ["--root={root}", "--port=70000"], 2, "port"),
        ("mq", ["--root={root}", "--no-such-option"], 2, "no-such-option"),
        ("mq", ["--root={root}", "--sync=maybe"], 2, "maybe"),
        ("mover", ["--root={file}"], 78, "file"),
        ("mover", [], 2, "--root"),
        ("mover", ["--source={root}"], 2, "destination"),
        ("mover", ["--source={root}", "--destination={root}"], 2, "same folder"),
        ("mover", ["--source={root}", "--destination={file}"], 78, "not a folder"),
        ("mover", ["--source={root}", "--destination=/dev/shm"], 78, "filesystems"),
        ("reaper", ["--root={file}"], 78, "file"),
        ("reaper", ["--source={file}"], 78, "not a folder"),
        ("reaper", ["--source={root}", "--root={root}"], 2, "--root"),
    ],
)
def test_exit_codes(tmp_path: Path, program: str, options: list[str], code: int, said: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "root").mkdir()
    if "/dev/shm" in str(options) and not on_other_filesystem(tmp_path):
        pytest.skip("there is no second filesystem at /dev/shm")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        values = {
            "file": tmp_path / "file",
            "root": tmp_path / "root",
            "taken": taken.getsockname()[1],
        }
        suite = Suite(tmp_path / "unused", mover=False, reaper=False)
        started = suite.add("it", program, [option.format(**values) for option in options])
        try:
            started.start(until_ready=False)
            assert started.wait() == code
            assert said in str(suite.logs("it"))
        finally:
            suite.close()


def on_other_filesystem(path: Path) -> bool:
    return os.path.isdir("/dev/shm") and os.stat("/dev/shm").st_dev != path.stat().st_dev


# -- idleness --------------------------------------------------------------------------------------


def cpu_seconds(pid: int) -> float:
    """The system and user time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("watch", ["events", "poll"])
def test_idle_programs_use_no_cpu(root: Path, watch: str) -> None:
    with suite_of(root, more=(f"--watch={watch}",)) as suite:
        # A claim, a delay, a ready message and a waiting request.
        ask(suite, "POST", "/q/messages?delay=300", b"x")
        ask(suite, "POST", "/q/messages", b"x")
        ask(suite, "GET", "/q/messages?wait=20&visibility=300")
        ask(suite, "PUT", "/empty")
        ask(suite, "GET", "/empty/messages?wait=1")  # the work after the start is done
        # Ticks of a hundredth of a second are coarse, and other programs' work is counted to
        # whom it interrupts: one quiet stretch of six proves that nobody has to work.
        stretches = []
        while len(stretches) < 6 and not (stretches and stretches[-1] <= 0.01):
            stretches.append(busiest_while_waiting(suite, 4.0))
    assert min(stretches) <= 0.01, stretches


def busiest_while_waiting(suite: Suite, seconds: float) -> float:
    """The CPU usage of the busiest of the three while a client waits."""
    pids = [suite[name].pid for name in ("mq", "mover", "reaper")]
    before = [cpu_seconds(pid) for pid in pids]
    ask(suite, "GET", f"/empty/messages?wait={seconds}")
    # One tick more is rounding.
    return max(cpu_seconds(pid) - b - 0.01 for pid, b in zip(pids, before, strict=True)) / seconds
