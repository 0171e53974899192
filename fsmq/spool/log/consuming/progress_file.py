"""The files of a channel's progress, of which each has a number: the highest counts.

A file that has grown is sealed by its last line, and another one, which says the same in fewer,
gets the next number: by a link, which never replaces. So a program that was stopped, or has lost
its lock, can neither add to what counts no more nor take the place of what does. All is done in the
folder in which the locked file is, wherever that has gone.
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
from ..segment.disk import Disk
from ..segment.hints import LockFile

PROGRESS = "progress"
_name = re.compile(rf"{PROGRESS}\.([1-9][0-9]{{0,17}})")
_DRAFT = f".{PROGRESS}."
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)
_READ_BYTES = 4096
# A listing may have neither a name that came while it was made nor the one that went then.
_LOOKS = 5


def progress_name(number: int) -> str:
    return f"{PROGRESS}.{number}"


def newest(tree: Tree, folder: str) -> int:
    """The number of the file that counts, as far as can be seen; 0 if there is none."""
    for _ in range(_LOOKS):
        tree.refresh(folder)
        if found := _numbers(tree.names(folder)):
            return max(found)
    return 0


def _numbers(names: Iterable[str]) -> list[int]:
    return [int(match[1]) for name in names if (match := _name.fullmatch(name))]


class ProgressFile(LockFile):
    """One of them, opened. Methods raise OSError; all but the first ask for the lock."""

    def __init__(self, disk: Disk, folder: str, number: int) -> None:
        super().__init__(disk.tree, f"{folder}/{progress_name(number)}", os.O_RDWR)
        self._disk = disk
        self._within = folder
        self.number = number

    def touch(self) -> None:
        """Set the file's time to now, as the filesystem has it."""
        os.utime(self._fd)

    @contextmanager
    def with_its_time(self) -> Iterator[None]:
        """Leave the file's time as it is: it says when the channel was used last."""
        at_ns = os.fstat(self._fd).st_mtime_ns
        yield
        if os.fstat(self._fd).st_mtime_ns != at_ns:
            os.utime(self._fd, ns=(at_ns, at_ns))

    def read_from(self, start: int) -> bytes:
        """All bytes from a place on."""
        data, size = b"", _READ_BYTES
        while part := self.read_bytes(size, start + len(data)):
            data += part
            if len(part) < size:
                break
            size *= 4
        return data

    def succeed(self, content: bytes, seal: bytes, end: int) -> bool:
        """Let a file with this content and this one's time take the place; False if another
        program made one.

        seal: what to write at the end before that, so that nothing is added any more.
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
                # Who unlinks this file unlinks every draft behind it: then the link fails.
                self._check(folder)
                if seal:
                    self.write_bytes(seal, end)
                    # A network filesystem refuses it here if the lock was lost meanwhile.
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
        """Remove what killed programs have left: older files, and drafts. Its name is durable."""
        folder = self._disk.tree.open_folder(self._within)
        try:
            self._check(folder)
            for number in _numbers(os.listdir(folder)):
                if number < self.number:
                    _unlink(folder, progress_name(number))
            # And then those of programs that were about to let another file follow these.
            for name in os.listdir(folder):
                if name.startswith(_DRAFT):
                    _unlink(folder, name)
        finally:
            os.close(folder)

    def _check(self, folder: int) -> None:
        """FileNotFoundError if the file is not in a folder: another one has that path now."""
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
        # Such a filesystem is on this host, where no lock is lost.
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    return True


def _unlink(folder: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
