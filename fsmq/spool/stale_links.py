"""Removal of stale links: links of given ids whose messages are gone.

The process that unlinks a message's file also unlinks its links; but it can die, or meet a lock or
a failing disk. A link that is the only name of its file leads to nothing, and keeps the file's
bytes. So all indexes are checked now and then.
"""

from __future__ import annotations

import os
import stat
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import islice

from .durability.ids import NEXT, Held, settle
from .durability.leaving import with_index
from .layout.duty_cycle import DutyCycle
from .layout.transitions import IDS
from .layout.tree import Tree

EVERY_S = 3600.0
_THROTTLE = DutyCycle(0.02)
_STEP = 2000


class StaleLinks:
    """Checks all indexes every hour, a part at each :meth:`step`, using a share of the time.

    on_fault: called with a path that cannot be read, and the error; the next round retries it.
    """

    def __init__(
        self, tree: Tree, on_fault: Callable[[str, OSError], None] = lambda path, error: None
    ) -> None:
        self._tree = tree
        self._on_fault = on_fault
        self._rest: Iterator[tuple[str, str, bool]] | None = None  # of this round
        self._due = 0.0

    def step(self) -> float:
        """Check the next links if it is time; returns the seconds until it is time again."""
        begun = time.monotonic()
        if begun < self._due:
            return self._due - begun
        if self._rest is None:
            self._rest = self._all()
        part = list(islice(self._rest, _STEP))
        self._forget_all(part)
        if len(part) == _STEP:
            pause = _THROTTLE.pause(time.monotonic() - begun)
        else:
            self._rest, pause = None, EVERY_S
        self._due = time.monotonic() + pause
        return pause

    def _all(self) -> Iterator[tuple[str, str, bool]]:
        """All links, each with its queue, and whether it leads to nothing."""
        for queue in self._queues():
            folder = self._tree.folder(IDS, queue)
            try:
                for found in self._tree.walk(folder):
                    yield queue, found.name.removeprefix(NEXT), _leads_nowhere(found)
            except OSError as error:  # one that fails must not stop the others
                self._on_fault(folder, error)

    def _queues(self) -> set[str]:
        try:
            return with_index(self._tree)
        except OSError as error:
            self._on_fault(self._tree.folder(IDS), error)
            return set()

    def _forget_all(self, part: list[tuple[str, str, bool]]) -> None:
        stale: dict[str, set[str]] = defaultdict(set)
        for queue, link, is_stale in part:
            if is_stale and link[0] != ".":
                stale[queue].add(link)
        for queue, links in stale.items():
            self._forget(queue, links)

    def _forget(self, queue: str, links: set[str]) -> None:
        """Check them again under the locks of their ids; skips those that are locked."""
        try:
            with Held(self._tree) as held:
                settle(self._tree, queue, [link for link in links if held.take(queue, [link])])
        except FileNotFoundError:
            return  # the queue was deleted with its links
        except OSError as error:
            if len(links) == 1:
                self._on_fault(f"{self._tree.folder(IDS, queue)}/{min(links)}", error)
                return
            for link in links:
                self._forget(queue, {link})


def _leads_nowhere(found: os.DirEntry[str]) -> bool:
    try:
        file = found.stat(follow_symlinks=False)
    except OSError:
        return False  # it is gone
    return stat.S_ISREG(file.st_mode) and file.st_nlink == 1
