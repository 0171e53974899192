"""Lag: what has been waiting for a mover or a reaper for too long."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ..context import Context
from ..layout.names import split_entry
from ..layout.transitions import DELAY, NEW, REMOVE


class Lag(NamedTuple):
    """What stands still in a tree. Times are seconds.

    undelivered: the age of the oldest message in ``new/`` whose queue exists.
    overdue: how long ago the timer ended that ended first, of the messages in ``delay/``.
    homeless: messages of queues that do not exist, by queue.
    removed: entries of ``remove/``.
    redelivered: the most deliveries of a message in ``delay/``, by queue.
    """

    undelivered: float
    overdue: float
    homeless: Counter[str]
    removed: int
    redelivered: dict[str, int]


def measure(context: Context) -> Lag:
    """Look at ``new/``, ``delay/`` and ``remove/``, each entry once. Raises OSError."""
    tree, now = context.tree, context.clock()
    queues = set(tree.queues())
    undelivered = overdue = 0.0
    homeless: Counter[str] = Counter()
    redelivered: dict[str, int] = {}
    for folder in (NEW, DELAY):
        for name in tree.names(tree.folder(folder)):
            parts = split_entry(name)
            if parts is None:
                continue
            queue, message_id = parts
            if queue not in queues:
                homeless[queue] += 1
                continue
            found = tree.stat(tree.folder(folder, name))
            if found is None:
                continue
            stamp = context.stamps.decode(message_id, found.st_mtime_ns)
            deadline = stamp.deadline_ms / 1000 if stamp is not None else 0.0
            if folder == DELAY:
                # Without a deadline it is due since it came here.
                overdue = max(overdue, now - max(deadline, found.st_ctime))
                count = context.stamps.deliveries(message_id, found.st_mtime_ns)
                redelivered[queue] = max(redelivered.get(queue, 0), count)
            else:
                undelivered = max(undelivered, now - found.st_ctime)
    removed = sum(1 for _ in tree.walk(tree.folder(REMOVE)))
    return Lag(undelivered, overdue, homeless, removed, redelivered)
