"""The files of a channel's progress. Each has a number: the highest is the current one.

A file that has grown is sealed by its last line, and a shorter one with the same meaning gets the
next number, by a link, which never replaces. So a program that was stopped, or has lost its lock,
can neither add to a file that no longer counts nor replace the current one. All of it happens in
the folder that has the locked file, wherever that folder was renamed to.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from ...layout.files import write_all
from ...layout.transitions import FILE_MODE
from ...layout.tree import Tree
from ...layout.uuids import uuid7
from ..segment.checkpoint import LockFile
from ..segment.disk import Disk

PROGRESS = "progress"
_name = re.compile(rf"{PROGRESS}\.([1-9][0-9]{{0,17}})")
_DRAFT = f".{PROGRESS}."
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)
_READ_BYTES = 4096
# A listing can miss both a name that was added meanwhile and the one removed then.
_LOOKS = 5


def progress_name(number: int) -> str:
    return f"{PROGRESS}.{number}"


def newest(tree: Tree, folder: str) -> int:
    """The number of the current file, as far as can be seen; 0 if there is none."""
    for _ in range(_LOOKS):
        tree.refresh(folder)
        if found := _numbers(tree.names(folder)):
            return max(found)
    return 0


def _numbers(names: Iterable[str]) -> list[int]:
    return [int(match[1]) for name in names if (match := _name.fullmatch(name))]


class ProgressFile(LockFile):
    """One of them, opened. Methods raise OSError; all but `touch` need the lock."""

    def __init__(self, disk: Disk, folder: str, number: int) -> None:
        super().__init__(disk.tree, f"{folder}/{progress_name(number)}", os.O_RDWR)
        self._disk = disk
        self._within = folder
        self.number = number

    def touch(self) -> None:
        """Set the file's time to now, by the filesystem's clock."""
        os.utime(self._fd)

    @contextmanager
    def with_its_time(self) -> Iterator[None]:
        """Keep the file's time, which tells when the channel was last used."""
        at_ns = os.fstat(self._fd).st_mtime_ns
        yield
        if os.fstat(self._fd).st_mtime_ns != at_ns:
            os.utime(self._fd, ns=(at_ns, at_ns))

    def read_from(self, start: int) -> bytes:
        """All bytes from a position on."""
        data, size = b"", _READ_BYTES
        while part := self.read_bytes(size, start + len(data)):
            data += part
            if len(part) < size:
                break
            size *= 4
        return data

    def add(self, lines: bytes, end: int) -> None:
        """Write lines at the end, all or none: a part of a claim would be a delivery to nobody."""
        written = os.pwrite(self._fd, lines, end)
        if written < len(lines):
            # No truncation, which could take what others have added if the lock was lost.
            os.pwrite(self._fd, b"\n" * written, end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)

    def succeed(self, content: bytes, seal: bytes, end: int) -> bool:
        """Replace this file by one with this content and its time; False if another program did.

        seal: written at the end first, so that nothing is added any more.
        """
        folder, draft = self._disk.tree.open_folder(self._within), f"{_DRAFT}{uuid7()}"
        used_at_ns = os.fstat(self._fd).st_mtime_ns
        try:
            fd = os.open(draft, _FLAGS, FILE_MODE, dir_fd=folder)
            try:
                try:
                    write_all(fd, content)
                    os.utime(fd, ns=(used_at_ns, used_at_ns))
                    self._disk.sync_file(fd)
                finally:
                    os.close(fd)
                # Whoever unlinks this file unlinks every draft afterwards: then the link fails.
                self._check(folder)
                if seal:
                    self.add(seal, end)
                    # A network filesystem reports an error here if the lock was lost.
                    self._disk.sync_file(self._fd)
                is_ours = _link(folder, draft, progress_name(self.number + 1))
            finally:
                _unlink(folder, draft)
            if self._disk.syncs:
                self._disk.tree.sync_opened(folder)
            _unlink(folder, progress_name(self.number))
            return is_ours
        finally:
            os.close(folder)

    def tidy(self) -> None:
        """Remove older files and drafts that killed programs have left. Our name is durable."""
        folder = self._disk.tree.open_folder(self._within)
        try:
            self._check(folder)
            for number in _numbers(os.listdir(folder)):
                if number < self.number:
                    _unlink(folder, progress_name(number))
            # Then the drafts of programs that were about to replace these.
            for name in os.listdir(folder):
                if name.startswith(_DRAFT):
                    _unlink(folder, name)
        finally:
            os.close(folder)

    def _check(self, folder: int) -> None:
        """Raise FileNotFoundError if the folder no longer has this file."""
        found = os.stat(progress_name(self.number), dir_fd=folder, follow_symlinks=False)
        if found.st_ino != self._inode:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)


def _link(folder: int, draft: str, name: str) -> bool:
    try:
        os.link(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Such a filesystem is local, so no lock is lost.
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    return True


def _unlink(folder: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
