"""Recovery: what happens to dot-names that a crash left in ``new/``.

A dot-name whose file has the checksum in the name is complete: it may have been acknowledged, so it
is promoted, at any time (its writer, if alive, notices and is content). Any other is torn: no one
was told that it was stored, so it is removed once no writer can be at work on it. A length would
not do: ext4 and xfs may bring a file back at its full length with zeros for bytes.
A reservation whose holder is gone goes at once, what a probe left behind goes in time.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from .names import seal_of, split_staged
from .probe.scratch import is_scratch
from .reservation import clear_stale, is_reservation
from .transitions import NEW
from .tree import STRAY, Tree

# Writing one message takes milliseconds. A writer that was stopped for longer finds its file gone
# and answers 503.
TORN_AFTER_S = 60.0
COMPLETE_AFTER_S = 10.0
# So often the mover looks.
RECOVER_EVERY_S = 30.0
# What still stands then no mover looks after; one look may have come too early, or been slow.
OVERDUE_AFTER_S = TORN_AFTER_S + 2 * RECOVER_EVERY_S
_CHUNK_BYTES = 1024 * 1024


class Recovered(NamedTuple):
    promoted: int = 0
    removed: int = 0


def promote(tree: Tree, staged: str) -> bool:
    """Promote one dot-name of ``new/`` if it is complete, durably. Raises OSError."""
    parts = split_staged(staged)
    if parts is None:
        return False
    name, seal = parts
    path = tree.folder(NEW, staged)
    if not is_complete(tree, path, seal, durably=True):
        return False
    # Its writer may not have come to this. A retry that finds the name takes it for stored.
    tree.sync_folder(tree.folder(NEW))
    try:
        return tree.rename(path, tree.folder(NEW, name))
    except FileExistsError:
        return False


def is_complete(tree: Tree, path: str, seal: int, *, durably: bool = False) -> bool:
    """Whether a file has the bytes that its dot-name tells; False if it is gone. Raises OSError.

    durably: sync it, too. Its writer may be alive and about to; the name without the dot, which is
        believed for what it is, must not be on stable media before the bytes are.
    """
    try:
        fd = tree.open(path)
    except OSError as error:
        if error.errno in STRAY:
            return False
        raise
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return False
        if durably:
            os.fsync(fd)
            # Its writer's fsync may have failed, and could not take it back. The next one says yes
            # all the same, and what the memory holds is not what the disk holds: ask the disk.
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        found = 0
        while chunk := os.read(fd, _CHUNK_BYTES):
            found = seal_of(chunk, found)
        return found == seal
    finally:
        os.close(fd)


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
    if (parts is not None or is_scratch(name)) and age >= TORN_AFTER_S:
        return Recovered(removed=int(tree.unlink(path)))
    return Recovered()
