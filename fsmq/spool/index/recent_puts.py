"""Messages that this process has just put, and that a mover is about to deliver."""

from __future__ import annotations

import time

from ..layout.transitions import State
from ..layout.tree import Tree

# A mover takes a few milliseconds. If none runs, a client waits no longer than this.
_WITHIN_S = 0.05
_MAX_QUEUES = 10_000


class RecentPuts:
    """The last put of each queue. Movers deliver in order, so when it came, all have come.

    Safe in threads: each step is one of a dict.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._last: dict[str, tuple[str, float]] = {}

    def note(self, queue: str, message_id: str) -> None:
        """A message was put, without a delay."""
        if len(self._last) >= _MAX_QUEUES:
            self._last = {}  # they only save a client another try
        self._last[queue] = message_id, time.monotonic() + _WITHIN_S

    def last(self, queue: str) -> tuple[str, float] | None:
        """The last put of a queue that is known, for :meth:`is_new`."""
        return self._last.get(queue)

    def is_new(self, queue: str, put: tuple[str, float]) -> bool:
        """Whether a put may be waited for: it was a moment ago, and is not delivered."""
        message_id, until = put
        if time.monotonic() >= until:
            return False
        try:
            return self._tree.stat(self._tree.path(State.NEW, queue, message_id)) is not None
        except OSError:
            return False  # the next claim reports it
