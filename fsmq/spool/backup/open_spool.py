"""The spool that is copied: opening what is in it, whatever happens to it meanwhile."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ..errors import Unavailable, UnusableSpool
from ..layout.filesystem import is_network, kind_of
from ..layout.transitions import MESSAGE_FOLDERS
from ..layout.tree import STRAY, Tree
from .copies import Copy, Unreadable

# Errors that are those of one file, and leave all others.
_OF_ONE = (*STRAY, errno.EACCES, errno.EPERM, errno.EIO)


class Opened(NamedTuple):
    """An open regular file, and its fstat."""

    fd: int
    found: os.stat_result


class Source:
    """A spool, opened only for reading, and its copy. Methods raise OSError.

    Raises UnusableSpool.
    """

    def __init__(self, tree: Tree, copy: Copy) -> None:
        self.tree = tree
        self.copy = copy
        tree.network = is_network(kind_of(tree.root))
        self._folders = {name: self._inode(name) for name in (".", *MESSAGE_FOLDERS)}
        if None in self._folders.values():
            raise UnusableSpool(f"there is no spool in {tree.root}")

    def check(self) -> None:
        """Raise Unavailable if the spool was removed, moved away, or replaced."""
        try:
            there = os.stat(self.tree.root)
        except FileNotFoundError:
            there = os.stat_result([0] * 10)
        is_there = os.path.samestat(there, os.fstat(self.tree.fd))
        if not is_there or {name: self._inode(name) for name in self._folders} != self._folders:
            raise Unavailable(f"{self.tree.root} was removed or replaced meanwhile")

    def _inode(self, name: str) -> int | None:
        found = self.tree.stat(name)
        return found.st_ino if found is not None and stat.S_ISDIR(found.st_mode) else None

    def leave_out(self, path: str, why: str) -> None:
        """Note that something is not in the copy."""
        self.copy.amounts.left_out[path] = why

    @contextmanager
    def opened(self, path: str) -> Iterator[Opened | None]:
        """A file; None if it is gone, or cannot be copied, which is noted."""
        try:
            fd = self.tree.open(path)
        except OSError as error:
            if error.errno not in _OF_ONE:
                raise
            if error.errno != errno.ENOENT:
                self.leave_out(path, error.strerror or "cannot be opened")
            yield None
            return
        try:
            found = os.fstat(fd)
            if stat.S_ISREG(found.st_mode):
                yield Opened(fd, found)
                return
            self.leave_out(path, "is not a file")
            yield None
        except Unreadable as error:
            self.leave_out(path, str(error))
        finally:
            os.close(fd)

    def take(self, path: str) -> bool:
        """Copy a file to the same path; False if it is gone or cannot be copied."""
        is_taken = False
        with self.opened(path) as opened:
            if opened is not None:
                self.copy.add(opened.fd, opened.found, path)
                is_taken = True
        return is_taken

    def take_folder(self, path: str, *, deep: bool = False) -> None:
        """Copy a folder's files, without dot-names. deep: with the folders in it."""
        found = self.tree.stat(path)
        if found is None or not stat.S_ISDIR(found.st_mode):
            return
        self.copy.make(path, found)
        for entry in self.tree.walk(path):
            if entry.name[0] == ".":
                continue
            inner = f"{path}/{entry.name}"
            if not entry.is_dir(follow_symlinks=False):
                self.take(inner)
            elif deep:
                self.take_folder(inner)
