"""A program that starts again and again, beside all others, until it is killed.

Whoever starts takes what is unfinished for a dead program's, unless something tells otherwise.
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

# Between its end and its next start; and behind an error: the disk may be gone for good.
_PAUSE_S = 0.02
# One of so many deeds has a call that fails, which is one of its first so many.
_FAILS_OF, _CALLS = 8, 30


def start_again_and_again(root: Path, sync: SyncMode = "fsync") -> None:
    while True:
        with suppress(FsmqError, OSError):
            start_once(root, sync)
        time.sleep(_PAUSE_S)


def start_once(root: Path, sync: SyncMode = "fsync") -> None:
    """Do what a mover does at first, and end."""
    with Spool(root, sync=sync) as spool:
        spool.deliver()
        spool.make_moves()
        spool.tend_logs()


@contextmanager
def failing_now_and_then(chance: random.Random) -> Iterator[None]:
    """Let a call fail, in some of the deeds that are done within."""
    if chance.randrange(_FAILS_OF):
        yield
        return
    with seen(Trap(chance.randrange(_CALLS), failing(chance.randrange(3)))):
        yield
