"""`fsmq doctor`, `top` and the completion of shells."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from fsmq.cli.place.place import open_place
from fsmq.cli.queues import sampling
from tests.cli.helpers import FSMQ, Command, completed, environment
from tests.harness.mounts import Mount, mount  # noqa: F401 (a fixture)
from tests.harness.suite import Suite, eventually


def findings(command: Command, code: int | None = None) -> dict[str, tuple[str, str]]:
    """The findings of the doctor by name, without those on the disk of this machine."""
    done = command("doctor", "--json", code=code)
    machine = ("filesystem", "space", "inodes", "access")
    found = json.loads(done.stdout)["findings"]
    return {f["name"]: (f["health"], f["text"]) for f in found if f["name"] not in machine}


@pytest.fixture
def alone(alone: Command) -> Command:
    """Its queue has dead letters, so that the doctor finds nothing to note."""
    alone("queue", "config", "jobs", "max_deliveries=5", "dead_letter_queue=jobs.dead")
    return alone


def test_the_doctor_finds_three_running_programs(suite: Suite) -> None:
    Command(suite.root)("queue", "create", "jobs")
    found = findings(Command(suite.root))
    assert {found[name][0] for name in ("mq", "mover", "reaper", "rename", "queues")} == {"ok"}
    assert not {"delivery", "timers"} & set(found)
    assert list((suite.root / "new").iterdir()) == []


def test_the_doctor_asks_a_server_whether_it_is_ready(tmp_path: Path) -> None:
    with Suite(tmp_path / "mq", reaper=False) as running:
        command = Command(running.url)
        assert findings(command, 0)["ready"][0] == "ok"
        running.terminate("mover")
        health, text = findings(command, 2)["ready"]
        assert health == "error"
        assert "mover" in text


def programs_of(found: dict[str, tuple[str, str]]) -> list[str]:
    """The health of mq, mover and reaper."""
    return [found[name][0] for name in ("mq", "mover", "reaper")]


def test_the_doctor_reports_missing_programs(tmp_path: Path) -> None:
    with Suite(tmp_path / "mq", mover=False, reaper=False) as half:
        command = Command(half.root)
        (half.root / "queues" / "jobs").mkdir()
        assert programs_of(findings(command, 2)) == ["ok", "error", "warning"]
        for folder in ("new", "remove"):
            assert list((half.root / folder).iterdir()) == []


def test_the_doctor_reports_killed_programs(tmp_path: Path) -> None:
    with Suite(tmp_path / "mq") as running:
        command, root = Command(running.root), running.root
        eventually(lambda: len(list((root / "metrics").glob("*:*:*"))) == 3)
        for name in ("mover", "reaper"):
            running.kill(name)
        assert programs_of(findings(command, 2)) == ["ok", "error", "error"]
        running.kill("mq")
        old = time.time() - 60
        for beat in (root / "peers").glob("[!.]*"):
            os.utime(beat, (old, old))
        found = findings(command, 2)
        assert programs_of(found) == ["error", "error", "error"]
        assert "has run on this spool" in found["mq"][1]


def test_the_doctor_only_notes_programs_that_never_ran(alone: Command) -> None:
    assert programs_of(findings(alone)) == ["note", "note", "note"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small filesystem")
def test_a_full_disk_is_an_error(root: Path, mount: Mount) -> None:  # noqa: F811
    mount(root, "size=4m,nr_inodes=1000")
    command = Command(root)
    command("queue", "create", "jobs", "max_deliveries=5", "dead_letter_queue=jobs.dead")
    with pytest.raises(OSError, match="No space"):
        (root / "ballast").write_bytes(b"\0" * 5_000_000)
    done = command("doctor", code=2)
    assert "error    space: 0 B of 4.0 MiB are free" in done.stdout.decode()


def kept_back(fsmq: Command, queue: str) -> list[str]:
    """The limits that `queue show` shows as holding claims back."""
    lines = fsmq.out("queue", "show", queue).splitlines()
    return [line.split(maxsplit=2)[2] for line in lines if line.startswith("kept back")]


def test_the_doctor_reports_settings_that_limit_queues(alone: Command, root: Path) -> None:
    alone("queue", "config", "jobs", "visibility_timeout=0.5", "max_depth=2", "default_delay=1h")
    alone("queue", "config", "jobs", "retention=60")
    alone("put", "jobs", "--lines", stdin=b"a\nb\n")
    alone("put", "jobs.dead", "--body=x")
    (root / "new" / "lost:a").touch()
    alone("queue", "create", "calls", "max_in_flight=1", "max_rate=5")
    alone("queue", "config", "calls", "max_deliveries=5", "dead_letter_queue=jobs.dead")
    alone("put", "calls", "--lines", stdin=b"a\nb\n")
    alone("get", "calls", "--wait=10s")
    assert alone.out("queue", "list", "calls").splitlines()[0].endswith("LIMITS")
    assert alone.out("queue", "list", "calls").splitlines()[1].endswith("1 at a time, 5/s")
    assert kept_back(alone, "calls") == ["1 of 1 in flight", "at most 5 a second"]
    alone("queue", "pause", "jobs")
    assert kept_back(alone, "jobs") == ["paused"]
    alone("queue", "resume", "jobs")
    assert kept_back(alone, "jobs") == []
    alone("queue", "create", "endless")
    (root / "config" / "endless.json").write_text("{")
    done = alone("doctor", code=2)
    shown = done.stdout.decode()
    for line in (
        "warning  depth: jobs holds 2 of 2 messages",
        "warning  visibility: claims of jobs last 0.5 s",
        "note     limits: calls has 1 of 1 in flight",
        "note     limits: calls gives out 5 messages a second",
        "warning  retention: messages of jobs expire before",
        "warning  dead letters: 1 dead letter in jobs.dead",
        "warning  undeliverable: 1 message wait for the queue lost",
        "         → fsmq queue create lost",
        "error    settings: the settings of endless cannot be parsed",
        "note     dead letters: a message that always fails returns forever in endless",
    ):
        assert line in shown, shown


@pytest.mark.parametrize("place", ["root", "url"])
def test_top_shows_rates_and_counts(suite: Suite, place: str) -> None:
    command = Command(getattr(suite, place))
    server = Command(suite.url)
    busy = f"busy-{place}"
    command("queue", "create", busy)
    process = command.start("top", "--json", "-d", "1", stdout=subprocess.PIPE)
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    server("put", busy, "--lines", stdin=b"a\nb\nc\n")
    server("get", busy, "--wait=9", "--ack")
    has_in = has_out = False
    ready = 0
    # Samples are at least a second apart, and mq reports once a second.
    while not (has_in and has_out and ready == 2):
        sample = json.loads(process.stdout.readline())
        for row in (row for row in sample["queues"] if row["queue"] == busy):
            has_in |= (row["in_per_second"] or 0) > 0
            has_out |= (row["out_per_second"] or 0) > 0
            ready = row["messages"]["ready"]
    process.terminate()
    process.communicate()
    [before] = [row for row in first["queues"] if row["queue"] == busy]
    assert before["in_per_second"] is None


@pytest.mark.parametrize("place", ["root", "url"])
def test_rates_use_the_time_between_two_samples(
    suite: Suite, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(sampling, "time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))
    server, busy = Command(suite.url), f"measured-{place}"
    server("queue", "create", busy)
    counted = [0.0, 0.0]
    with open_place(str(getattr(suite, place))) as opened:
        sampler = sampling.Sampler(opened, 1.0)
        sampler.sample()
        server("put", busy, "--lines", stdin=b"a\nb\nc\n")
        server("get", busy, "--wait=9", "--ack")

        def all_are_counted() -> bool:
            now[0] += 2.0
            for row in (row for row in sampler.sample()[0] if row.queue == busy):
                for which, rate in enumerate((row.in_rate, row.out_rate)):
                    counted[which] += 2.0 * (rate or 0.0)
            return counted[0] >= 2.9 and counted[1] >= 0.9

        eventually(all_are_counted)
    assert counted == pytest.approx([3, 1])


def test_top_once_fits_eighty_columns(alone: Command) -> None:
    alone("queue", "create", "q" * 100)
    alone("put", "jobs", "--body=x")
    title, total, head, *rows = alone.out("top", "--once", "-d0.2").splitlines()
    assert title.startswith("fsmq /")
    assert total == "3 queues: 1 ready, 0 in flight, 0 delayed, 0 new"
    assert head.split()[-1] == "OLDEST"
    assert max(map(len, (title, total, head, *rows))) <= 80
    assert [row.split()[0] for row in rows] == ["jobs", "jobs.dead", "q" * 20 + "…"]
    assert b"--once" in alone("top", code=2).stderr


def test_top_on_a_terminal_sorts_and_quits(alone: Command) -> None:
    alone("put", "jobs.dead", "--body=x")
    alone("get", "jobs.dead")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(FSMQ[0], [*FSMQ, "top"], environment(FSMQ_AT=alone.at, TERM="xterm"))
    shown = b""

    def until(text: bytes) -> None:
        nonlocal shown
        while text not in re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b" ", shown):
            shown += os.read(terminal, 65536)
        shown = b""

    until(b"q quit")
    os.write(terminal, b"s")
    until(b"ready")
    os.write(terminal, b"q")
    assert os.waitpid(pid, 0)[1] == 0
    os.close(terminal)


def test_a_shell_completes_verbs_queues_settings_and_ids(alone: Command, tmp_path: Path) -> None:
    assert "plain,release" in completed("bash", ["fsmq", "rel"], alone)
    assert completed("bash", ["fsmq", "get", "jobs"], alone) == ["plain,jobs", "plain,jobs.dead"]
    Command(tmp_path / "b")("queue", "create", "elsewhere")
    words = ["fsmq", "get", "--at", str(tmp_path / "b"), "e"]
    assert completed("bash", words, alone) == ["plain,elsewhere"]
    assert completed("bash", ["fsmq", "queue", "config", "jobs", "rete"], alone) == [
        "plain,retention="
    ]
    message_id = alone.out("put", "jobs", "--body=x").strip()
    alone("get", "jobs")
    assert completed("bash", ["fsmq", "ack", "jobs", ""], alone) == [f"plain,{message_id}"]
    nowhere = ["fsmq", "get", "--at", str(tmp_path / "nowhere"), "e"]
    assert completed("bash", nowhere, alone) == []
    assert completed("bash", ["fsmq", "gte", "j"], alone) == []  # no such verb
    assert completed("bash", ["fsmq", "topic", "crate", "j"], alone) == []
    # Values of settings of a program, and files, which the shell completes itself.
    assert completed("bash", ["fsmq", "up", "--sync", "f"], alone) == ["plain,fsync"]
    assert completed("bash", ["fsmq", "up", "--keys", "k"], alone) == ["file,k"]
    assert completed("bash", ["fsmq", "queue", "list", "--at", "/va"], alone) == ["dir,/va"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_is_valid(shell: str, tmp_path: Path) -> None:
    script = Command("").out("completion", shell)
    assert "_FSMQ_COMPLETE" in script
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"there is no {shell}")
    (tmp_path / "script").write_text(script)
    subprocess.run([found, "-n", tmp_path / "script"], check=True)
