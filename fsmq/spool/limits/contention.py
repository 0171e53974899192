"""How long a claim waits for another process that holds the queue's lock."""

from __future__ import annotations

from typing import NoReturn

from ..durability.locks import may_wait
from ..errors import InUse
from ..index import listings

# In a thread for which others wait, and elsewhere.
SHORT_S, LONG_S = 0.01, 1.0


def patience_s() -> float:
    """How long this thread waits."""
    return LONG_S if listings.are_allowed() and may_wait() else SHORT_S


def give_up(queue: str) -> NoReturn:
    """Report that the wait was in vain.

    Raises:
        Unlisted: a thread that may wait longer has to try. InUse: this thread is one.
    """
    listings.check(queue)
    raise InUse(
        f"another program holds the lock for claims from queue {queue!r}: it may be stopped", 1
    )
