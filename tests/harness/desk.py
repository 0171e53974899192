"""Replaces slow programs of a shell by small ones that hand their calls over to a running process.

`Desk.folder` goes first on the shell's PATH. A program there has the name of one that starts
slowly. It hands over its arguments, environment, working folder, stdin, stdout and stderr; the
process at the desk does the work and answers with the exit code.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, NamedTuple

from tests.harness.forkserver import Forked, ForkServer, read_at_once

_LONGEST = 1 << 17  # bytes of arguments and environment
_HAND_OVER = """\
import _signal, json, os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as desk:
    desk.connect(sys.argv[1])
    for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
        _signal.signal(number, lambda number, _: desk.send(b"%d" % number))
    call = {"words": sys.argv[2:], "folder": os.getcwd(), "environment": dict(os.environ)}
    socket.send_fds(desk, [json.dumps(call).encode()], [0, 1, 2])
    answer = desk.recv(16)
if answer == b"alone":
    os.execv(sys.argv[2], sys.argv[2:])
if int(answer) < 0:
    if -int(answer) != _signal.SIGKILL:
        _signal.signal(-int(answer), _signal.SIG_DFL)
    os.kill(os.getpid(), -int(answer))
sys.exit(int(answer))
"""
_CHILD = "python"  # the interpreter of the children of `fsmq up`
_PROGRAMS = {
    "fsmq": 'case " $* " in " up "*|*" --watch "*) false;; esac',
    "python3": '[ "$*" = - ]',
    _CHILD: 'case "$1 $2 $3" in "-P -m fsmq.daemons."*) ;; *) false;; esac',
}
_MODULES = {"fsmq": "fsmq.cli", "python3": "tests.harness.from_stdin"}
_IMPORTED = (
    *(f"fsmq.daemons.{name}" for name in ("mq", "mover", "reaper")),
    "fsmq.cli",
    "fsmq.dyno",
    "fsmq.client._sync.client",
    "fsmq.client._async.client",
    "fsmq.spool.worker.blocking_worker",
)
_UP = """\
import sys
from fsmq.cli import main
del sys.path[0]
sys.executable = {python!r}
main(prog_name="fsmq")
"""
# Variables of the shell and its folder that no import of `fsmq` reads.
_OF_THE_SHELL = ("PATH", "HOME", "PWD", "OLDPWD", "SHLVL", "_")


class Call(NamedTuple):
    """A call of a program. words: its path and arguments."""

    words: list[str]
    folder: str
    environment: dict[str, str]
    files: list[int]  # its stdin, stdout and stderr: to be closed


class Desk:
    """The socket where calls are handed over."""

    def __init__(self) -> None:
        # The path of a socket has at most 107 bytes, fewer than the folders of tests.
        self._place = tempfile.TemporaryDirectory(prefix="fsmq-")
        self.folder = Path(self._place.name)
        self._address = str(self.folder / "desk")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(self._address)
        self._socket.listen()
        (self.folder / "hand_over.py").write_text(_HAND_OVER)

    def close(self) -> None:
        self._socket.close()
        self._place.cleanup()

    def program(self, name: str, hands_over: str) -> None:
        """Write a program that hands over if ``hands_over``, a test of the shell, holds."""
        itself = Path(sys.executable).with_name(name)
        over = f"{sys.executable} -I -S {self.folder}/hand_over.py {self._address} {itself}"
        path = self.folder / name
        path.write_text(f'#!/bin/sh\n{hands_over} || exec {itself} "$@"\nexec {over} "$@"\n')
        path.chmod(0o755)

    def call_nothing(self) -> None:
        """Wake the process at the desk."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
            caller.connect(self._address)

    def accept(self) -> socket.socket:
        return self._socket.accept()[0]

    @staticmethod
    def take(caller: socket.socket) -> Call | None:
        """The call of a caller; None if it sends none."""
        message, files, _, _ = socket.recv_fds(caller, _LONGEST, 3)
        return Call(**json.loads(message), files=files) if message else None


class Forks:
    """Small programs whose calls become forks of a process that has imported their modules.

    programs: the arguments of `Desk.program`. ``forked``: the number of forked calls.
    """

    def __init__(self, programs: Mapping[str, str]) -> None:
        self._desk = Desk()
        for name, hands_over in programs.items():
            self._desk.program(name, hands_over)
        self.folder = self._desk.folder
        self.forked = 0
        self._is_open = True
        self._thread = threading.Thread(target=self._sit, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_open = False
        self._desk.call_nothing()
        self._thread.join()
        self._desk.close()

    def start(self, call: Call) -> Forked | None:
        """Fork a program; None if it would behave differently there."""
        raise NotImplementedError

    def _sit(self) -> None:
        while self._is_open:
            threading.Thread(target=self._serve, args=(self._desk.accept(),), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        with caller:
            call = Desk.take(caller)
            if call is None:
                return
            process = self.start(call)
            _close(call.files)
            if process is None:
                caller.send(b"alone")
                return
            self.forked += 1
            while process.poll() is None:
                select.select([process, caller], [], [])
                received = _received(caller)
                if received is not None:  # empty: the small program was killed
                    process.send_signal(signal.Signals(int(received or signal.SIGKILL)))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                caller.send(b"%d" % process.wait())


class Forking(Forks):
    """Forks `fsmq` from a process that has imported it, for the commands of a shell.

    Python programs from stdin and the programs that `fsmq up` starts are forked, too. `fsmq up`
    itself and commands with --watch get their own interpreter, because pages send them signals.

    environment: the environment of the shell.
    """

    _servers: ClassVar[dict[tuple[tuple[str, str], ...], ForkServer]] = {}
    _one_at_a_time = threading.Lock()

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._known = _at_imports(environment)
        super().__init__(_PROGRAMS)
        up = self.folder / "up.py"
        up.write_text(_UP.format(python=str(self.folder / _CHILD)))
        fsmq = self.folder / "fsmq"
        itself = f"exec {Path(sys.executable).with_name('fsmq')}"
        fsmq.write_text(fsmq.read_text().replace(itself, f"exec {sys.executable} {up}"))

    def start(self, call: Call) -> Forked | None:
        server = self._server_for(call.environment)
        if server is None:
            return None
        program, *words = call.words
        name = Path(program).name
        module = _MODULES.get(name, "")
        if name == _CHILD:
            _, _, module, *words = words
        return server.start(module, words, call.environment, call.files, call.folder)

    def _server_for(self, environment: Mapping[str, str]) -> ForkServer | None:
        """The server for an environment; None if a program would behave differently there."""
        if _at_imports(environment) != self._known:
            return None
        key = tuple(sorted(self._known.items()))
        with self._one_at_a_time:
            if key not in self._servers:
                paths = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
                self._servers[key] = ForkServer(_IMPORTED, self._known | paths)
            return self._servers[key]


def _at_imports(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that can change a program when it is imported."""
    found = {k: v for k, v in read_at_once(environment).items() if k not in _OF_THE_SHELL}
    # `fsmq up` adds a folder that is already there.
    path = dict.fromkeys(found.get("PYTHONPATH", "").split(os.pathsep))
    return {**found, "PYTHONPATH": os.pathsep.join(path)}


def _received(caller: socket.socket) -> bytes | None:
    """The bytes of a small program, none if it has ended; None if it has sent nothing."""
    try:
        return caller.recv(16, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return None
    except ConnectionResetError:
        return b""


def _close(files: list[int]) -> None:
    for file in files:
        os.close(file)
