"""The links of messages that move between queues of which one has an index or both.

A message has its link in the target, durably, before it comes there, and keeps the one in the
source until it has left durably. So it is found by its id wherever a crash leaves it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from ..context import Context
from ..durability.links import forget_link, make_link
from ..errors import FsmqError
from ..layout.given_ids import read_given
from ..layout.transitions import DELAY, IDS, NEW, QUEUES, State
from ..layout.tree import STRAY

# Messages whose links share their syncs.
PART = 500
_STATES = (State.NEW, State.READY, State.DELAY, State.READY)


class _Known(NamedTuple):
    given_id: str
    inode: int


class LinksOfMove:
    """Some messages that are about to move, in a ``with``. ``conflicts``: those that have to stay,
    since a message of the target has the same given id. Methods raise OSError, Unavailable."""

    def __init__(self, context: Context, source: str, target: str, names: Sequence[str]) -> None:
        self.conflicts: set[str] = set()
        self._context = context
        self._tree = context.tree
        self._source, self._target = source, target
        self._names = names
        self._from, self._to = (context.settings.last(q).index for q in (source, target))
        self._known: dict[str, _Known] = {}

    def __enter__(self) -> LinksOfMove:
        if self._from or self._to:
            for name in dict.fromkeys(self._names):
                self._link(name)
        if self._to and self._known:
            self._tree.sync_folder(self._tree.folder(IDS, self._target))
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if not self._known:
            return
        tree = self._tree
        folders = [tree.folder(QUEUES, queue) for queue in (self._source, self._target)]
        for folder in (*folders, tree.folder(NEW), tree.folder(DELAY)):
            tree.sync_folder(folder)
        for name, known in self._known.items():
            try:
                self._settle(name, known)
            except (OSError, FsmqError):
                continue  # a link is left; the next put of the id, or fsck, finds it stale

    def _link(self, name: str) -> None:
        for state in _STATES:
            path = self._tree.path(state, self._source, name)
            try:
                fd = self._tree.open(path)
            except OSError as error:
                if error.errno in STRAY:
                    continue
                raise
            try:
                given, inode = read_given(fd), os.fstat(fd).st_ino
            finally:
                os.close(fd)
            if given is None or given.name != name:
                return
            try:
                if self._to and not make_link(self._tree, self._target, given.id, path, inode):
                    self.conflicts.add(name)
                    return
            except FileNotFoundError:
                continue  # it has moved on
            self._known[name] = _Known(given.id, inode)
            return

    def _settle(self, name: str, known: _Known) -> None:
        """Keep the one link that a message needs where it is now."""
        tree = self._tree
        is_here = any(
            (found := tree.stat(tree.path(state, self._source, name))) is not None
            and found.st_ino == known.inode
            for state in _STATES
        )
        if is_here and self._to:
            forget_link(tree, self._target, known.given_id, known.inode)
        elif not is_here and self._from:
            forget_link(tree, self._source, known.given_id, known.inode)
