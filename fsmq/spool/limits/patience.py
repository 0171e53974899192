"""How long a claim waits for one of another process, which holds the queue's lock meanwhile."""

from __future__ import annotations

import math
import time

from ..errors import InUse
from ..index import listings

# Where others wait behind the thread, and elsewhere.
SHORT_S, LONG_S = 0.01, 1.0


class Patience:
    """The waits for one queue.

    A wait that was in vain makes the next ones short: whoever holds the lock may be stopped for
    ever, and there are few threads that may wait long.
    """

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._in_vain_at = -math.inf  # monotonic seconds

    def seconds(self) -> float:
        """How long to wait now."""
        return LONG_S if listings.are_allowed() and not self._was_in_vain() else SHORT_S

    def give_up(self) -> None:
        """Tell that a wait was in vain.

        Raises:
            Unlisted: a thread that may wait longer is to try. InUse: that was in vain, too.
        """
        if not self._was_in_vain():
            listings.check(self._queue)
            self._in_vain_at = time.monotonic()
        raise InUse(
            f"another program is claiming from queue {self._queue!r} and does not go on:"
            " it may be stopped",
            1,
        )

    def _was_in_vain(self) -> bool:
        return time.monotonic() - self._in_vain_at < LONG_S
