"""Unlinking the links of a message that goes for good: each is a name of its file, and keeps it.

Most files have one link, in the index of their queue. Files that have moved can have others. A link
is unlinked under the lock of its id. A link that cannot be unlinked now is found later
(`fsmq.spool.stale_links`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection
from contextlib import suppress

from ..errors import is_full
from ..layout.messages.given_ids import link_name, read_given
from ..layout.names import facts, is_queue
from ..layout.transitions import IDS, State
from ..layout.tree import STRAY, Tree
from .ids import Held, has, leads_to, link_path, settle

# The file is gone, not a regular file, or another user's: no links of it can be found.
_NO_MESSAGE = (*STRAY, errno.EACCES, errno.EPERM)


class Leaving:
    """A message's file that is to go, kept open so that no other file gets its inode number."""

    def __init__(self, tree: Tree, path: str, queue: str, name: str) -> None:
        self._tree = tree
        self._queue = queue
        self._given_id = ""
        self.links = 0  # how many are left
        self._fd = -1
        try:
            self._fd = tree.open(path)
            found, given = os.fstat(self._fd), read_given(self._fd)
        except OSError as error:
            self.close()
            if error.errno not in _NO_MESSAGE:
                raise
        else:
            self._inode = found.st_ino
            if given is not None and given.name == name:
                self._given_id, self.links = given.id, found.st_nlink - 1

    def __enter__(self) -> Leaving:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def forget_links(self, held: Held, indexes: Collection[str]) -> bool:
        """Unlink its links in some queues' indexes; False if another process has locked its id.

        held: used to lock the id meanwhile. Raises OSError.
        """
        is_all = True
        for index in (self._queue, *(one for one in indexes if one != self._queue)):
            if self.links and index in indexes:
                with suppress(FileNotFoundError):  # that queue has just been deleted
                    gone = forget_links(held, self._tree, index, self._given_id, self._inode)
                    is_all &= gone is not None
                    self.links -= gone or 0
        return is_all


def discard(tree: Tree, path: str, queue: str, name: str) -> bool:
    """Move a message's file to ``remove/``, or unlink it if that folder has no room for its name.

    A removal must succeed on a full disk. False if the file was gone. Raises OSError.
    """
    try:
        return tree.rename(path, tree.path(State.REMOVE, queue, name), replace=True)
    except OSError as error:
        if not is_full(error):
            raise
    return unlink_message(tree, path, queue, name)


def unlink_message(tree: Tree, path: str, queue: str, name: str) -> bool:
    """Unlink the file of a message, and then its links; False if it was gone. Raises OSError.

    For a file that does not go by way of ``remove/``. Links whose ids others have locked stay.
    """
    if not facts(name).headed:
        return tree.unlink(path)
    leaving = None
    with suppress(OSError):
        leaving = Leaving(tree, path, queue, name)
    try:
        is_gone = tree.unlink(path)
        if is_gone and leaving is not None and leaving.links:
            with suppress(OSError), Held(tree) as held:
                leaving.forget_links(held, [queue])
                leaving.forget_links(held, with_index(tree) if leaving.links else ())
    finally:
        if leaving is not None:
            leaving.close()
    return is_gone


def with_index(tree: Tree) -> set[str]:
    """The queues that have an index. Raises OSError."""
    return {*filter(is_queue, tree.names(tree.folder(IDS)))}


def forget_links(held: Held, tree: Tree, queue: str, given_id: str, inode: int) -> int | None:
    """Unlink an id's links that lead to a file; how many, or None if another process has the id.

    held: used to lock the id. Raises FileNotFoundError if there is no index (any more), OSError.
    """
    link = link_name(given_id)
    if not held.take(queue, [link]):
        return None
    try:
        at, coming = (link_path(tree, queue, link, coming=after) for after in (False, True))
        if not leads_to(tree, at, inode):
            # It may still be the file of a dead upsert that did not replace anything.
            return int(leads_to(tree, coming, inode) and tree.unlink(coming))
        if has(tree, coming):
            settle(tree, queue, [link])  # a dead upsert left it; its file now gets the link
        else:
            tree.unlink(at)
        return 1
    finally:
        held.give(queue, link)
