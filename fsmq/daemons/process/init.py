"""Process 1 of a container: orphaned processes become its children, and have to be reaped."""

import os
import signal
from typing import NoReturn

_PASSED_ON = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
# Variables that are meant for one process, and name it by its number.
_NUMBERED = ("LISTEN_PID", "WATCHDOG_PID")


def leave_init() -> None:
    """Go on in a child if this is process 1, which reaps all, passes signals on, and ends with it.

    To be called before there are threads. A child is needed, because a program that runs commands
    cannot tell orphans from its own commands, whose exit codes it waits for.
    """
    if os.getpid() != 1:
        return
    heard = {*_PASSED_ON, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    child = os.fork()
    if child:
        _reap_until(child, heard)
    # Out of the group of process 1, so that Ctrl-C reaches the child only once, through process 1.
    os.setpgid(0, 0)
    for name in _NUMBERED:
        if os.environ.get(name) == "1":
            os.environ[name] = str(os.getpid())
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _reap_until(child: int, heard: set[signal.Signals]) -> NoReturn:
    while True:
        number = signal.sigwait(heard)
        if number != signal.SIGCHLD:
            os.kill(child, number)
            continue
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                code = os.waitstatus_to_exitcode(ended[1])
                os._exit(code if code >= 0 else 128 - code)
