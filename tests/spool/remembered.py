"""What an NFS client remembers of names while other hosts change them.

It finds what a name led to before, stamps that, and renames into a folder that has gone elsewhere;
until the folder of the name is opened, which makes it ask. `tests/nfs/memory.py` shows the same on
real NFS.
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
    """What the host of a spool remembers. Other spools on the same tree are on other hosts."""

    def __init__(self, spool: Spool, patched: pytest.MonkeyPatch) -> None:
        self._root = spool.tree.fd
        self._known: dict[str, int | None] = {}
        self._stat, self._open = os.stat, os.open
        patched.setattr(os, "stat", self._stat_remembered)
        for name in _IN_FOLDER:
            patched.setattr(os, name, self._wrap(name, getattr(os, name)))

    def keep(self, *paths: str) -> None:
        """Remember what stands there now, or that nothing does."""
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
        """The folder is asked for: what stands at the names in it is known no more."""
        for path in [p for p in self._known if os.path.dirname(p) == folder]:
            fd = self._known.pop(path)
            if fd is not None:
                os.close(fd)

    def _within(self, path: Any) -> Any:
        """The path, by way of the folder that is remembered, wherever that stands now."""
        if isinstance(path, str):
            folder, _, name = path.rpartition("/")
            fd = self._known.get(folder)
            if fd is not None:
                return os.path.join(Path(f"/proc/self/fd/{fd}").readlink(), name)
        return path
