"""How long a claim waits for one of another process, which holds the queue's lock meanwhile."""

from __future__ import annotations

from typing import NoReturn

from ..durability.locks import may_wait
from ..errors import InUse
from ..index import listings

# Where others wait behind the thread, and elsewhere.
SHORT_S, LONG_S = 0.01, 1.0


def patience_s() -> float:
    """How long this thread waits."""
    return LONG_S if listings.are_allowed() and may_wait() else SHORT_S


def give_up(queue: str) -> NoReturn:
    """Tell that the wait was in vain.

    Raises:
        Unlisted: a thread that may wait longer is to try. InUse: this is one.
    """
    listings.check(queue)
    raise InUse(
        f"another program is claiming from queue {queue!r} and does not go on: it may be stopped", 1
    )
