"""Where a log is, and how it is synced."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace

from ...errors import Unavailable
from ...layout.transitions import LOGS, REMOVE
from ...layout.tree import STRAY, Tree
from ...layout.uuids import uuid7

LOG_FILE = "log.json"
FOLDERS = SEGMENTS, CHANNELS, WRITERS = "log", "channels", "writers"
# Errors of using a file that another host may have removed.
GONE = (*STRAY, errno.ESTALE)


def _fdatasync(fd: int) -> None:
    if hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        os.fsync(fd)  # macOS


@dataclass(frozen=True, slots=True)
class Disk:
    """The folder of one log. whole: the spool's tree, if ``tree`` is only the folder of segments.

    syncs: False only if nothing has to be durable. clock: Unix seconds.
    """

    tree: Tree
    name: str
    clock: Callable[[], float]
    syncs: bool = True
    whole: Tree | None = None

    @property
    def folder(self) -> str:
        return self.tree.folder(LOGS, self.name)

    @property
    def segments(self) -> str:
        return f"{self.folder}/{SEGMENTS}" if self.whole is None else "."

    @property
    def channels(self) -> str:
        return f"{self.folder}/{CHANNELS}"

    @property
    def refuses(self) -> str:
        """A file that makes the log refuse publishes while it exists."""
        return f"{self.folder}/full"

    def channel(self, name: str) -> str:
        return f"{self.channels}/{name}"

    def has(self, path: str) -> bool:
        """Whether there is a folder, durably."""
        is_there = self.tree.is_folder(path)
        if is_there:
            self.sync_folder(path.rpartition("/")[0])
        return is_there

    def make(self, path: str, fill: Callable[[str], None]) -> bool:
        """Make a folder durably; False if it existed, unchanged.

        fill: makes its content in a draft, which gets the name once it is complete.
        """
        if self.has(path):
            return False
        draft = f"{path.rpartition('/')[0]}/.{uuid7()}"
        self.tree.make_entry(draft)
        try:
            fill(draft)
            is_new = self.tree.rename(draft, path)
        except OSError as error:
            with suppress(OSError):
                self.trash(draft)
            if not isinstance(error, FileExistsError):
                raise
            is_new = False
        if not self.has(path):
            raise Unavailable("it took more than an hour, and its draft has been removed")
        return is_new

    def opened(self, folder: str) -> Tree:
        """A folder of the log, held open, so that it stays this one, whatever gets its name. Close
        it. Raises OSError."""
        tree = copy(self.tree)
        tree.fd = self.tree.open_folder(folder)
        return tree

    def open_segments(self) -> Disk:
        """The same with the folder of segments held open. Close its tree. Raises OSError."""
        return replace(self, tree=self.opened(self.segments), whole=self.tree)

    def now_us(self) -> int:
        return int(self.clock() * 1_000_000)

    def sync_data(self, fd: int) -> None:
        """Make the bytes of a file durable. Raises OSError."""
        if self.syncs:
            _fdatasync(fd)

    def sync_file(self, fd: int) -> None:
        if self.syncs:
            os.fsync(fd)

    def sync_folder(self, folder: str) -> None:
        if self.syncs:
            self.tree.sync_folder(folder)

    def trash(self, path: str) -> bool:
        """Rename a path to ``remove/``, for the reaper to unlink; False if it is gone."""
        target = self.tree.folder(REMOVE, f".{uuid7()}")
        if self.whole is None:
            return self.tree.rename(path, target)
        try:
            os.rename(path, target, src_dir_fd=self.tree.fd, dst_dir_fd=self.whole.fd)
        except FileNotFoundError:
            return False
        return True

    def trash_durably(self, path: str) -> bool:
        """The same, so that no crash brings it back."""
        found = self.trash(path)
        # For a rename between two folders the fsync of one may not be enough.
        self.sync_folder(path.rpartition("/")[0] or ".")
        if self.syncs:
            whole = self.whole or self.tree
            whole.sync_folder(whole.folder(REMOVE))
        return found
