"""A child process that does not outlive its parent."""

import ctypes
import os
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)


def tied_to(parent: int) -> Callable[[], None]:
    """A ``preexec_fn`` that lets the kernel send a child SIGTERM when its parent dies.

    The kernel ties it to the thread that started it, which has to live as long. Only Linux can do
    this: elsewhere a child goes on when its parent is killed.
    """

    def tie() -> None:
        if _prctl is None:
            return
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the tie was made
            os._exit(1)

    return tie
