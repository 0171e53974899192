"""Programs that a server forks for the harness, so that they start in milliseconds."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType

from fsmq.daemons.process.notify import Listener
from tests.harness.hosts import Host
from tests.harness.suite import HOME, PATIENCE_S

_SERVER = [sys.executable, "-m", "tests.power.program_server"]


class Programs:
    """Starts and kills programs, which end with the ``with``.

    host: the host of the programs; None: this machine.
    """

    def __init__(self, logs: Path, host: Host | None = None) -> None:
        self._logs = logs
        self._host = host
        logs.mkdir(parents=True, exist_ok=True)
        self._running: list[int] = []

    def __enter__(self) -> Programs:
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("FSMQ_", "MQ_"))}
        paths = filter(None, [environ.get("PYTHONPATH")])
        self._server = subprocess.Popen(
            [*([] if self._host is None else self._host.enter), *_SERVER],
            cwd=HOME,
            env={**environ, "PYTHONPATH": os.pathsep.join([str(HOME), *paths])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        try:
            self._server.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        self._server.stdout.close()

    def daemon(
        self,
        name: str,
        program: str,
        argv: Sequence[str],
        without: Sequence[str],
        slow_s: float = 0.0,
    ) -> int:
        """Start a daemon and wait until it is ready. Returns its process id."""
        # The address of the listener is in the network of the host.
        with nullcontext() if self._host is None else self._host.inside():
            listener = Listener()
        try:
            pid = self._start(name, program, argv, listener.address, without, slow_s)
            end = time.monotonic() + PATIENCE_S
            poll = select.poll()
            poll.register(listener, select.POLLIN)
            while not listener.is_ready:
                poll.poll(1000)
                listener.receive()
                is_alive = self.is_running(pid) and time.monotonic() < end
                assert is_alive, f"{program} did not start: {self.log(name)}"
            return pid
        finally:
            listener.close()

    def client(
        self, name: str, program: str, argv: Sequence[str], without: Sequence[str] = ()
    ) -> int:
        """Start a client of the load. Returns its process id."""
        return self._start(name, program, argv, "", without)

    def kill(self, pid: int) -> None:
        """Send SIGKILL and wait for the end."""
        self._running.remove(pid)
        self._ask({"kill": pid})

    def stop(self, pid: int) -> None:
        """Send SIGSTOP; `go_on` continues the program."""
        self._ask({"signal": signal.SIGSTOP, "to": pid})

    def go_on(self, pid: int) -> None:
        self._ask({"signal": signal.SIGCONT, "to": pid})

    def kill_all(self) -> None:
        for pid in list(self._running):
            self.kill(pid)

    def is_running(self, pid: int) -> bool:
        return _state(pid) not in ("Z", "")

    def log(self, name: str) -> str:
        """The stderr of all runs of a program."""
        return (self._logs / f"{name}.log").read_text()

    def _start(
        self,
        name: str,
        program: str,
        argv: Sequence[str],
        notify: str,
        without: Sequence[str],
        slow_s: float = 0.0,
    ) -> int:
        log = str(self._logs / f"{name}.log")
        pid = self._ask(
            {
                "start": program,
                "argv": list(argv),
                "log": log,
                "notify": notify,
                "without": list(without),
                "slow_s": slow_s,
            }
        )
        self._running.append(pid)
        return pid

    def _ask(self, command: dict[str, object]) -> int:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(command) + "\n")
        answer = self._server.stdout.readline()
        assert answer, "the server has died; its traceback is above"
        return int(answer)


def _state(pid: int) -> str:
    """The letter of a process's state: Z for a zombie, empty if it does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
