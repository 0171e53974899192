"""Socket activation: the listening socket outlives mq, so restarts lose no connection."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.forkserver import Forked, environment, fork
from tests.harness.suite import HOME, PATIENCE_S, Suite, eventually
from tests.http.helpers import Wire
from tests.http.load import Load

# How long a silent connection can send a request when a stop has begun.
_MOMENT_S = 0.5
_PROGRAM = "fsmq.daemons.mq"
# As systemd does: the socket is descriptor 3, and the variables name this process.
_ACTIVATE = """
import os, sys
number, *command = sys.argv[1:]
os.dup2(int(number), 3)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(command[0], command)
"""


class Activated:
    """mq on a listening socket of this process, as with systemd."""

    def __init__(self, suite: Suite, *options: str) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self._options = [f"--root={suite.root}", *options]
        self._log = suite.root.parent / "activated.log"
        self._process: subprocess.Popen[bytes] | Forked | None = None

    def start(self) -> None:
        """Start mq and do not wait: the socket already accepts connections."""
        env = environment(LISTEN_FDS="1", LISTEN_FDNAMES="http")
        with self._log.open("ab") as log, open(os.devnull, "rb") as null:
            files = [null.fileno(), log.fileno(), log.fileno(), self.socket.fileno()]
            self._process = fork(_PROGRAM, self._options, env, files) or self._alone(env, files)

    def _alone(self, env: dict[str, str], files: list[int]) -> subprocess.Popen[bytes]:
        """mq in a new interpreter."""
        stdin, stdout, stderr, listening = files
        command = [sys.executable, "-m", _PROGRAM, *self._options]
        return subprocess.Popen(
            [sys.executable, "-c", _ACTIVATE, str(listening), *command],
            cwd=HOME,
            env=env,
            pass_fds=[listening],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )

    def begin_to_stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(PATIENCE_S)

    def stop(self) -> int:
        self.begin_to_stop()
        return self.wait()

    def children(self) -> list[int]:
        """The serving processes."""
        assert self._process is not None
        task = f"/proc/{self._process.pid}/task/{self._process.pid}"
        return [int(child) for child in Path(f"{task}/children").read_text().split()]

    def close(self) -> None:
        self.socket.close()
        if self._process is not None and self._process.poll() is None:
            self.stop()


@contextlib.contextmanager
def activated(root: Path, *options: str) -> Iterator[Activated]:
    """A suite whose mq is activated by its socket, with the queue ``q``."""
    with Suite(root) as suite:
        suite.terminate("mq")
        mq = Activated(suite, *options)
        try:
            mq.start()
            with Wire(mq.url) as wire:
                for queue in ("q", "empty"):
                    assert wire.ask("PUT", f"/{queue}").status == 201
            yield mq
        finally:
            mq.close()


# Two processes take long to start.
@pytest.mark.parametrize(("processes", "restarts"), [(1, 5), (2, 2)])
def test_no_connection_and_no_answer_is_lost_over_restarts(
    root: Path, processes: int, restarts: int
) -> None:
    with activated(root, f"--processes={processes}") as mq:
        load = Load(mq.url, "q", "empty")
        with load.running():
            for number in range(restarts):
                enough = len(load.stored) + 50
                eventually(lambda n=enough: len(load.stored) > n or load.lost)
                eventually(lambda: load.one_waits() or load.lost)
                if number == restarts - 1:
                    load.over.set()  # before the stop, which then ends the last fetch, too
                assert mq.stop() == 0
                mq.start()
        assert load.lost == []
        assert load.fetched == [204] * len(load.fetched)
        assert len(load.fetched) >= restarts  # each stop ended one
        eventually(lambda: not list((root / "new").iterdir()))
        assert sorted(p.name for p in (root / "queues" / "q").iterdir()) == sorted(load.stored)


def test_a_request_waits_while_mq_is_down(root: Path) -> None:
    with activated(root) as mq:
        assert mq.stop() == 0
        with Wire(mq.url) as wire:
            wire.request("POST", "/q/messages?id=early", {}, b"x")
            mq.start()
            answer = wire.answer()
        assert (answer.status, answer.id) == (201, "early")


def test_requests_on_idle_connections_during_a_stop_are_answered(root: Path) -> None:
    with activated(root) as mq:
        while not are_answered(mq):
            mq.start()


def are_answered(mq: Activated) -> bool:
    """Send on silent connections when a stop begins; False if that took too long."""
    with contextlib.ExitStack() as stack:
        kept = [stack.enter_context(Wire(mq.url)) for _ in range(40)]
        assert {wire.ask("GET", "/q").status for wire in kept[::2]} == {200}  # half were silent
        began = time.monotonic()
        mq.begin_to_stop()
        with contextlib.suppress(ConnectionError):
            for wire in kept:
                wire.request("POST", "/q/messages", {}, b"x")
        if time.monotonic() - began > _MOMENT_S:
            assert mq.wait() == 0
            return False
        answers = [wire.answer() for wire in kept]
        assert mq.wait() == 0
        assert {answer.status for answer in answers} == {201}
        assert answers[-1].headers["Connection"] == "close"
    return True


def test_each_process_has_the_inherited_socket(root: Path) -> None:
    """Both first processes are killed; their replacements serve on the same socket."""
    with activated(root, "--processes=2") as mq:
        for victim in mq.children():
            os.kill(victim, signal.SIGKILL)
            with Wire(mq.url) as wire:
                assert wire.ask("GET", "/q").status == 200
            eventually(lambda gone=victim: len(mq.children()) == 2 and gone not in mq.children())


def test_an_idle_connection_delays_a_stop_only_briefly(root: Path) -> None:
    stop_s = 120  # the time limit of a stop
    with (
        activated(root, f"--shutdown-timeout={stop_s}") as mq,
        Wire(mq.url) as silent,
        Wire(mq.url) as never_spoke,
    ):
        assert silent.ask("GET", "/q").status == 200
        started = time.monotonic()
        assert mq.stop() == 0  # whose timeout is shorter
        assert time.monotonic() - started < stop_s
        assert silent.is_closed()
        assert never_spoke.is_closed()
