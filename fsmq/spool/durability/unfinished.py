"""Unfinished puts: what stands in ``new/`` under a dot-name, and what becomes of it.

A dot-name whose file has the checksum in the name is complete: it may have been acknowledged, so it
gets its name, unless a message of its id stands. Any other is torn: no one was told that it was
stored, so it is removed. A length would not do: ext4 and xfs may bring a file back at its full
length with zeros for bytes.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from ..layout.names import seal_of, siblings, split_entry, split_staged
from ..layout.transitions import NEW, State
from ..layout.tree import STRAY, Tree

_CHUNK_BYTES = 1024 * 1024


class Recovered(NamedTuple):
    """What was done about dot-names: how many got their names, how many were removed."""

    promoted: int = 0
    removed: int = 0


def stands(tree: Tree, queue: str, message_id: str, *, gone_too: bool = False) -> bool:
    """Whether a message of this id stands in the spool; also in ``remove/`` with ``gone_too``."""
    # In the direction in which messages travel, and again where they travel back.
    states = [State.NEW, State.READY, State.DELAY, State.READY, State.DELAY]
    if gone_too:
        states.append(State.REMOVE)
    return any(tree.look(tree.path(state, queue, message_id)) is not None for state in states)


def own_id(staged: str) -> tuple[str, str] | None:
    """The queue and the id, as a put may have been given it, of a dot-name; None if it is none."""
    parts = split_staged(staged)
    entry = split_entry(parts[0]) if parts is not None else None
    return (entry[0], siblings(entry[1])[0]) if entry is not None else None


def is_complete(tree: Tree, staged: str, *, durably: bool = False) -> bool:
    """Whether a file has the bytes that its dot-name tells; False if it is gone. Raises OSError.

    durably: sync it, too. Its writer may be alive and about to; the name without the dot, which is
        believed for what it is, must not be on stable media before the bytes are.
    """
    parts = split_staged(staged)
    if parts is None:
        return False
    try:
        fd = tree.open(tree.folder(NEW, staged))
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
            if hasattr(os, "posix_fadvise"):  # macOS has none
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        found = 0
        while chunk := os.read(fd, _CHUNK_BYTES):
            found = seal_of(chunk, found)
        return found == parts[1]
    finally:
        os.close(fd)


def promote(tree: Tree, staged: str) -> Recovered:
    """Give a file that is complete and synced its name, or remove it if its id stands.

    For who holds the reservation of the id: no put of it is under way. Raises OSError.
    """
    parts = split_staged(staged)
    assert parts is not None
    queue, _, message_id = parts[0].rpartition(":")
    path = tree.folder(NEW, staged)
    # Not by the name alone: of a put that was tried again with other attributes it may be another.
    if any(stands(tree, queue, name) for name in siblings(message_id)):
        return Recovered(removed=int(tree.unlink(path)))
    # Its writer may not have come to this. A retry that finds the name takes it for stored.
    tree.sync_folder(tree.folder(NEW))
    try:
        return Recovered(promoted=int(tree.rename(path, tree.folder(NEW, parts[0]))))
    except FileExistsError:
        return Recovered()  # a shell user's, of this moment; the next look removes ours


def finish(tree: Tree, staged: str) -> Recovered:
    """Promote a file, or remove it, whose writer is dead; under the reservation. OSError."""
    if is_complete(tree, staged, durably=True):
        return promote(tree, staged)
    return Recovered(removed=int(tree.unlink(tree.folder(NEW, staged))))
