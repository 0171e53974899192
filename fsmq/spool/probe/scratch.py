"""The probe's scratch files, which are never mistaken for messages."""

from __future__ import annotations

import os

from ..layout.names import scratch_name
from ..layout.transitions import NEW
from ..layout.tree import Tree


def try_to_store(tree: Tree) -> None:
    """Write and sync a byte where messages are written, rename, read and remove it.

    Raises OSError.
    """
    path, renamed = (tree.folder(NEW, scratch_name()) for _ in range(2))
    fd = tree.create(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        os.write(fd, b"x")
        os.fsync(fd)
        tree.rename(path, renamed)
        os.pread(fd, 1, 0)
    finally:
        os.close(fd)
        if not tree.unlink(renamed):
            tree.unlink(path)
