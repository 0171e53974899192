"""What a process remembers about things that come and go, while they exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from .tree import Tree

T = TypeVar("T")
# Up to this many are kept without checking that they still exist.
_FEW = 16


class WhileThere(dict[str, T]):
    """Values by the names of things, in a program that outlives many of them.

    Whenever it has twice as many entries as after the last check, entries of things that are gone
    are dropped. So it must be possible to recompute every value.
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
    """The same for queues."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree.has_queue)
