"""Messages that cannot be delivered: reported, and tried again when their queue appears."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable

from ..layout.tree import Tree

# After this many reports there are none for a while: fsck reports all.
_MAX_REPORTED = 1000
_SILENCE_S = 3600.0
# The most entries and missing queues to remember; a listing finds the others when a queue appears.
_MAX_KEPT = 10_000
_MAX_QUEUES = 1000


class Undeliverable:
    """Entries of ``new/`` and ``delay/`` whose queues are missing, by queue."""

    def __init__(self, tree: Tree, on_problem: Callable[[str, str], None]) -> None:
        self._tree = tree
        self._on_problem = on_problem
        self._waiting: dict[str, set[tuple[str, str]]] = {}  # queue: (folder, entry)
        self._kept = 0
        self._has_more = False  # more wait than are kept, perhaps for other queues
        self._counted: dict[tuple[str, str], int] = {}  # folder, queue: how many were reported
        self._reported: set[str] = set()
        self._silent_until = 0.0  # monotonic seconds

    def report(self, name: str, reason: str) -> None:
        """Report an entry, once."""
        if name in self._reported:
            return
        if len(self._reported) >= _MAX_REPORTED:
            if time.monotonic() < self._silent_until:
                return
            self._reported.clear()
        self._reported.add(name)
        if len(self._reported) == _MAX_REPORTED:
            self._silent_until = time.monotonic() + _SILENCE_S
            reason += "; others are not reported for an hour: fsmq fsck finds all"
        self._on_problem(name, reason)

    def waits(self, folder: str, name: str) -> bool:
        """Whether an entry's queue is known to be missing; if so, the entry waits for it.

        An entry that can expire does not wait: expiry needs no queue.
        """
        queue = name.rpartition(":")[0]
        if queue not in self._waiting or ".x" in name:
            return False
        self._keep(queue, folder, name)
        return True

    def keep_if_here(self, folder: str, name: str, queue: str) -> bool:
        """Handle a rename that found nothing: the message is gone, or its queue is missing.

        Keeps a message until its queue appears, and reports the queue. True if both exist: the
        queue was just made, so the rename is worth another try. Raises OSError.
        """
        if self._tree.stat(self._tree.folder(folder, name)) is None:
            return False
        if self._tree.has_queue(queue):
            return True
        if queue in self._waiting or len(self._waiting) < _MAX_QUEUES:
            self._keep(queue, folder, name)
        else:
            self._has_more = True
        return False

    def without(self, folder: str, names: Iterable[str]) -> list[str]:
        """The entries of a folder that do not wait for a queue; reports the others now and then."""
        for queue in [queue for queue in self._waiting if self._tree.has_queue(queue)]:
            self.pop(queue)
            self._has_more = True  # in the other folder, which the event makes us list, too
        if not self._waiting:
            return list(names)
        left: list[str] = []
        waiting: Counter[str] = Counter()
        examples: dict[str, str] = {}
        for name in names:
            queue = name.rpartition(":")[0]
            if queue in self._waiting and ".x" not in name:
                waiting[queue] += 1
                examples[queue] = name
            else:
                left.append(name)
        for queue, number in waiting.items():
            self._count(folder, examples[queue], queue, number)
        return left

    def is_awaited(self, queue: str) -> bool:
        """Whether entries wait for a queue that has appeared."""
        return queue in self._waiting or self._has_more

    def pop(self, queue: str) -> set[tuple[str, str]] | None:
        """The entries that waited for a queue; None if only a listing can find all."""
        found = self._waiting.pop(queue, set())
        self._kept -= len(found)
        self._counted = {of: n for of, n in self._counted.items() if of[1] != queue}
        if self._has_more:
            self._has_more = bool(self._waiting)
            return None
        return found

    def _keep(self, queue: str, folder: str, name: str) -> None:
        waiting = self._waiting.setdefault(queue, set())
        if (folder, name) in waiting:
            return
        if self._kept < _MAX_KEPT:
            waiting.add((folder, name))
            self._kept += 1
        else:
            self._has_more = True
        self._count(folder, name, queue, len(waiting) or 1)

    def _count(self, folder: str, name: str, queue: str, number: int) -> None:
        """Report how many wait for a queue: at first, and each time there are ten times as many."""
        counted = self._counted.get((folder, queue))
        if counted is not None and number < 10 * counted:
            return
        self._counted[folder, queue] = number
        many = "" if number == 1 else f" for it and {number - 1} others"
        reason = f"there is no queue named {queue!r}{many}: create it or move the file"
        self._on_problem(name, reason)
