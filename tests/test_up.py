"""`fsmq up` with the real programs."""

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.suite import HOME

Up = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """Start `fsmq up` on a new spool and a free port."""
    running: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str, env: dict[str, str] | None = None, **popen: Any) -> Any:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("FSMQ_")}
        own = [f"--root={tmp_path}/spool", "--port=0"]  # first: the last value of an option counts
        command = [sys.executable, "-m", "fsmq.cli", "up", *own, *arguments]
        popen = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **popen}
        running.append(subprocess.Popen(command, cwd=HOME, env={**clean, **(env or {})}, **popen))
        return running[-1]

    yield start
    for process in running:
        process.terminate()
        process.communicate()


def url(process: subprocess.Popen[bytes]) -> str:
    """Wait until it is ready; its URL."""
    assert process.stdout
    first, second = process.stdout.readline().decode(), process.stdout.readline().decode()
    assert re.fullmatch(r"root:       /.+\n", second)
    found = re.fullmatch(r"fsmq is up: (http://127\.0\.0\.1:\d+)\n", first)
    assert found
    return found[1]


def ask(method: str, where: str, body: bytes | None = None) -> bytes:
    request = urllib.request.Request(where, method=method, data=body)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read()


def event(process: subprocess.Popen[bytes], **fields: str) -> dict[str, Any]:
    """Read the log until an event with these fields."""
    assert process.stderr
    for line in process.stderr:
        record: dict[str, Any] = json.loads(line)
        if fields.items() <= record.items():
            return record
    raise AssertionError(f"{fields} never came")


def test_a_restarted_mq_keeps_its_address_and_messages(up: Up) -> None:
    process = up("--log-level=debug")
    here = url(process)
    ask("PUT", f"{here}/jobs")
    ask("POST", f"{here}/jobs/messages", b"hello")
    assert ask("GET", f"{here}/jobs/messages?wait=20") == b"hello"
    ask("POST", f"{here}/jobs/messages", b"again")
    pid = event(process, event="child started", child="mq")["pid"]
    assert event(process, event="started", program="mq")["listening"] == here
    os.kill(pid, signal.SIGKILL)
    assert event(process, event="started", program="mq")["listening"] == here
    assert ask("GET", f"{here}/jobs/messages?wait=20") == b"again"
    process.terminate()
    assert process.wait() == 0


def test_up_is_ready_and_pings_while_all_three_programs_do(up: Up, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        env = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "400000"}
        process = up(env=env)
        here = url(process)
        while (received := manager.recv(4096)) == b"WATCHDOG=1":
            pass
        assert received.startswith(f"READY=1\nSTATUS=listening on {here}".encode())
        # Three times as long as the pings would last if one program sent none.
        assert {manager.recv(4096) for _ in range(6)} == {b"WATCHDOG=1"}
        process.terminate()
        while manager.recv(4096) != b"STOPPING=1":
            pass


def test_settings_reach_the_programs(up: Up, tmp_path: Path) -> None:
    config = tmp_path / "fsmq.toml"
    config.write_text(f'root = "{tmp_path}/other"\n[mq]\nport = 0\n[reaper]\nwatch = "poll"\n')
    process = subprocess.Popen(
        [sys.executable, "-m", "fsmq.cli", "up", f"--config={config}"],
        cwd=HOME,
        env={**os.environ, "FSMQ_SYNC": "fsync", "FSMQ_ROOT": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    url(process)
    process.terminate()
    out, log = process.communicate()
    assert (process.returncode, out) == (0, b"")
    started = {
        record["program"]: record
        for record in map(json.loads, log.splitlines())
        if record["event"] == "started"
    }
    assert started["mq"]["sync"] == "fsync"
    assert started["mq"]["root"] == f"{tmp_path}/other"
    assert (started["mq-mover"]["watch"], started["mq-reaper"]["watch"]) == ("events", "poll")


def test_several_processes_share_one_port(up: Up) -> None:
    process = up("--processes=2")
    here = url(process)
    ask("PUT", f"{here}/jobs")
    for number in range(20):
        ask("POST", f"{here}/jobs/messages", b"%d" % number)
    process.terminate()
    assert process.wait() == 0


def test_lines_on_a_terminal_have_the_name_of_their_program(up: Up) -> None:
    ours, theirs = pty.openpty()
    process = up(stderr=theirs, env={"NO_COLOR": "1"})
    os.close(theirs)
    url(process)
    process.terminate()
    assert process.wait() == 0
    shown = b""
    while b"mq     | " not in shown or b"mover  | " not in shown or b"reaper | " not in shown:
        shown += os.read(ours, 65536)
    os.close(ours)
    assert b"{" not in shown.replace(b"counted={", b"")


@pytest.mark.parametrize(
    ("arguments", "code"), [(["--port=70000"], 2), (["--root=/dev/null/x"], 78)]
)
def test_an_invalid_setting_ends_it_at_once(up: Up, arguments: list[str], code: int) -> None:
    assert up(*arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).wait() == code


def test_up_can_be_started_directly_after_a_kill(up: Up) -> None:
    first = up()
    here = url(first)
    ask("PUT", f"{here}/jobs")
    ask("POST", f"{here}/jobs/messages", b"x")
    first.kill()
    second = up(f"--port={here.rpartition(':')[2]}")
    assert url(second) == here
    assert ask("GET", f"{here}/jobs/messages?wait=20") == b"x"


def test_up_waits_for_its_port(up: Up) -> None:
    """The children of a killed supervisor may hold it for a moment."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        process = up(f"--port={port}")
        assert event(process, event="waiting for the port")["port"] == port
    assert url(process) == f"http://127.0.0.1:{port}"


def test_two_signals_at_once_are_a_clean_stop(up: Up) -> None:
    process = up()
    url(process)
    for _ in range(2):
        process.terminate()
    assert process.wait() == 0


def test_a_folder_with_other_files_is_refused(up: Up, tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "thesis.txt").write_text("")
    process = up()
    assert process.wait() == 78
    assert event(process, event="this folder is not a spool")["found"] == ["thesis.txt"]
    assert [entry.name for entry in (tmp_path / "spool").iterdir()] == ["thesis.txt"]
    url(up("--any-folder=yes"))
    url(up())  # it is a spool now


def test_a_second_up_on_the_same_root_warns(up: Up) -> None:
    first = up()
    here = url(first)
    second = up(f"--port={here.rpartition(':')[2]}")
    warning = event(second, event="another fsmq up runs on this root")
    assert warning["level"] == "warning"
    assert event(second, event="cannot listen")["error"] == "Address already in use"
    assert second.wait() == 78
    assert json.loads(ask("GET", f"{here}/_health/live")) == {"live": True}


@pytest.mark.parametrize("processes", [1, 2])
def test_only_the_port_that_was_given_is_used(up: Up, processes: int) -> None:
    port = neighbours()
    assert url(up(f"--port={port}", f"--processes={processes}")) == f"http://127.0.0.1:{port}"
    with socket.socket() as other:
        other.bind(("127.0.0.1", port + 1))


def test_an_admin_port_is_served_where_it_is_asked_for(up: Up, tmp_path: Path) -> None:
    port = neighbours()
    first = up(f"--port={port}", env={"FSMQ_ADMIN_PORT": str(port + 1)})
    url(first)
    assert ask("GET", f"http://127.0.0.1:{port + 1}/ping") == b"pong"
    second = up(f"--root={tmp_path}/other", f"--port={port + 1}")
    assert second.wait() == 78


def neighbours() -> int:
    """The first of two neighbouring free ports."""
    while True:
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
            try:
                two.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
