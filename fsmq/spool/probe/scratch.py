"""The probe's scratch names, which nobody takes for a message."""

from __future__ import annotations

import os
import re

from ..layout.names import UUID7
from ..layout.transitions import NEW
from ..layout.tree import Tree
from ..layout.uuids import uuid7

_scratch_name = re.compile(rf"\.probe-{UUID7}")


def scratch_name() -> str:
    return f".probe-{uuid7()}"


def is_scratch(name: str) -> bool:
    """Whether a name is one of the probe's own."""
    return _scratch_name.fullmatch(name) is not None


def try_to_store(tree: Tree) -> None:
    """Write and sync a byte where messages are written, rename, read and remove it.

    Raises OSError.
    """
    path, renamed = (tree.folder(NEW, scratch_name()) for _ in range(2))
    fd = tree.create_with(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        os.write(fd, b"x")
        os.fsync(fd)
        tree.rename(path, renamed)
        os.pread(fd, 1, 0)
    finally:
        os.close(fd)
        if not tree.unlink(renamed):
            tree.unlink(path)


def remove_scratch(tree: Tree, path: str) -> bool:
    """Remove a scratch file, or a scratch folder of one level; False if it was gone."""
    if not tree.is_folder(path):
        return tree.unlink(path)
    for name in tree.names(path):
        tree.unlink(f"{path}/{name}")
    return tree.remove_folder(path)
