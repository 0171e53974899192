"""What a process remembers of things that come and go, for as long as they exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from .tree import Tree

T = TypeVar("T")
# Of so many nobody asks whether they are still there.
_FEW = 16


class WhileThere(dict[str, T]):
    """Something of each of some things, by name, in a program that outlives many of them.

    Each time it has twice as many as stood at the last look, what it has of those that are gone is
    dropped. So everything in it must be such as can be made anew.
    """

    def __init__(self, is_there: Callable[[str], bool]) -> None:
        super().__init__()
        self._is_there = is_there
        self._most = _FEW

    def __setitem__(self, name: str, what: T) -> None:
        super().__setitem__(name, what)
        if len(self) <= self._most:
            return
        for other in list(self):
            if other != name and not self._is_there(other):
                self.pop(other, None)
        self._most = max(_FEW, 2 * len(self))


class OfQueues(WhileThere[T]):
    """The same of queues."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree.has_queue)
