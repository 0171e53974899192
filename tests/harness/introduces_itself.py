"""A program that prints its environment, for `tests/test_forkserver.py`."""

from __future__ import annotations

import atexit
import json
import os
import resource
import signal
import sys
import threading


def inherited() -> dict[str, object]:
    """Everything that a process inherits, and what Python makes of it."""
    handlers = {
        number.name: str(signal.getsignal(number))
        for number in signal.valid_signals()
        if isinstance(number, signal.Signals)
    }
    return {
        "arguments": sys.argv,
        "original arguments": sys.orig_argv[1:],
        "path": sys.path,
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "name": __name__,
        "files": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1],
        "stdin": os.readlink("/proc/self/fd/0"),
        "leads its session": os.getsid(0) == os.getpgrp() == os.getpid(),
        "handlers": {name: handler.partition(" at 0x")[0] for name, handler in handlers.items()},
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "limits": [
            resource.getrlimit(limit) for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)
        ],
        "umask": os.umask(0),
        "niceness": os.nice(0),
    }


def linger() -> None:
    """Outlive the main thread; the interpreter has to wait for this one."""
    threading.main_thread().join()
    print("a thread ends", file=sys.stderr)


if __name__ == "__main__":
    atexit.register(print, "all ends", file=sys.stderr)
    print(json.dumps(inherited(), sort_keys=True, indent=1))
    print(input(), file=sys.stderr)
    threading.Thread(target=linger).start()
    sys.exit(int(sys.argv[1]))
