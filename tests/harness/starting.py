"""A program that starts again and again beside the others.

A starting program finishes what dead programs left, and must not touch the work of living ones.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fsmq.spool import FsmqError, Spool
from fsmq.spool.durability.sync import SyncMode
from tests.harness.calls import Trap, failing, seen

# Between its end and its next start, also after an error: the disk may be gone.
_PAUSE_S = 0.02
# One of _FAILS_OF actions has a failing call, which is one of its first _CALLS.
_FAILS_OF, _CALLS = 8, 30


def start_again_and_again(root: Path, sync: SyncMode = "fsync") -> None:
    while True:
        with suppress(FsmqError, OSError):
            start_once(root, sync)
        time.sleep(_PAUSE_S)


def start_once(root: Path, sync: SyncMode = "fsync") -> None:
    """Do what a mover does at its start, and end."""
    with Spool(root, sync=sync) as spool:
        spool.deliver()
        spool.make_moves()
        spool.tend_logs()


@contextmanager
def failing_now_and_then(chance: random.Random) -> Iterator[None]:
    """Make a call of some actions fail."""
    if chance.randrange(_FAILS_OF):
        yield
        return
    with seen(Trap(chance.randrange(_CALLS), failing(chance.randrange(3)))):
        yield
