"""A drop folder: finds files, opens them without following a link, moves them to "done"."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from fsmq.cli.failures import Exit, Failure

# The names that programs give to files until they are complete.
UNFINISHED = (".part", ".partial", ".filepart", ".crdownload", ".download", ".tmp", ".temp", "~")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Without blocking, because the name may be that of a fifo.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# The file was removed, or replaced by a link or something else: there is no file to take.
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)


class Facts(NamedTuple):
    """What tells one state of a file from another.

    The ctime cannot be set: it tells a file from a later one with the same name, size, inode and
    mtime. The number of the device is left out, because it can change with a reboot.
    """

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


def facts_of(found: os.stat_result) -> Facts:
    """The facts of a file."""
    return Facts(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class Moved(Enum):
    """The outcome of moving a file away."""

    YES = "it was moved"
    CHANGED = "it was not moved: it has been changed, or is gone"
    OPEN = "it was not moved: somebody has it open for writing"
    LOST = "it was moved, but somebody has written to it since it was read"


@dataclass(slots=True)
class Dropped:
    """An open file. path: within the drop folder. folder: the descriptor of its folder."""

    path: str
    folder: int
    fd: int
    stat: os.stat_result

    @property
    def facts(self) -> Facts:
        """The facts when it was opened."""
        return facts_of(self.stat)

    def read(self) -> bytes | None:
        """All of it; None if it has changed since it was opened. Raises OSError."""
        parts = []
        left = self.stat.st_size
        while left and (part := os.read(self.fd, left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts) if facts_of(os.fstat(self.fd)) == self.facts else None

    def is_as_read(self, found: os.stat_result) -> bool:
        """Whether nobody has written to it since; unlike `facts`, this survives a move."""
        read = self.stat
        return (found.st_size, found.st_mtime_ns) == (read.st_size, read.st_mtime_ns)

    def renew(self) -> None:
        """Set its ctime to now, and change nothing else. Raises OSError."""
        os.fchmod(self.fd, stat.S_IMODE(self.stat.st_mode))
        self.stat = os.fstat(self.fd)


class DropFolder:
    """A folder whose files become messages.

    done: where files are moved once they are stored; None: the folder ``done`` in it.
    pattern: which names of files are taken.
    recursive: whether files in subfolders are taken, too.
    """

    def __init__(self, path: Path, done: Path | None, pattern: str, recursive: bool) -> None:
        """Open both, and lock the first. Raises Failure."""
        self.path = path.resolve()
        self._pattern = pattern
        self.recursive = recursive
        try:
            self._fd = os.open(self.path, _FOLDER)
            self._lock()
            self._done = self._open_done(done)
        except OSError as error:
            raise Failure(f"cannot use {error.filename}: {error.strerror}", Exit.USAGE) from error
        self._done_stat = os.fstat(self._done)
        if self._done_stat.st_dev != os.fstat(self._fd).st_dev:
            raise Failure(
                f"{done} lies on another filesystem than {path}",
                Exit.USAGE,
                "give a folder of the same one: a file is moved there by a rename, whole or not",
            )
        self._sees_writers = self._can_see_writers()

    def close(self) -> None:
        """Close both folders."""
        os.close(self._fd)
        os.close(self._done)

    def check(self) -> None:
        """Raise Failure if the path does not lead to this folder any more."""
        try:
            found = os.stat(self.path)
        except OSError:
            found = None
        if found is None or not os.path.samestat(found, os.fstat(self._fd)):
            raise Failure(f"{self.path} is gone", Exit.UNAVAILABLE, "start again when it is back")

    def within(self, path: str) -> str | None:
        """An absolute path as one within the folder; None if it is not to be taken."""
        name = path.removeprefix(f"{self.path}/")
        if name == path or not self._is_wanted(name):
            return None
        return name

    def files(self) -> Iterator[str]:
        """The paths of files to take, within the folder. Raises OSError."""
        pending = [""]
        while pending:
            where = pending.pop()
            with self._entered(where) as fd:
                if fd is None:
                    continue
                with os.scandir(fd) as entries:
                    for entry in entries:
                        path = f"{where}/{entry.name}" if where else entry.name
                        if entry.is_dir(follow_symlinks=False):
                            if self.recursive and not entry.name.startswith("."):
                                pending.append(path)
                        elif entry.is_file(follow_symlinks=False) and self._is_wanted(path):
                            yield path

    @contextmanager
    def opened(self, path: str) -> Iterator[Dropped | None]:
        """Open a file for the block; None if it is not a regular file. Raises OSError."""
        where, _, name = path.rpartition("/")
        with self._entered(where) as folder:
            fd = None if folder is None else _open_or_none(name, _FILE, folder)
            if folder is None or fd is None:
                yield None
                return
            try:
                found = os.fstat(fd)
                regular = stat.S_ISREG(found.st_mode)
                yield Dropped(path, folder, fd, found) if regular else None
            finally:
                os.close(fd)

    def is_being_written(self, file: Dropped) -> bool | None:
        """Whether a process has the file open for writing; None if that cannot be known."""
        if not self._sees_writers:
            return None
        try:
            # A read lease is refused while there is a writer. It is given back at once.
            fcntl.fcntl(file.fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(file.fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except BlockingIOError:
            return True
        except OSError:
            return None  # the file belongs to another user
        return False

    def why_not_moved(self, file: Dropped) -> str | None:
        """Why the file could not be moved to "done"; None if it can."""
        folder, me = os.fstat(file.folder), os.geteuid()
        # Compare the folders: on an overlay (containers) files have other devices than folders.
        if folder.st_dev != self._done_stat.st_dev:
            return "lies on another filesystem than the folder for what is done"
        sticky = folder.st_mode & stat.S_ISVTX and me not in (0, folder.st_uid, file.stat.st_uid)
        if sticky or not os.access(".", os.W_OK | os.X_OK, dir_fd=file.folder):
            return "may not be moved away from its folder by this user"
        return None

    def move(self, file: Dropped, message_id: str) -> Moved:
        """Move a file to "done", durably, if it has not changed and nobody writes to it.

        It does not replace a file of the same name. Raises OSError.
        """
        where, _, name = file.path.rpartition("/")
        try:
            found = os.stat(name, dir_fd=file.folder, follow_symlinks=False)
        except FileNotFoundError:
            return Moved.CHANGED
        if facts_of(found) != file.facts:
            return Moved.CHANGED
        if self.is_being_written(file):
            return Moved.OPEN
        with self._made(where) as target:
            # Drop folders can share a "done": nobody else may take the name before the rename.
            fcntl.flock(self._done, fcntl.LOCK_EX)
            try:
                free = _free_name(target, name, message_id)
                os.rename(name, free, src_dir_fd=file.folder, dst_dir_fd=target)
            finally:
                fcntl.flock(self._done, fcntl.LOCK_UN)
            # Nobody can open it by its old name any more, so this check is final.
            moved = self._as_read(file) if _is_at(target, free, file) else Moved.CHANGED
            if moved is not Moved.YES and not _undo_move(target, free, file.folder, name):
                moved = Moved.LOST
            os.fsync(target)
            os.fsync(file.folder)
        return moved

    def _as_read(self, file: Dropped) -> Moved:
        if not file.is_as_read(os.fstat(file.fd)):
            return Moved.CHANGED
        return Moved.OPEN if self.is_being_written(file) else Moved.YES

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failure(
                f"another program watches {self.path}", Exit.UNAVAILABLE, "end that one first"
            ) from None
        except OSError:
            pass  # a network filesystem without locks on folders

    def _open_done(self, done: Path | None) -> int:
        if done is not None:
            done.mkdir(parents=True, exist_ok=True)
            return os.open(done, _FOLDER)
        try:
            os.mkdir("done", dir_fd=self._fd)
        except FileExistsError:
            pass
        # Not through a link: users who drop files must not choose where they go.
        return os.open("done", _FOLDER | os.O_NOFOLLOW, dir_fd=self._fd)

    def _can_see_writers(self) -> bool:
        if not hasattr(fcntl, "F_SETLEASE"):
            return False
        # A filesystem without leases (NFS) can answer as if somebody were writing: try it.
        try:
            with tempfile.NamedTemporaryFile(prefix=".fsmq-", dir=self.path) as probe:
                fd = os.open(probe.name, _FILE)
                try:
                    os.fchmod(probe.fileno(), 0o600)
                    probe.close()
                    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
                finally:
                    os.close(fd)
        except OSError:
            return False
        return True

    def _is_wanted(self, path: str) -> bool:
        *folders, name = path.split("/")
        if any(part.startswith(".") for part in (*folders, name)) or (
            folders and not self.recursive
        ):
            return False
        return fnmatchcase(name, self._pattern) and not name.lower().endswith(UNFINISHED)

    @contextmanager
    def _entered(self, where: str) -> Iterator[int | None]:
        """Open a folder within this one; None if it is not a folder, or is "done"."""
        with ExitStack() as opened:
            fd: int | None = self._fd
            for part in where.split("/") if where else ():
                assert fd is not None
                fd = _open_or_none(part, _FOLDER | os.O_NOFOLLOW, fd)
                if fd is None:
                    break
                opened.callback(os.close, fd)
                if os.path.samestat(os.fstat(fd), self._done_stat):
                    fd = None
                    break
            yield fd

    @contextmanager
    def _made(self, where: str) -> Iterator[int]:
        """Open a folder within "done", and make it if it is missing. Raises OSError."""
        with ExitStack() as opened:
            fd = self._done
            for part in where.split("/") if where else ():
                try:
                    os.mkdir(part, dir_fd=fd)
                    os.fsync(fd)
                except FileExistsError:
                    pass
                fd = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=fd)
                opened.callback(os.close, fd)
            yield fd


def _open_or_none(name: str, flags: int, folder: int) -> int | None:
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in _NO_FILE:
            return None
        raise


def _free_name(folder: int, name: str, message_id: str) -> str:
    """The file's name; if that is taken, with the message's id, which makes it unique."""
    if not _stands(folder, name):
        return name
    longer = f"{name}.{message_id}"
    return longer if len(os.fsencode(longer)) <= os.fpathconf(folder, "PC_NAME_MAX") else message_id


def _is_at(folder: int, name: str, file: Dropped) -> bool:
    """Whether a name leads to this file: it may have been replaced just before the move."""
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    return os.path.samestat(found, file.stat)


def _undo_move(folder: int, name: str, into: int, old: str) -> bool:
    """Undo a move; False if the old name is taken, or the filesystem has no hard links."""
    try:
        os.link(name, old, src_dir_fd=folder, dst_dir_fd=into, follow_symlinks=False)
    except OSError:
        return False
    os.unlink(name, dir_fd=folder)
    return True


def _stands(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
