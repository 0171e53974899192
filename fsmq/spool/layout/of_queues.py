"""What a process remembers of queues, for as long as they exist."""

from __future__ import annotations

from typing import TypeVar

from .tree import Tree

T = TypeVar("T")
# Of so many nobody asks whether they are still there.
_FEW = 16


class OfQueues(dict[str, T]):
    """Something of each of some queues, by name, in a program that outlives many of them.

    Each time it has twice as many as stood at the last look, what it has of queues that are gone
    is dropped. So everything in it must be such as can be made anew.
    """

    def __init__(self, tree: Tree) -> None:
        super().__init__()
        self._tree = tree
        self._most = _FEW

    def __setitem__(self, queue: str, what: T) -> None:
        super().__setitem__(queue, what)
        if len(self) <= self._most:
            return
        for name in list(self):
            if name != queue and not self._tree.has_queue(name):
                self.pop(name, None)
        self._most = max(_FEW, 2 * len(self))
