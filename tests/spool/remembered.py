"""The cache of names of an NFS client, while other hosts change the tree.

The client resolves a name to the file that had it before: it stamps that file, and renames into a
folder that has moved. Only opening the folder of the name makes it ask the server. See
`tests/nfs/memory.py` for the same on real NFS.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import Spool

_IN_FOLDER = ("open", "rename", "unlink", "mkdir", "link")


class Memory:
    """The cache of the host of one spool. Other spools on the same tree are on other hosts."""

    def __init__(self, spool: Spool, patched: pytest.MonkeyPatch) -> None:
        self._root = spool.tree.fd
        self._known: dict[str, int | None] = {}
        self._stat, self._open = os.stat, os.open
        patched.setattr(os, "stat", self._stat_remembered)
        for name in _IN_FOLDER:
            patched.setattr(os, name, self._wrap(name, getattr(os, name)))

    def keep(self, *paths: str) -> None:
        """Cache the file at each path, or that none exists."""
        for path in paths:
            try:
                flags = os.O_PATH | os.O_NOFOLLOW
                self._known[path] = self._open(path, flags, dir_fd=self._root)
            except FileNotFoundError:
                self._known[path] = None

    def close(self) -> None:
        for fd in filter(None, self._known.values()):
            os.close(fd)

    def _stat_remembered(self, path: Any, **of: Any) -> os.stat_result:
        if of.get("dir_fd") != self._root:
            return self._stat(path, **of)
        if path in self._known:
            fd = self._known[path]
            if fd is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            return os.fstat(fd)
        return self._stat(self._within(path), **of)

    def _wrap(self, name: str, call: Any) -> Any:
        def called(*paths: Any, **of: Any) -> Any:
            if self._root not in of.values():
                return call(*paths, **of)
            if name == "open" and paths[1] & os.O_DIRECTORY:
                self._forget(paths[0])
            return call(*map(self._within, paths), **of)

        return called

    def _forget(self, folder: str) -> None:
        """Drop the names in a folder that is opened."""
        for path in [p for p in self._known if os.path.dirname(p) == folder]:
            fd = self._known.pop(path)
            if fd is not None:
                os.close(fd)

    def _within(self, path: Any) -> Any:
        """The path through the cached folder, wherever that folder is now."""
        if isinstance(path, str):
            folder, _, name = path.rpartition("/")
            fd = self._known.get(folder)
            if fd is not None:
                return os.path.join(Path(f"/proc/self/fd/{fd}").readlink(), name)
        return path
