"""The small files of a log: its locks, and checkpoints that note how far something holds.

``.writer`` is locked to append, and is empty. ``.sync`` is locked to sync, and notes up to where
everything is on stable storage: it is written after the sync. A turn notes where the last whole
append ended. Checkpoints are not synced: after a crash of the machine, or a lost and remounted
filesystem, they can be older than the segments, and a turn can be newer. No process survives that,
so each process compares them with the newest segment before it relies on them. A checkpoint that is
missing or does not verify only costs a walk through that segment.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
import weakref
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import ClassVar, NamedTuple

from ...errors import Unavailable
from ...layout.tree import Tree

_CHECKPOINT_BYTES = 256
PATIENCE_S = 20.0
FAILED, UNDER_WAY = 1, 2
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0002, 0.01


class End(NamedTuple):
    """A place between two batches.

    number, base: of the segment. ordinal: how many of its messages come before. time_us: of the
    last one. latest_us: the latest time of them all; 0 if there are none. state: FAILED if a sync
    beyond it failed; UNDER_WAY while one is running or, in a turn, while its writer is in.
    """

    number: int
    base: int
    ordinal: int
    position: int
    time_us: int = 0
    latest_us: int = 0
    state: int = 0

    @property
    def offset(self) -> int:
        """The offset of the next message."""
        return self.base + self.ordinal

    @property
    def piece(self) -> tuple[int, int, int, int, int]:
        """The segment up to here: number, first offset, next offset, position, latest time."""
        return self.number, self.base, self.offset, self.position, self.latest_us

    def reaches(self, end: End) -> bool:
        """Whether another place of the same segment comes before this one, or is the same."""
        return self.number == end.number and self.position >= end.position


class LockFile:
    """A file for locking, opened. Methods raise OSError."""

    _open: ClassVar[weakref.WeakSet[LockFile]] = weakref.WeakSet()

    def __init__(self, tree: Tree, path: str, flags: int = os.O_RDWR | os.O_CREAT) -> None:
        self._tree = tree
        self.path = path
        self._fd = tree.create(path, flags | tree.shared)
        self._inode = os.fstat(self._fd).st_ino
        self._mutex = threading.Lock()
        self._open.add(self)

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def is_current(self) -> bool:
        """Whether the file still has its name. It is open, so no other can have its number."""
        found = self._tree.look(self.path)
        return found is not None and found.st_ino == self._inode

    @contextmanager
    def locked(self, patience_s: float = PATIENCE_S) -> Iterator[None]:
        """Hold the lock. Raises Unavailable if another process has it for long."""
        self.lock(patience_s)
        try:
            yield
        finally:
            self.unlock()

    def lock(self, patience_s: float = PATIENCE_S) -> None:
        """Take the lock. Raises Unavailable if another process has it for long."""
        if not self._mutex.acquire(timeout=patience_s):
            raise _busy(self.path)
        try:
            self._lock(patience_s)
        except BaseException:
            self._mutex.release()
            raise

    def unlock(self) -> None:
        """Release the lock."""
        with suppress(OSError):
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        self._mutex.release()

    def _lock(self, patience_s: float) -> None:
        pause, end = _FIRST_PAUSE_S, time.monotonic() + patience_s
        while True:
            try:
                return fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    raise _busy(self.path) from None
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)

    def read_bytes(self, size: int, start: int = 0) -> bytes:
        """Bytes of the file."""
        return os.pread(self._fd, size, start)

    def write_bytes(self, data: bytes, start: int = 0) -> None:
        """Replace bytes of the file."""
        if os.pwrite(self._fd, data, start) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)

    @classmethod
    def _leave_to_parent(cls) -> None:
        """Close a child's copies: they would keep the locks of a parent that is killed."""
        for one in list(cls._open):
            one.close()
        cls._open.clear()


os.register_at_fork(after_in_child=LockFile._leave_to_parent)


class Checkpoint(LockFile):
    """A checkpoint, opened. Methods raise OSError."""

    def __init__(self, tree: Tree, path: str, flags: int = 0) -> None:
        super().__init__(tree, path, os.O_RDWR | os.O_CREAT | flags)
        # A cache of the parsed bytes, mostly those that this process has written.
        self._known: tuple[bytes, End | None] = b"", None

    def read(self) -> End | None:
        """The content of the file; None if it does not verify."""
        if self._tree.network:
            return read_checkpoint(self._tree, self.path)  # an old descriptor may be stale
        # A write may be in progress: the checksum tells, and another read finds it whole.
        for _ in range(3):
            data = self.read_bytes(_CHECKPOINT_BYTES)
            known, found = self._known
            if data == known:
                return found
            found = _parse(data)
            if found is not None:
                self._known = data, found
                return found
        return None

    def write(self, end: End) -> None:
        """Replace the content of the file."""
        line = encode_checkpoint(end)
        self.write_bytes(line)
        self._known = line, end


def encode_checkpoint(end: End) -> bytes:
    """The content of a checkpoint's file."""
    text = " ".join(map(str, end)).encode()
    return (b"%s %08x" % (text, zlib.crc32(text))).ljust(_CHECKPOINT_BYTES - 1) + b"\n"


def read_checkpoint(tree: Tree, path: str) -> End | None:
    """The content of a checkpoint, read only; None if it does not verify. Raises OSError."""
    try:
        fd = tree.open(path, os.O_RDONLY | tree.shared)
    except FileNotFoundError:
        return None
    try:
        return _parse(os.pread(fd, _CHECKPOINT_BYTES, 0))
    finally:
        os.close(fd)


def _parse(data: bytes) -> End | None:
    text, _, seal = data.strip().rpartition(b" ")
    try:
        if not text or int(seal, 16) != zlib.crc32(text):
            return None
        return End(*map(int, text.split(b" ")))
    except (ValueError, TypeError):
        return None


def _busy(path: str) -> Unavailable:
    return Unavailable(f"another process holds the lock {path}: it may be stopped", 5)
