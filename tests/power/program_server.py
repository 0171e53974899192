"""Starts programs in milliseconds: forks them from a process that has already imported them.

They are the real programs with their command lines. Commands come as lines of JSON on stdin,
answers go to stdout. At the end of stdin, and if this process dies, all children are killed.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from fsmq.daemons import mover, mq, reaper
from tests.harness.starting import start_again_and_again
from tests.power import clients
from tests.power.syncs import slow_down, take_away

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)
PROGRAMS = {
    "mq": mq.main,
    "mover": mover.main,
    "reaper": reaper.main,
    "http": clients.main,
    "library": clients.main,
    "starts": lambda program, root, sync: start_again_and_again(Path(root), sync),
}


def main() -> None:
    children: set[int] = set()
    for line in sys.stdin:
        command = json.loads(line)
        if "start" in command:
            pid = _start(**command)
            children.add(pid)
            answer = pid
        elif "signal" in command:
            os.kill(command["to"], command["signal"])
            answer = 0
        else:
            answer = _end(command["kill"])
            children.discard(command["kill"])
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
    for pid in children:
        _end(pid)


def _end(pid: int) -> int:
    os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def _start(
    start: str, argv: list[str], log: str, notify: str, without: list[str], slow_s: float
) -> int:
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        os.setsid()
        _redirect(log)
        os.environ["NOTIFY_SOCKET"] = notify
        sys.argv = [start, *argv]
        if without:
            take_away(*without)
        if slow_s:
            slow_down(slow_s)
        code = _run(start, argv)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        sys.stderr.flush()
        os._exit(code)


def _redirect(log: str) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)


def _run(program: str, argv: list[str]) -> int:
    main: Any = PROGRAMS[program]
    if program in ("http", "library", "starts"):
        main(program, *argv)
        return 0
    try:
        main.main(argv, prog_name=program)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


if __name__ == "__main__":
    main()
