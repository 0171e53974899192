"""Counts: how many messages a queue has in each state."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from .errors import QueueFull
from .names import split_entry
from .stamps import Stamps
from .transitions import DELAY, NEW
from .tree import Tree

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
        stamp = stamps.decode(message_id, found.st_mtime_ns)
        if stamp is not None and stamp.deliveries == 0 and stamp.deadline_ms > now_ms:
            delayed += 1
        else:
            in_flight += 1
    return Counts(new, ready, in_flight, delayed)


def _ids(tree: Tree, folder: str, queue: str) -> list[str]:
    prefix = queue + ":"
    parts = (split_entry(n) for n in tree.names(tree.folder(folder)) if n.startswith(prefix))
    return [part[1] for part in parts if part is not None and part[0] == queue]


class Depths:
    """Enforces ``max_depth``: a count of at most a second ago, plus what was put since."""

    def __init__(self, counted: Callable[[str], int]) -> None:
        self._counted = counted
        self._known: dict[str, tuple[float, int]] = {}  # valid until (monotonic), depth
        self._lock = threading.Lock()

    def admit(self, queue: str, limit: int | None, more: int) -> None:
        """Let ``more`` messages in.

        Raises:
            QueueFull
        """
        if limit is None:
            return
        with self._lock:
            until, depth = self._known.get(queue, (0.0, 0))
            started = time.monotonic()
            if started >= until:
                depth = self._counted(queue)
                cost = time.monotonic() - started
                until = started + max(_FRESH_S, cost / _COUNT_SHARE)
            if depth + more > limit:
                self._known[queue] = (until, depth)
                raise QueueFull(queue, limit)
            self._known[queue] = (until, depth + more)
