"""Starts programs in milliseconds: forks them from a process that has already imported them.

They behave as if started by ``python -m MODULE OPTIONS…``, with the same arguments, environment,
folder, files, signals, session and exit codes. This saves the half second of imports, and the
destruction of all objects at the end. The command line in /proc is that of the server.

``python -m tests.harness.forkserver MODULES…`` is the server. It takes commands from the socket
that is its stdin, and kills its programs when that is closed.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

_HOME = Path(__file__).resolve().parents[2]
_PATIENCE_S = 60
_LONGEST = 1 << 17  # bytes of a command
_MOST_FILES = 4  # the usual three, and a socket for a service
_PROGRAMS = (*(f"fsmq.daemons.{name}" for name in ("mq", "mover", "reaper")), "fsmq.cli")
_LIBRARIES = (
    "fsmq.client._sync.client",
    "fsmq.daemons.serving",
    *(f"fsmq.http.{name}.dialect" for name in ("emodb", "dynamiq", "sqs", "ui")),
)
# Variables that are not read at imports: they may differ from those of the server.
_READ_LATER = (
    "FSMQ_",
    "_FSMQ_",
    "MQ_",
    "COMP_",
    "NOTIFY_SOCKET",
    "LISTEN_",
    "PYTEST_CURRENT_TEST",
    "SPARK_",
    "PYSPARK_",
    "OPENBLAS_",
    "JAVA_HOME",
    "PYTHONDONTWRITEBYTECODE",
    "AWS_",
)
_STAYS = 8  # programs before a server is started, which takes as long as two or three of them
_asked: Counter[frozenset[tuple[str, str]]] = Counter()


def fork(
    module: str, options: Sequence[str], env: Mapping[str, str], files: Sequence[int]
) -> Forked | None:
    """Start a program as `ForkServer.start` does; None if it needs its own interpreter."""
    server = _server_for(env) if module in _PROGRAMS else None
    return server and server.start(module, options, env, files)


def run(
    module: str, options: Sequence[str], env: Mapping[str, str], stdin: bytes
) -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end, with files as stdin, stdout and stderr."""
    command = [sys.executable, "-m", module, *options]
    with TemporaryFile() as read, TemporaryFile() as out, TemporaryFile() as err:
        read.write(stdin)
        read.seek(0)
        process: Forked | subprocess.Popen[bytes] = fork(
            module, options, env, [file.fileno() for file in (read, out, err)]
        ) or subprocess.Popen(command, env=env, stdin=read, stdout=out, stderr=err)
        try:
            code = process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            raise
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(command, code, out.read(), err.read())


def _server_for(env: Mapping[str, str]) -> ForkServer | None:
    """The server for an environment: at once for ours, for others after some programs.

    Ours is the environment before any test, so that no server starts for a temporary change.
    """
    key = frozenset(read_at_once(env).items())
    _asked[key] += 1
    return _server(key) if key == _ours or _asked[key] > _STAYS else None


@cache
def _server(env: frozenset[tuple[str, str]]) -> ForkServer:
    return ForkServer([*_PROGRAMS, *_LIBRARIES], dict(env))


def environment(**more: str) -> dict[str, str]:
    """Our environment without settings of fsmq, and with the project on the path."""
    ours = ("FSMQ_", "_FSMQ", "MQ_")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    paths = [str(_HOME), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**clean, "PYTHONPATH": os.pathsep.join(paths), **more}


def read_at_once(env: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that imports may read."""
    return {k: v for k, v in env.items() if not k.startswith(_READ_LATER)}


_ours = frozenset(read_at_once(environment()).items())


class Forked:
    """A process that the server has started, with methods of `subprocess.Popen`."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server = server
        self._code: int | None = None
        self._ended = os.pidfd_open(pid)
        self.pid = pid

    def fileno(self) -> int:
        """A descriptor that becomes readable when the process ends; closed by `wait` and `poll`."""
        return self._ended

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        return self._await(0)

    def wait(self, timeout: float | None = None) -> int:
        if (code := self._await(timeout)) is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        # No other process can have its pid: it is a zombie until the server has reaped it.
        if self.poll() is None:
            os.kill(self.pid, number)

    def _await(self, timeout: float | None) -> int | None:
        if self._code is None:
            poller = select.poll()
            poller.register(self._ended, select.POLLIN)
            if poller.poll(None if timeout is None else timeout * 1000):
                self._code = int(self._server.ask({"reap": self.pid}))
                os.close(self._ended)
        return self._code


class ForkServer:
    """A server, which ends with this process.

    env: the environment in which it imports modules.
    """

    def __init__(self, modules: Sequence[str], env: dict[str, str]) -> None:
        self._one_at_a_time = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen[bytes](
                [sys.executable, "-m", "tests.harness.forkserver", *modules],
                cwd=str(_HOME),
                env=env,
                stdin=theirs.fileno(),
                start_new_session=True,
            )
        atexit.register(self._close)

    def start(
        self,
        module: str,
        options: Sequence[str],
        env: Mapping[str, str],
        files: Sequence[int],
        folder: str = "",
    ) -> Forked:
        """Start a program in a new session; files: its stdin, stdout and stderr.

        A fourth file is a socket that is handed down, as by systemd; ``LISTEN_PID`` is set.
        folder: its working folder, by default that of this process.
        """
        program = {"module": module, "options": list(options), "env": dict(env)}
        command = {**program, "folder": folder or os.getcwd()}
        return Forked(self, int(self.ask(command, files)))

    def ask(self, command: Mapping[str, Any], files: Sequence[int] = ()) -> bytes:
        with self._one_at_a_time:
            socket.send_fds(self._socket, [json.dumps(command).encode()], files)
            answer = self._socket.recv(_LONGEST)
        assert answer, "the fork server has died; its traceback is above"
        return answer

    def _close(self) -> None:
        self._socket.close()
        self._process.wait()


def _serve(control: socket.socket) -> dict[str, Any]:
    """Answer commands; returns in each new process, with its command."""
    running: set[int] = set()
    while True:
        received, files, _, _ = socket.recv_fds(control, _LONGEST, _MOST_FILES)
        if not received:
            for pid in running:
                os.killpg(pid, signal.SIGKILL)
            sys.exit()
        command: dict[str, Any] = json.loads(received)
        if "reap" in command:
            pid = command["reap"]
            answer = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            running.discard(pid)
        else:
            reading, writing = os.pipe()
            answer = os.fork()
            if not answer:
                control.detach()
                _take(files)
                for end in (reading, writing):
                    os.close(end)
                return command
            os.close(writing)
            os.read(reading, 1)  # wait until it has a session, and so a group that can be killed
            os.close(reading)
            running.add(answer)
        for file in files:
            os.close(file)
        control.sendall(b"%d" % answer)


def _take(files: Sequence[int]) -> None:
    os.setsid()
    for number, file in enumerate(files):  # in ascending order, so none is overwritten
        os.dup2(file, number)
    for file in files:
        if file >= len(files):
            os.close(file)


def _run(module: str, options: list[str], env: dict[str, str], folder: str) -> None:
    """Run a module as ``python -m`` does."""
    os.chdir(folder)
    sys.path[0] = folder
    os.environ.clear()
    os.environ.update(env)
    if "LISTEN_FDS" in env:
        os.environ["LISTEN_PID"] = str(os.getpid())
    sys.orig_argv = [sys.executable, "-m", module, *options]
    sys.argv = [module, *options]
    if not hasattr(sys.modules.get(module), "__path__"):
        sys.modules.pop(module, None)
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            _end(end.code or 0)
        raise  # the interpreter prints the code
    _end(0)


def _end(code: int) -> None:
    """End like an interpreter, without destroying objects.

    Returns if stdout or stderr cannot be flushed, which the interpreter then reports.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code & 0xFF)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        importlib.import_module(name)
    # An interpreter visits every object at its end, and a forked one would copy them.
    gc.collect()
    gc.freeze()
    _run(**_serve(socket.socket(fileno=0)))
