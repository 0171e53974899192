"""Messages of a queue with an index whose file has one name only: their link has gone."""

from __future__ import annotations

import os

from ..context import Context
from ..durability.links import make_link
from ..layout.given_ids import read_given
from ..layout.transitions import REMOVE_READY, State


def keeps_id(context: Context, queue: str, fd: int, found: os.stat_result) -> bool:
    """Whether a ready message, which is latched, may be claimed. Costs nothing if it is linked.

    Without its link it has been replaced by an upsert that a crash kept from removing it: now it is
    removed. Or someone has copied the tree: then it is linked again. Raises OSError, Unavailable.
    """
    if found.st_nlink > 1:
        return True
    given = read_given(fd)
    if given is None:
        return True
    tree = context.tree
    path = tree.path(State.READY, queue, given.name)
    here = tree.look(path)
    if here is None or here.st_ino != found.st_ino:
        return True  # it has moved on, or was written by hand and names another file
    try:
        if make_link(tree, queue, given.id, path, found.st_ino):
            return True
    except FileNotFoundError:
        return True  # it has moved on
    tree.move(REMOVE_READY, queue, given.name)
    return False
