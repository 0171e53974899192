"""Unfinished puts: files in ``new/`` with a dot-name, and how they are finished.

The dot-name contains a checksum, with a delay also of the timer. A file that matches it is
complete: its put may have been answered with success, so it is promoted to its name, unless a
message of its id exists. Any other file is torn: its put never succeeded, so it is removed.
Comparing lengths is not enough: after a crash ext4 and xfs can bring a file back at its full length
but filled with zeros.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..layout.names import seal_of, siblings, split_entry, split_staged, taken_entry
from ..layout.transitions import NEW, QUEUES, State
from ..layout.tree import STRAY, Tree

_CHUNK_BYTES = 1024 * 1024
# In the direction in which messages move; the last two again, as a message can move back.
_STATES = (State.NEW, *(State.READY, State.DELAY) * 3)
# How often to look at all of them: a queue can change all the time.
_ROUNDS = 20


class Recovered(NamedTuple):
    """How many dot-names were promoted to their names, and how many were removed."""

    promoted: int = 0
    removed: int = 0


def exists(
    tree: Tree, queue: str, message_id: str, *, gone_too: bool = False, taken_too: bool = True
) -> bool:
    """Whether a message of this id is in the spool; also in ``remove/`` with ``gone_too``.

    taken_too: also one that was taken away, which can come back.
    """
    paths = _paths(tree, _prefixes(tree, queue), queue, message_id, taken_too)
    if gone_too:
        paths.append(tree.path(State.REMOVE, queue, message_id))
    return _first(tree, queue, {message_id: paths}) is not None


def found_as(tree: Tree, queue: str, names: Sequence[str]) -> str | None:
    """The first of some names under which a message is in the spool; None if there is none."""
    prefixes = _prefixes(tree, queue)
    return _first(tree, queue, {name: _paths(tree, prefixes, queue, name) for name in names})


def _prefixes(tree: Tree, queue: str) -> list[str]:
    """What stands before an id in the paths of a message in one state after the other."""
    return [tree.path(state, queue, "") for state in _STATES]


def _paths(
    tree: Tree, prefixes: Sequence[str], queue: str, message_id: str, taken_too: bool = True
) -> list[str]:
    paths = [prefix + message_id for prefix in prefixes]
    if taken_too and (taken := taken_entry(queue, message_id)) is not None:
        paths.insert(-1, tree.folder(NEW, taken))
    return paths


def _first(tree: Tree, queue: str, paths: Mapping[str, Sequence[str]]) -> str | None:
    """The first of these names one of whose paths exists."""
    for _ in range(_ROUNDS):
        before = _changed_ns(tree, queue)
        for name, places in paths.items():
            if _is_at_one(tree, places):
                return name
        # A claim or a release changes the folder of the queue, and may have moved the message past
        # all looks. Changes within one tick of the clock do not show in the folder's time.
        if _changed_ns(tree, queue) == before:
            break
    return None


def _is_at_one(tree: Tree, paths: Sequence[str]) -> bool:
    """Whether one of these paths exists; a put of a given id looks at more than thirty."""
    if tree.network:
        return any(tree.look(path) is not None for path in paths)
    for path in paths:
        try:
            os.stat(path, dir_fd=tree.fd, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            continue
        return True
    return False


def _changed_ns(tree: Tree, queue: str) -> int | None:
    found = tree.look(tree.folder(QUEUES, queue))
    return None if found is None else found.st_mtime_ns


def own_id(staged: str) -> tuple[str, str] | None:
    """The queue and the bare id of a dot-name; None if it is not the dot-name of a message."""
    parts = split_staged(staged)
    entry = split_entry(parts[0]) if parts is not None else None
    return (entry[0], siblings(entry[1])[0]) if entry is not None else None


def message_of(staged: str) -> str:
    """The name, flags included, that the dot-name of a message will become."""
    parts = split_staged(staged)
    return "" if parts is None else parts[0].rpartition(":")[2]


def timed_seal(seal: int, mtime_ns: int) -> int:
    """The seal of a file that also needs a timer: it covers its mtime.

    A timer is set after the last byte. Where a crash came in between the file is not complete, so
    that nobody gets a message with a delay at once.
    """
    return seal_of(b"%d" % mtime_ns, seal)


def is_complete(tree: Tree, staged: str, *, durably: bool = False) -> bool:
    """Whether a file, with its timer, matches the checksum of its dot-name; False if it is gone.

    durably: sync it first, as its writer may be alive and not have done so yet. The name without
        the dot means that the bytes are durable, so it must not be on disk before them.

    Raises OSError.
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
            # The writer's fsync may have failed. The next fsync succeeds all the same, although the
            # page cache differs from the disk: so drop the cache and read the disk.
            if hasattr(os, "posix_fadvise"):  # macOS has none
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        found = 0
        while chunk := os.read(fd, _CHUNK_BYTES):
            found = seal_of(chunk, found)
        return parts[1] in (found, timed_seal(found, os.fstat(fd).st_mtime_ns))
    finally:
        os.close(fd)


def promote(tree: Tree, staged: str) -> Recovered:
    """Rename a complete and synced file to its name, or remove it if its id exists.

    The caller has the reservation of the id, so no put of it is under way. Raises OSError.
    """
    parts = split_staged(staged)
    assert parts is not None
    queue, _, message_id = parts[0].rpartition(":")
    path = tree.folder(NEW, staged)
    # Look for all siblings: a put that was retried with other attributes has another name.
    if found_as(tree, queue, siblings(message_id)) is not None:
        return Recovered(removed=int(tree.unlink(path)))
    # Its writer may not have synced the folder. A retry that finds the name reports it stored.
    tree.sync_folder(tree.folder(NEW))
    try:
        return Recovered(promoted=int(tree.rename(path, tree.folder(NEW, parts[0]))))
    except FileExistsError:
        return Recovered()  # just put there by hand; the next round removes ours


def finish(tree: Tree, staged: str) -> Recovered:
    """Promote or remove the file of a dead writer, whose reservation the caller has. OSError."""
    if is_complete(tree, staged, durably=True):
        return promote(tree, staged)
    return Recovered(removed=int(tree.unlink(tree.folder(NEW, staged))))
