"""Counts: how many messages a queue has in each state."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from ..errors import FsmqError, QueueFull
from ..index import listings
from ..layout.names import split_entry
from ..layout.stamps import Stamps
from ..layout.transitions import DELAY, NEW
from ..layout.tree import Tree

# A count is at most so old, or older where counting would take more than a twentieth of the time.
_FRESH_S = 1.0
_COUNT_SHARE = 0.05


class Counts(NamedTuple):
    """Messages of one queue, by state."""

    new: int = 0  # accepted, not yet delivered
    ready: int = 0  # may be claimed
    in_flight: int = 0  # claimed and not acknowledged
    delayed: int = 0  # sent with a delay that runs

    @property
    def total(self) -> int:
        return sum(self)


def count(tree: Tree, stamps: Stamps, queue: str, now_ms: int) -> Counts:
    """Count by listing. Raises OSError."""
    new = sum(1 for _ in _ids(tree, NEW, queue))
    ready = len(tree.ready_names(queue) or ())
    in_flight = delayed = 0
    for message_id in _ids(tree, DELAY, queue):
        found = tree.stat(tree.folder(DELAY, f"{queue}:{message_id}"))
        if found is None:
            continue
        if stamps.hidden_state(message_id, found.st_mtime_ns, now_ms) == "delayed":
            delayed += 1
        else:
            in_flight += 1
    return Counts(new, ready, in_flight, delayed)


def _ids(tree: Tree, folder: str, queue: str) -> list[str]:
    prefix = queue + ":"
    parts = (split_entry(n) for n in tree.names(tree.folder(folder)) if n.startswith(prefix))
    return [part[1] for part in parts if part is not None and part[0] == queue]


class Uncounted(FsmqError):
    """How deep a queue is has to be counted first, with :meth:`Depths.learn`; nothing was done."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"the messages of queue {queue!r} have to be counted")
        self.queue = queue


class _Depth:
    """What is known about one queue."""

    __slots__ = ("counting", "depth", "until")

    def __init__(self) -> None:
        self.counting = threading.Lock()
        self.until = 0.0  # monotonic seconds
        self.depth = 0


class Depths:
    """Enforces ``max_depth``: a count of at most a second ago, plus what was put since."""

    def __init__(self, counted: Callable[[str], int]) -> None:
        self._counted = counted
        self._known: dict[str, _Depth] = {}
        self._lock = threading.Lock()

    def is_known(self, queue: str) -> bool:
        """Whether a queue's depth is known well enough."""
        known = self._known.get(queue)
        return known is not None and time.monotonic() < known.until

    def learn(self, queue: str) -> None:
        """Count a queue whose depth is not known. Of many who ask at once, one counts.

        Raises what the count raises.
        """
        with self._lock:
            known = self._known.setdefault(queue, _Depth())
        with known.counting:
            started = time.monotonic()
            if started < known.until:
                return
            depth = self._counted(queue)
            cost = time.monotonic() - started
            with self._lock:
                known.depth = depth
                known.until = started + max(_FRESH_S, cost / _COUNT_SHARE)

    def admit(self, queue: str, limit: int | None, more: int) -> None:
        """Let ``more`` messages in.

        Raises:
            QueueFull
            Uncounted: where this thread may list no folder.
        """
        if limit is None:
            return
        if not self.is_known(queue):
            if not listings.are_allowed():
                raise Uncounted(queue)
            self.learn(queue)
        with self._lock:
            known = self._known[queue]
            if known.depth + more > limit:
                raise QueueFull(queue, limit)
            known.depth += more
