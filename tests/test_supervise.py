"""The supervisor with real processes: starts, restarts, signals, readiness, output."""

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.suite import HOME

SUPERVISOR = """
import json, os, sys
from fsmq.daemons.process import logs
from fsmq.daemons.process.supervise import Child, run
options = json.loads(sys.argv[1])
logs.setup("debug", "json", "up")
children = [
    Child(name, [sys.executable if code else "/none", "-S", "-c", code], {"CHILD": name})
    for name, code in options["children"].items()
]
sys.exit(run(children, prefix=options["prefix"], grace=options["grace"],
             on_started=lambda now: os.write(1, b"started %s\\n" % json.dumps(now).encode())))
"""

TOOLS = """
import os, signal, socket, sys, time
NAME = os.environ["CHILD"]
SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1}
def say(*words):
    line = " ".join(str(word) for word in (NAME, *words))
    os.write(1, line.encode() + b"\\n")  # in one write: other children use the same pipe
def notify(text):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(text.encode(), "\\0" + os.environ["NOTIFY_SOCKET"][1:])
def next_signal():
    return signal.Signals(signal.sigwait(SIGNALS)).name
signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
signal.alarm(100)  # in case a failing test does not end it
"""

# A child that is ready, prints each signal, and ends on the first SIGTERM.
GOOD = f"""{TOOLS}
say("pid", os.getpid())
notify("READY=1\\nSTATUS=" + NAME + " is fine")
while (got := next_signal()) != "SIGTERM":
    say("got", got)
say("ends")
"""

# A child that has to be killed.
STUBBORN = f"""{TOOLS}
say("pid", os.getpid())
notify("READY=1")
while True:
    say("got", next_signal())
"""


class Supervised:
    """A running supervisor; tests can wait for lines that it or its children print."""

    def __init__(
        self, children: dict[str, str], grace: float = 20, prefix: bool = False, **popen: Any
    ) -> None:
        options = {"children": children, "grace": grace, "prefix": prefix}
        clean = {k: v for k, v in os.environ.items() if k not in ("NOTIFY_SOCKET", "WATCHDOG_USEC")}
        env = {**clean, "PYTHONPATH": str(HOME), **popen.pop("env", {})}
        popen.setdefault("stderr", subprocess.STDOUT)
        self.process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISOR, json.dumps(options)],
            stdout=subprocess.PIPE,
            env=env,
            **popen,
        )
        self.seen: list[str] = []

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Read until a line matches."""
        assert self.process.stdout
        for raw in self.process.stdout:
            self.seen.append(raw.decode().rstrip("\n"))
            if match := re.search(pattern, self.seen[-1]):
                return match
        raise AssertionError(f"{pattern!r} never came:\n" + "\n".join(self.seen))

    def wait_for_all(self, *patterns: str) -> None:
        """Read until each pattern has matched a line, in any order."""
        missing = list(patterns)
        while missing:
            self.wait_for("|".join(missing))
            missing = [p for p in missing if not re.search(p, self.seen[-1])]

    def pid(self, name: str) -> int:
        return int(self.wait_for(rf"^{name} pid (\d+)$")[1])

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Read the rest of the output and return the exit code."""
        assert self.process.stdout
        self.seen += self.process.stdout.read().decode().splitlines()
        return self.process.wait()


Supervise = Callable[..., Supervised]


@pytest.fixture
def supervise() -> Iterator[Supervise]:
    running: list[Supervised] = []

    def start(*arguments: Any, **keywords: Any) -> Supervised:
        running.append(Supervised(*arguments, **keywords))
        return running[-1]

    yield start
    for supervised in running:
        supervised.process.kill()  # the kernel ends its children
        supervised.process.wait()
        assert supervised.process.stdout
        supervised.process.stdout.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket of a service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(60)
        yield receiver


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_supervisor_runs_until_a_signal(supervise: Supervise, number: signal.Signals) -> None:
    run = supervise({"mq": GOOD, "mover": GOOD})
    statuses = json.loads(run.wait_for("^started (.*)")[1])
    assert statuses == {"mq": "mq is fine", "mover": "mover is fine"}
    run.send(number)
    assert run.end() == 0
    assert {"mq ends", "mover ends"} <= set(run.seen)


def test_the_supervisor_is_ready_when_all_children_are(
    supervise: Supervise, manager: socket.socket
) -> None:
    late = f'{TOOLS}\nsay("waits")\nnext_signal()\n{GOOD}'
    run = supervise({"mq": GOOD, "late": late}, env={"NOTIFY_SOCKET": manager.getsockname()})
    started = '"child started","child":"late"'
    run.wait_for_all(started, "^mq pid", "^late waits")
    [child] = [json.loads(line)["pid"] for line in run.seen if started in line]
    assert not select.select([manager], [], [], 0)[0]
    os.kill(child, signal.SIGUSR1)
    assert manager.recv(4096) == b"READY=1\nSTATUS=mq is fine; late is fine"
    run.wait_for("^started")
    run.send(signal.SIGTERM)
    assert manager.recv(4096) == b"STOPPING=1"
    assert run.end() == 0


def test_a_killed_child_is_restarted_and_the_others_are_not(
    supervise: Supervise,
) -> None:
    run = supervise({"mq": GOOD, "mover": GOOD})
    run.wait_for("^started")
    [mq] = [int(line.split()[2]) for line in run.seen if line.startswith("mq pid")]
    os.kill(mq, signal.SIGKILL)
    assert json.loads(run.wait_for('.*"child ended".*')[0])["how"] == "SIGKILL"
    assert run.pid("mq") != mq
    run.send(signal.SIGTERM)
    assert run.end() == 0
    assert sum(line.startswith("mover pid") for line in run.seen) == 1
    assert sum(line.startswith("started") for line in run.seen) == 1


@pytest.mark.parametrize("end", ["sys.exit(0)", "sys.exit(1)", "os.abort()"])
def test_pauses_between_restarts_grow(supervise: Supervise, end: str) -> None:
    began = time.monotonic()
    run = supervise({"mq": f'{TOOLS}\nsay("at", time.monotonic())\n{end}'})
    starts = [float(run.wait_for(r"^mq at ([\d.]+)")[1]) for _ in range(4)]
    run.wait_for('"child starts again".*0.8')
    restarts = [json.loads(line) for line in run.seen if "child starts again" in line]
    assert [line["seconds"] for line in restarts] == [0.1, 0.2, 0.4, 0.8]
    assert starts[-1] - began > 0.7
    run.send(signal.SIGTERM)
    assert run.end() == 0


@pytest.mark.parametrize("code", [2, 78])
def test_a_configuration_error_of_a_child_ends_the_supervisor(
    supervise: Supervise, code: int
) -> None:
    run = supervise({"mq": GOOD, "mover": f"{GOOD}\nsys.exit({code})"})
    run.wait_for("^started")
    [child] = [int(line.split()[2]) for line in run.seen if line.startswith("mover pid")]
    os.kill(child, signal.SIGTERM)
    assert run.end() == code
    assert "mq ends" in run.seen


def test_a_second_signal_kills_the_children(supervise: Supervise) -> None:
    run = supervise({"mq": STUBBORN, "mover": GOOD})
    run.wait_for("^started")
    run.send(signal.SIGTERM)
    run.wait_for("^mq got SIGTERM")
    run.send(signal.SIGINT)
    assert run.end() == 1


def test_a_child_that_does_not_stop_in_time_is_killed(supervise: Supervise) -> None:
    run = supervise({"mq": STUBBORN}, grace=0.1)
    run.wait_for("^started")
    run.send(signal.SIGTERM)
    assert run.end() == 1


def test_a_child_that_fails_at_its_stop_changes_the_exit_code(supervise: Supervise) -> None:
    run = supervise({"mq": f"{GOOD}\nsys.exit(7)", "mover": GOOD})
    run.wait_for("^started")
    run.send(signal.SIGTERM)
    assert run.end() == 1


def test_a_child_that_sigterm_kills_counts_as_stopped_cleanly(
    supervise: Supervise,
) -> None:
    run = supervise({"mq": "import os, signal; os.write(1, b'up\\n'); signal.pause()"})
    run.wait_for("^up")
    run.send(signal.SIGTERM)
    assert run.end() == 0


def test_sighup_is_passed_on(supervise: Supervise, manager: socket.socket) -> None:
    run = supervise({"mq": GOOD, "mover": GOOD}, env={"NOTIFY_SOCKET": manager.getsockname()})
    run.wait_for("^started")
    assert manager.recv(4096).startswith(b"READY=1")
    run.send(signal.SIGHUP)
    run.wait_for_all("^mq got SIGHUP", "^mover got SIGHUP")
    assert manager.recv(4096).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
    assert manager.recv(4096) == b"READY=1"
    run.send(signal.SIGTERM)
    assert run.end() == 0


def test_ctrl_c_reaches_each_child_once(supervise: Supervise) -> None:
    run = supervise({"mq": STUBBORN, "mover": GOOD}, process_group=0)
    run.wait_for("^started")
    os.killpg(run.process.pid, signal.SIGINT)  # as a terminal does
    run.wait_for("^mq got SIGTERM")
    run.send(signal.SIGTERM)
    assert run.end() == 1
    assert [line for line in run.seen if line.startswith("mq got")] == ["mq got SIGTERM"]


def test_no_child_outlives_a_killed_supervisor(supervise: Supervise) -> None:
    run = supervise({"mq": GOOD, "mover": GOOD})
    run.wait_for("^started")
    run.send(signal.SIGKILL)
    assert run.end() == -signal.SIGKILL  # the output has ended: no child holds the pipe
    assert {"mq ends", "mover ends"} <= set(run.seen)


def test_a_missing_program_is_tried_again(supervise: Supervise) -> None:
    run = supervise({"mq": GOOD, "none": ""})
    run.wait_for("child cannot be started.*No such file")
    run.wait_for("child cannot be started.*No such file")
    run.send(signal.SIGTERM)
    assert run.end() == 0


def test_output_is_prefixed_with_the_name_of_its_child(supervise: Supervise) -> None:
    chatty = f"""{TOOLS}
print("on stdout", flush=True)
print("on stderr", file=sys.stderr)
print('{{"level":"info"}}', flush=True)
os.write(1, b"x" * 70_000 + b"\\n")
notify("READY=1")
next_signal()
os.write(1, b"no end")
"""
    run = supervise({"mq": chatty, "mover": GOOD}, prefix=True)
    run.wait_for("^started")
    run.send(signal.SIGTERM)
    assert run.end() == 0
    assert {
        "mq    | on stdout",
        "mq    | on stderr",
        "mq    | no end",
        '{"level":"info"}',
        "mover | mover ends",
    } <= set(run.seen)
    assert sum(line.count("x") for line in run.seen if "| xxx" in line) == 70_000


@pytest.mark.parametrize(
    ("env", "label"), [({}, b"\x1b[36mmq | \x1b[0m"), ({"NO_COLOR": "1"}, b"mq | ")]
)
def test_names_are_coloured_on_a_terminal(
    supervise: Supervise, env: dict[str, str], label: bytes
) -> None:
    ours, theirs = pty.openpty()
    run = supervise({"mq": GOOD}, prefix=True, stderr=theirs, env={"NO_COLOR": "", **env})
    os.close(theirs)
    run.wait_for("^started")
    run.send(signal.SIGTERM)
    assert run.end() == 0
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # the end of a terminal
        pass
    os.close(ours)
    assert label + b"mq ends\r\n" in shown


def test_an_orphan_that_holds_the_output_does_not_delay_the_stop(supervise: Supervise) -> None:
    parent = f"""{TOOLS}
if (orphan := os.fork()) == 0:
    signal.pause()
say("orphan", orphan)
{GOOD}"""
    run = supervise({"mq": parent}, prefix=True)
    orphan = int(run.wait_for(r"orphan (\d+)$")[1])
    try:
        run.wait_for("^started")
        run.send(signal.SIGTERM)
        assert run.process.wait() == 0
    finally:
        os.kill(orphan, signal.SIGKILL)


def test_the_watchdog_is_pinged_only_while_all_children_ping(
    supervise: Supervise, manager: socket.socket
) -> None:
    lively = f"""{TOOLS}
assert os.environ["WATCHDOG_USEC"] == "6000000" and "WATCHDOG_PID" not in os.environ
notify("READY=1")
while not (got := signal.sigtimedwait(SIGNALS, 0.1)):
    notify("WATCHDOG=1")
if got.si_signo == signal.SIGUSR1:
    say("falls silent")
    next_signal()
"""
    env = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "6000000"}
    run = supervise({"mq": lively, "mover": lively}, env=env)
    run.wait_for("^started")
    [first, second] = [json.loads(line) for line in run.seen if "child started" in line]
    for _ in range(3):  # a supervisor that did not listen would have given up
        while manager.recv(4096) != b"WATCHDOG=1":
            pass
    os.kill(first["pid"], signal.SIGUSR1)
    run.wait_for(f'"child is silent".*"{first["child"]}"')
    assert "WATCHDOG=1" in _waiting(manager)  # sent before
    run.wait_for("child is silent")
    assert _waiting(manager) == []
    os.kill(first["pid"], signal.SIGKILL)  # the restarted child pings again
    assert manager.recv(4096) == b"WATCHDOG=1"
    run.send(signal.SIGTERM)
    assert run.end() == 0
    assert second["child"] != first["child"]


def test_an_idle_supervisor_sleeps(supervise: Supervise) -> None:
    run = supervise({"mq": GOOD, "mover": GOOD}, prefix=True)
    run.wait_for("^started")
    # After this line the supervisor has nothing left to do.
    while "S (sleeping)" not in (status := _status(run.process.pid)):
        pass
    time.sleep(0.3)  # only time can show that nothing happens
    assert _switches(_status(run.process.pid)) - _switches(status) <= 1


def _waiting(manager: socket.socket) -> list[str]:
    """The messages that the manager has not read yet."""
    heard = []
    while select.select([manager], [], [], 0)[0]:
        heard.append(manager.recv(4096).decode())
    return heard


def _status(pid: int) -> str:
    return Path(f"/proc/{pid}/status").read_text()


def _switches(status: str) -> int:
    return sum(int(n) for n in re.findall(r"voluntary_ctxt_switches:\s+(\d+)", status))
