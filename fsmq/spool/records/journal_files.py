"""The segments of the journal: closed, and removed when they are old."""

from __future__ import annotations

import fcntl
import os
import re
import time

from ..layout.transitions import JOURNAL
from ..layout.tree import Tree

# A writer locks its segment right after creating it.
_LOCKED_AFTER_S = 60.0
_segment = re.compile(r"\.?(?P<created_ms>[0-9]{13})-.+\.jsonl")


def is_segment(name: str) -> bool:
    """Whether a name is that of a segment, closed or not."""
    return _segment.fullmatch(name) is not None


def created_ms(name: str) -> int | None:
    """When the closed segment was begun, in Unix milliseconds; None for any other name."""
    match = _segment.fullmatch(name)
    return int(match["created_ms"]) if match is not None and name[0] != "." else None


def show(tree: Tree, fd: int, path: str, name: str) -> None:
    """Close a segment: give it the name under which readers find it. Raises OSError."""
    if os.fstat(fd).st_size == 0:
        tree.unlink(path)
        return
    # Under its final name it must be whole, even after a power cut.
    os.fsync(fd)
    tree.rename(path, tree.folder(JOURNAL, name))


def close_abandoned(tree: Tree) -> int:
    """Close the segments of writers that died; how many.

    If some cannot be closed, raises OSError after all others.
    """
    closed = 0
    first: OSError | None = None
    for name in tree.names(tree.folder(JOURNAL)):
        if name[0] != "." or not is_segment(name):
            continue
        try:
            closed += _close(tree, name)
        except OSError as error:
            first = first or error  # another user's, or not a file: it must not stop the others
    if first is not None:
        raise first
    return closed


def _close(tree: Tree, name: str) -> bool:
    path = tree.folder(JOURNAL, name)
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=tree.fd)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = os.fstat(fd)
        if found.st_size == 0 and time.time() - found.st_ctime < _LOCKED_AFTER_S:
            return False  # its writer may be about to lock it
        _cut_last_line(fd)
        show(tree, fd, path, name[1:])
        return True
    except BlockingIOError:
        return False  # its writer is alive
    finally:
        os.close(fd)


def _cut_last_line(fd: int) -> None:
    """Cut off the unfinished last line of a killed writer."""
    size = os.fstat(fd).st_size
    end = size
    while end > 0:
        start = max(0, end - 65_536)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end != size:
        os.ftruncate(fd, end)


def expire(tree: Tree, retention_s: float, max_bytes: int, now: float) -> int:
    """Unlink closed segments that are too old, and the oldest while all take too much; how many.

    retention_s: seconds that a segment stays. max_bytes: of all segments together. now: Unix
    seconds. If some cannot be unlinked, raises OSError after all others.
    """
    segments = []
    for entry in tree.walk(tree.folder(JOURNAL)):
        created = created_ms(entry.name)
        if created is None:
            continue
        try:
            size = entry.stat(follow_symlinks=False).st_size
        except FileNotFoundError:
            continue
        segments.append((created, entry.name, size))
    total = sum(size for _, _, size in segments)
    removed = 0
    first: OSError | None = None
    for begun_ms, name, size in sorted(segments):
        if now - begun_ms / 1000 <= retention_s and total <= max_bytes:
            break
        try:
            removed += tree.unlink(tree.folder(JOURNAL, name))
            total -= size
        except OSError as error:
            first = first or error
    if first is not None:
        raise first
    return removed
