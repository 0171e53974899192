"""Copies of files, with what fsmq keeps in their times and attributes; or links to older copies.

A file becomes a link only if the older copy has the same bytes, times, owner, mode and attributes:
an equal size and mtime proves nothing, since ids can be used again.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import UnusableSpool
from ..layout.files import write_all
from ..layout.transitions import IDS
from .contents import Contents, File

CHUNK_BYTES = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# No further name for a file, or none on this filesystem: it is copied.
_NO_LINKS = (errno.EMLINK, errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOENT)
_NO_ATTRIBUTES = (errno.EOPNOTSUPP, errno.ENOSYS)
_PREFIX = "user."


class Unreadable(Exception):
    """A file cannot be read; the text says why."""


@dataclass(slots=True)
class Amounts:
    """What was copied. files: all of them; copied, linked: bytes of each kind.

    left_out: paths that could not be copied, each with the reason.
    """

    files: int = 0
    copied: int = 0
    linked: int = 0
    left_out: dict[str, str] = field(default_factory=dict)


class Copy:
    """A folder to which files are copied. Paths are relative to it. Methods raise OSError: those of
    the folder; `add` also Unreadable.

    before: an older copy, whose files are linked where they are the same.
    known: what that has, as far as it is known.
    contents: what this one has.
    breathe: called between files, and between the chunks of a large one.
    """

    def __init__(
        self, where: Path, before: Path | None = None, known: Contents | None = None
    ) -> None:
        self.where = where
        self.contents = Contents()
        self.amounts = Amounts()
        self.breathe: Callable[[], None] = lambda: None
        self.fd = _open_folder(where)
        self._before = _open_folder(before) if before is not None else None
        self._known = known or Contents()
        self._keeps_owners = os.geteuid() == 0

    def close(self) -> None:
        os.close(self.fd)
        if self._before is not None:
            os.close(self._before)

    # -- folders and names -----------------------------------------------------------------------

    def make(self, path: str, like: os.stat_result) -> None:
        """Create a folder with the mode, and the owner, of another; it may exist."""
        self.contents.make(path)
        with suppress(FileExistsError):
            os.mkdir(path, 0o700, dir_fd=self.fd)
            fd = os.open(path, _READ | os.O_DIRECTORY, dir_fd=self.fd)
            try:
                self.resemble(fd, like)
            finally:
                os.close(fd)

    def unmake(self, path: str) -> None:
        """Remove a folder with all in it, whatever errors there are."""
        shutil.rmtree(self.where / path, ignore_errors=True)
        self.contents.discard(path)

    def resemble(self, fd: int, like: os.stat_result) -> None:
        """Give an open file or folder the owner and the mode of another."""
        if self._keeps_owners:
            os.fchown(fd, like.st_uid, like.st_gid)
        os.fchmod(fd, stat.S_IMODE(like.st_mode))

    def inode(self, path: str) -> int | None:
        """The inode number of a path; None if it does not exist."""
        try:
            return os.stat(path, dir_fd=self.fd, follow_symlinks=False).st_ino
        except FileNotFoundError:
            return None

    def open(self, path: str) -> int:
        """Open a file for reading."""
        return os.open(path, _READ, dir_fd=self.fd)

    def link(self, path: str, name: str) -> None:
        """Give a file a second name, in an index. Raises FileExistsError, too."""
        os.link(path, name, src_dir_fd=self.fd, dst_dir_fd=self.fd, follow_symlinks=False)
        self.contents.link(name)

    def remove(self, path: str) -> None:
        """Unlink a file, or a second name in an index, unless it is gone."""
        try:
            fd = self.open(path)
        except FileNotFoundError:
            return
        try:
            if path.startswith(f"{IDS}/"):
                self.contents.link(path, -1)
            else:
                found = os.fstat(fd)
                checksum = checksum_of(fd, found.st_size)
                file = File(found.st_size, checksum, found.st_mtime_ns, attributes_of(fd))
                self.contents.add(path, file, -1)
        finally:
            os.close(fd)
        self._unlink(path)

    def _unlink(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path, dir_fd=self.fd)

    # -- files -----------------------------------------------------------------------------------

    def write(self, path: str, data: bytes, like: os.stat_result) -> None:
        """Write a small file with the owner, the mode and the times of another."""
        with self._new(path) as fd:
            write_all(fd, data)
            self._finish(fd, like, {})
        self.contents.add(path, File(len(data), zlib.crc32(data), like.st_mtime_ns, {}))
        self.amounts.files += 1
        self.amounts.copied += len(data)

    def add(
        self,
        source: int,
        found: os.stat_result,
        path: str,
        size: int | None = None,
        *,
        known_by: int = 0,
    ) -> None:
        """Copy an open file, or link the older copy.

        found: its fstat; the copy gets these times. size: how many of its bytes; None: all.
        known_by: so many of its first bytes show that two files are the same; 0: only all do.
        """
        self.breathe()
        size = found.st_size if size is None else size
        attributes = attributes_of(source)
        self.amounts.files += 1
        checksum = self._link_older(source, found, path, size, attributes, known_by or size)
        at = size
        if checksum is not None:
            self.amounts.linked += size
        else:
            with self._new(path) as fd:
                at = checksum = 0
                while at < size and (data := read(source, min(CHUNK_BYTES, size - at), at)):
                    write_all(fd, data)
                    checksum = zlib.crc32(data, checksum)
                    at += len(data)
                    self.amounts.copied += len(data)
                    if at < size:
                        self.breathe()
                attributes = self._finish(fd, found, attributes)
        self.contents.add(path, File(at, checksum, found.st_mtime_ns, attributes))
        if known_by:
            self.contents.segments[path] = (at, checksum)

    @contextmanager
    def _new(self, path: str) -> Iterator[int]:
        fd = os.open(path, _NEW, 0o600, dir_fd=self.fd)
        try:
            yield fd
        except BaseException:
            self._unlink(path)
            raise
        finally:
            os.close(fd)

    def _finish(
        self, fd: int, like: os.stat_result, attributes: dict[str, bytes]
    ) -> dict[str, bytes]:
        """Give a new file its attributes, owner, mode and times; the attributes that it has."""
        kept = {}
        for name, value in attributes.items():
            try:
                os.setxattr(fd, name, value)
                kept[name] = value
            except OSError as error:
                if error.errno not in _NO_ATTRIBUTES:
                    raise
                self.amounts.left_out[name] = "this filesystem has no extended attributes"
        self.resemble(fd, like)
        os.utime(fd, ns=(like.st_mtime_ns, like.st_mtime_ns))
        if os.fstat(fd).st_mtime_ns != like.st_mtime_ns:
            raise UnusableSpool(
                f"{self.where} does not keep the times of files to the nanosecond:"
                " a copy there would lose deadlines and counts of deliveries"
            )
        return kept

    def _link_older(
        self,
        source: int,
        found: os.stat_result,
        path: str,
        size: int,
        attributes: dict[str, bytes],
        compared: int,
    ) -> int | None:
        """Link the older copy if it is the same: the checksum; None if it is not."""
        if self._before is None:
            return None
        try:
            older = os.open(path, _READ, dir_fd=self._before)
        except OSError:
            return None  # it is new, or cannot be read
        try:
            there = os.fstat(older)
            same = stat.S_ISREG(there.st_mode) and there.st_size == size
            if not same or self._facts(there) != self._facts(found):
                return None
            checksum = self._same(source, older, compared)
            if attributes_of(older) != attributes or checksum is None:
                return None
            if compared < size:
                checksum = self._checksum_of_older(path, older, size)
            os.link(path, path, src_dir_fd=self._before, dst_dir_fd=self.fd, follow_symlinks=False)
            # By path: make sure that it was the file that was read.
            if self.inode(path) == there.st_ino:
                return checksum
            self._unlink(path)
            return None
        except OSError as error:
            if error.errno not in _NO_LINKS and error.errno != errno.EIO:
                raise
            return None
        finally:
            os.close(older)

    def _checksum_of_older(self, path: str, older: int, size: int) -> int:
        known = self._known.segments.get(path)
        return known[1] if known is not None and known[0] == size else checksum_of(older, size)

    def _facts(self, found: os.stat_result) -> tuple[int, ...]:
        owner = (found.st_uid, found.st_gid) if self._keeps_owners else ()
        return (found.st_mtime_ns, stat.S_IMODE(found.st_mode), *owner)

    def _same(self, one: int, other: int, size: int) -> int | None:
        """The checksum of so many bytes if both files have the same; None if not."""
        at = checksum = 0
        while at < size:
            data = read(one, min(CHUNK_BYTES, size - at), at)
            if not data or data != os.pread(other, len(data), at):
                return None
            checksum = zlib.crc32(data, checksum)
            at += len(data)
            if at < size:
                self.breathe()
        return checksum


def read(fd: int, size: int, at: int) -> bytes:
    """Bytes of a file that is copied. Raises Unreadable."""
    try:
        return os.pread(fd, size, at)
    except OSError as error:
        raise Unreadable(error.strerror or "cannot be read") from error


def checksum_of(fd: int, size: int) -> int:
    """The CRC-32 of the first bytes of a file. Raises OSError."""
    at = checksum = 0
    while at < size and (data := os.pread(fd, min(CHUNK_BYTES, size - at), at)):
        checksum = zlib.crc32(data, checksum)
        at += len(data)
    return checksum


def attributes_of(fd: int) -> dict[str, bytes]:
    """The extended attributes that users set; none where the filesystem has none."""
    if not hasattr(os, "listxattr"):  # only Linux
        return {}
    try:
        names = [name for name in os.listxattr(fd) if name.startswith(_PREFIX)]
        return {name: os.getxattr(fd, name) for name in names}
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENODATA):
            return {}
        raise


def _open_folder(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
