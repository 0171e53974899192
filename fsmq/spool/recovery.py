"""Recovery: what happens to dot-names that a crash left in ``new/``.

A dot-name whose file has the length in the name is complete: it may have been acknowledged, so it
is promoted, at any time (its writer, if alive, notices and is content). One of another length is
torn: no one was told that it was stored, so it is removed once no writer can be at work on it.
A reservation whose holder is gone goes at once.
"""

from __future__ import annotations

import stat
from typing import NamedTuple

from .names import split_staged
from .reservation import clear_stale, is_reservation
from .tree import NEW, Tree

# Writing one message takes milliseconds. A writer that was stopped for longer finds its file gone
# and answers 503.
TORN_AFTER_S = 60.0
COMPLETE_AFTER_S = 10.0


class Recovered(NamedTuple):
    promoted: int = 0
    removed: int = 0


def promote(tree: Tree, staged: str) -> bool:
    """Promote one dot-name of ``new/`` if it is complete. Raises OSError."""
    parts = split_staged(staged)
    path = tree.folder(NEW, staged)
    found = tree.stat(path)
    if parts is None or found is None or not stat.S_ISREG(found.st_mode):
        return False
    name, length = parts
    if found.st_size != length:
        return False
    try:
        return tree.rename(path, tree.folder(NEW, name))
    except FileExistsError:
        return False


def recover(tree: Tree, now: float, *, at_start: bool = False) -> Recovered:
    """Promote complete dot-names and remove torn ones; ``now`` is in Unix seconds.

    ``at_start`` promotes complete ones of any age. Raises OSError.
    """
    promoted = removed = 0
    first: OSError | None = None
    for name in [e.name for e in tree.walk(tree.folder(NEW)) if e.name[0] == "."]:
        try:
            done = recover_one(tree, name, now, at_start=at_start)
        except OSError as error:
            first = first or error  # one bad entry must not keep the others from coming back
            continue
        promoted += done.promoted
        removed += done.removed
    if first is not None and not promoted + removed:
        raise first
    return Recovered(promoted, removed)


def recover_one(tree: Tree, name: str, now: float, *, at_start: bool = False) -> Recovered:
    """Do the same for one dot-name of ``new/``; one that may be in use is left. Raises OSError."""
    parts = split_staged(name)
    path = tree.folder(NEW, name)
    found = tree.stat(path)
    if found is None or not stat.S_ISREG(found.st_mode):
        return Recovered()
    age = now - found.st_ctime
    if parts is not None and (at_start or age >= COMPLETE_AFTER_S) and promote(tree, name):
        return Recovered(promoted=1)
    if is_reservation(name):
        return Recovered(removed=int(clear_stale(tree, name)))
    if parts is not None and age >= TORN_AFTER_S:
        return Recovered(removed=int(tree.unlink(path)))
    return Recovered()
