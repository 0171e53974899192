"""What the mover cannot deliver: told once, and tried again when its queue appears."""

from __future__ import annotations

from collections.abc import Callable

from .tree import Tree

_MAX_TOLD = 10_000


class Stuck:
    """Entries of ``new/`` and ``delay/`` that have no place to go, by the queue that is missing."""

    def __init__(self, tree: Tree, on_problem: Callable[[str, str], None]) -> None:
        self._tree = tree
        self._on_problem = on_problem
        self._waiting: dict[str, set[tuple[str, str]]] = {}  # queue: (folder, entry)
        self._told: set[str] = set()

    def __contains__(self, queue: str) -> bool:
        return queue in self._waiting

    def tell(self, name: str, reason: str) -> None:
        """Report an entry, once."""
        if name in self._told:
            return
        if len(self._told) >= _MAX_TOLD:
            self._told.clear()
        self._told.add(name)
        self._on_problem(name, reason)

    def keep_if_here(self, folder: str, name: str, queue: str) -> bool:
        """A rename found nothing: the message went elsewhere, or its queue is not there.

        Keeps one without a queue until that appears, and reports it. True if both stand there now:
        the queue was made just now, so the rename is worth another try. Raises OSError.
        """
        if self._tree.stat(self._tree.folder(folder, name)) is None:
            return False
        if self._tree.has_queue(queue):
            return True
        waiting = self._waiting.setdefault(queue, set())
        if (folder, name) not in waiting:
            waiting.add((folder, name))
            self._on_problem(name, f"there is no queue named {queue!r}: create it or move the file")
        return False

    def take(self, queue: str) -> set[tuple[str, str]]:
        """The entries that waited for a queue, which has appeared."""
        return self._waiting.pop(queue)
