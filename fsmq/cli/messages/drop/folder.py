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

# Under these names programs write what they rename when it is complete.
UNFINISHED = (".part", ".partial", ".filepart", ".crdownload", ".download", ".tmp", ".temp", "~")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Without blocking: a fifo must not hold us up.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Someone has removed it, or put a link or something else in its place: there is no file to take.
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)


class Facts(NamedTuple):
    """What tells one state of a file from another.

    The time of its last change cannot be set by anybody: it tells a file from a later one that
    has its name, its size, its inode and its mtime. Without the number of the device, which may
    be another one after a reboot.
    """

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


def facts_of(found: os.stat_result) -> Facts:
    """The facts of a file."""
    return Facts(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class Moved(Enum):
    """What became of a file that was to be moved away."""

    YES = "it is where it was to be moved"
    CHANGED = "it stays where it was: it has been changed, or is gone"
    OPEN = "it stays where it was: somebody has it open to write to it"
    LOST = "it is where it was to be moved, and somebody has written to it since it was read"


@dataclass(slots=True)
class Dropped:
    """A file that is open. ``path``: within the drop folder. ``folder``: where it lies, open."""

    path: str
    folder: int
    fd: int
    stat: os.stat_result

    @property
    def facts(self) -> Facts:
        """As they were when it was opened."""
        return facts_of(self.stat)

    def read(self) -> bytes | None:
        """All of it; None if somebody has changed it meanwhile. Raises OSError."""
        parts = []
        left = self.stat.st_size
        while left and (part := os.read(self.fd, left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts) if facts_of(os.fstat(self.fd)) == self.facts else None

    def is_as_read(self, found: os.stat_result) -> bool:
        """Whether nobody had written to it when this was found; it may have been moved."""
        read = self.stat
        return (found.st_size, found.st_mtime_ns) == (read.st_size, read.st_mtime_ns)

    def renew(self) -> None:
        """Let its last change be now, and nothing else be changed. Raises OSError."""
        os.fchmod(self.fd, stat.S_IMODE(self.stat.st_mode))
        self.stat = os.fstat(self.fd)


class DropFolder:
    """A folder whose files become messages.

    done: where a file goes whose message is stored; None: the folder ``done`` in it.
    pattern: of the names of files that are taken.
    recursive: whether the folders in it count as well.
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
        """Raise Failure if another folder, or none, has the path by now."""
        try:
            found = os.stat(self.path)
        except OSError:
            found = None
        if found is None or not os.path.samestat(found, os.fstat(self._fd)):
            raise Failure(f"{self.path} is gone", Exit.UNAVAILABLE, "start again when it is back")

    def within(self, path: str) -> str | None:
        """The part of an absolute path behind that of the folder; None for what is not taken."""
        name = path.removeprefix(f"{self.path}/")
        if name == path or not self._is_wanted(name):
            return None
        return name

    def files(self) -> Iterator[str]:
        """The paths of what may be taken, within the folder. Raises OSError."""
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
        """A file that is open within the block; None where no regular file is. Raises OSError."""
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
        """Whether a process has the file open to write to it; None where nobody can tell."""
        if not self._sees_writers:
            return None
        try:
            # Nobody can have it for reading while there is a writer. It is not kept.
            fcntl.fcntl(file.fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(file.fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except BlockingIOError:
            return True
        except OSError:
            return None  # it is another user's
        return False

    def why_not_moved(self, file: Dropped) -> str | None:
        """Why the file could not be moved to "done"; None if it can."""
        folder, me = os.fstat(file.folder), os.geteuid()
        # Of the folders: on an overlay (containers) files have other devices than these.
        if folder.st_dev != self._done_stat.st_dev:
            return "lies on another filesystem than the folder for what is done"
        sticky = folder.st_mode & stat.S_ISVTX and me not in (0, folder.st_uid, file.stat.st_uid)
        if sticky or not os.access(".", os.W_OK | os.X_OK, dir_fd=file.folder):
            return "may not be moved away from its folder by this user"
        return None

    def move(self, file: Dropped, message_id: str) -> Moved:
        """Move a file to "done", durably, if it is as it was read and nobody writes to it.

        A file of its name that is there already stays. Raises OSError.
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
            # Several drop folders may have one "done": between the look and the rename nobody
            # else may take the name.
            fcntl.flock(self._done, fcntl.LOCK_EX)
            try:
                free = _free_name(target, name, message_id)
                os.rename(name, free, src_dir_fd=file.folder, dst_dir_fd=target)
            finally:
                fcntl.flock(self._done, fcntl.LOCK_UN)
            # Who opened it under its old name has done so by now; nobody else comes to it any more.
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
            pass  # a network filesystem that locks no folders

    def _open_done(self, done: Path | None) -> int:
        if done is not None:
            done.mkdir(parents=True, exist_ok=True)
            return os.open(done, _FOLDER)
        try:
            os.mkdir("done", dir_fd=self._fd)
        except FileExistsError:
            pass
        # Who may drop files may have made it, and must not choose where they go.
        return os.open("done", _FOLDER | os.O_NOFOLLOW, dir_fd=self._fd)

    def _can_see_writers(self) -> bool:
        if not hasattr(fcntl, "F_SETLEASE"):
            return False
        # A filesystem that gives out no leases (NFS) may answer as if somebody wrote: try it.
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
        """A folder within ours, open; None if it is none, or the one for what is done."""
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
        """A folder within "done", open; made where there is none. Raises OSError."""
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
    """The file's name; where that is taken already with the message's id, which is taken never."""
    if not _stands(folder, name):
        return name
    longer = f"{name}.{message_id}"
    return longer if len(os.fsencode(longer)) <= os.fpathconf(folder, "PC_NAME_MAX") else message_id


def _is_at(folder: int, name: str, file: Dropped) -> bool:
    """Whether a name leads to a file: another one may have taken its place before the move."""
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    return os.path.samestat(found, file.stat)


def _undo_move(folder: int, name: str, into: int, old: str) -> bool:
    """Undo a move; False if the old name is taken by now, or the filesystem has no links."""
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
