"""A child that does not outlive who started it."""

import ctypes
import os
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)


def tied_to(parent: int) -> Callable[[], None]:
    """Make what a child does before it becomes its program: a dead parent sends it SIGTERM.

    The kernel ties it to the thread that started it, which has to live as long. Only Linux can:
    elsewhere a child goes on when its parent is killed.
    """

    def tie() -> None:
        if _prctl is None:
            return
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it died before the tie was made
            os._exit(1)

    return tie
