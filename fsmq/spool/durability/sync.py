"""Group commit: all changes that wait at the same moment become durable with one sync.

A verb changes the tree and hands over the :class:`Dirty` that makes its change durable. Callers
that arrive while a sync runs form the next group, so the size of a group follows the load by
itself: one lone client waits for one sync, a thousand share it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Literal, TypeVar, get_args

from ..errors import InvalidValue, Unavailable, unavailable
from ..layout.tree import Tree

T = TypeVar("T")
SyncMode = Literal["auto", "fsync", "syncfs", "none"]

_call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)  # only Linux has it
# How many groups are synced at a time: while one waits for the disk, the next is submitted.
IN_FLIGHT = 2
# Seconds between two trials of the method that is not in use; doubled while it keeps losing.
_FIRST_LOOK_S = 5.0
_LONGEST_LOOK_S = 600.0
_SMOOTHING = 0.2
_LARGEST_TRIAL = 16
# How many files of a change stay open until they are synced, since an open file reports its write
# errors for certain. The usual limit of a process is 1024; of a daemon's higher limit a share is
# used.
_MAX_OPEN, _MOST_OPEN = 256, 1000
_SHARE = 16


@dataclass(slots=True)
class Dirty:
    """What has to reach stable media for a change to be durable.

    Make it before the change: a failed syncfs casts doubt on every change begun before its end.
    """

    files: list[int] = field(default_factory=list)  # open descriptors; closed by the group
    folders: set[str] = field(default_factory=set)  # paths relative to the root
    closed: list[str] = field(default_factory=list)  # paths of files whose times were set
    written: list[str] = field(default_factory=list)  # paths of new files, too many to keep open
    # Descriptors of folders that were renamed, closed by the group.
    moved_folders: list[int] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)

    @property
    def is_clean(self) -> bool:
        """Whether there is nothing to be synced."""
        of_files = self.files or self.folders or self.closed or self.written
        return not (of_files or self.moved_folders)

    def keep(self, fd: int, path: str) -> bool:
        """Take over a new file; False if too many are open: then the caller closes it."""
        if len(self.files) < max_open():
            self.files.append(fd)
            return True
        self.written.append(path)
        return False

    def take(self, other: Dirty) -> None:
        """Take over everything from another one, which is empty afterwards."""
        self.files += other.files
        self.folders |= other.folders
        self.closed += other.closed
        self.written += other.written
        self.moved_folders += other.moved_folders
        self.begun = min(self.begun, other.begun)
        other.files, other.folders, other.closed, other.moved_folders = [], set(), [], []
        other.written = []

    def close(self) -> None:
        """Close the files; afterwards nothing is left to be synced."""
        fds = (*self.files, *self.moved_folders)
        self.files, self.closed, self.written, self.moved_folders = [], [], [], []
        for fd in fds:
            try:
                os.close(fd)
            except OSError:
                continue  # NFS reports the error of the sync once more; it is closed all the same


@cache  # a daemon raises its limit before its first put
def max_open() -> int:
    """How many files of a change can stay open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(_MAX_OPEN, min(soft // _SHARE, _MOST_OPEN))


class Group:
    """Changes that share one sync, and how it ended."""

    def __init__(self) -> None:
        self.changes: list[Dirty] = []
        self.method: SyncMode = "none"
        self.done = False
        self.error: Unavailable | None = None

    def close(self) -> None:
        """Close the files of all changes."""
        for dirty in self.changes:
            dirty.close()

    def check(self) -> None:
        """Raise if the sync failed: then no file of the group counts as stored."""
        if self.error is not None:
            # A copy: one exception object raised in many threads would mix their tracebacks.
            raise Unavailable(str(self.error), self.error.retry_after) from self.error


class Syncer:
    """Syncs groups on one filesystem.

    ``mode`` is ``fsync`` (each file and each folder), ``syncfs`` (the whole filesystem in one
    call), ``auto`` (whichever is measured to be faster for the group at hand) or ``none`` (nothing
    is durable: for tests and scratch data). ``threads`` fsyncs run side by side. ``whole``: whether
    syncfs syncs everything here and reports its errors; if not, fsync is used.

    syncfs reports a write error once, and not whose it was: the error of one group can be reported
    to another, and then never to the first. So after a failure every file that was begun before
    syncfs returned is checked by fsync: docs/decisions/0005-a-failed-syncfs.md. ``IN_FLIGHT``
    groups are synced at the same time, each with a descriptor of its own, to which syncfs reports
    all errors that came before its end.
    """

    def __init__(
        self, tree: Tree, mode: SyncMode = "auto", threads: int = 8, whole: bool = True
    ) -> None:
        if mode not in get_args(SyncMode):
            known = ", ".join(get_args(SyncMode))
            raise InvalidValue("sync", f"unknown mode {mode!r}; expected one of: {known}")
        self.tree = tree
        self.mode: SyncMode = mode if whole or mode == "none" else "fsync"
        self.syncs = 0
        self.synced = 0
        self.on_sync: Callable[[str, int, float], None] | None = None  # method, works, seconds
        self._costs = _Costs()
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._joining = threading.Lock()
        self._leading = threading.Lock()
        self._counting = threading.Lock()
        self._asking = threading.Lock()  # one group at a time syncs files that are not open
        # Open from the start: a later descriptor does not get errors that others were told before.
        self._descriptors = [tree.fd, *(tree.open_folder(".") for _ in range(IN_FLIGHT - 1))]
        self._free: SimpleQueue[int] = SimpleQueue()
        for fd in self._descriptors:
            self._free.put(fd)
        # When a syncfs, or an fsync of a closed file, failed last; compared to Dirty.begun.
        self._failed_at = float("-inf")
        self._failed_with = 0
        self._open = Group()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        for fd in self._descriptors[1:]:  # the first is the tree's
            os.close(fd)
        self._descriptors = self._descriptors[:1]

    def sync(self, dirty: Dirty) -> None:
        """Make one change durable, together with all that wait. Blocks; called from any thread.

        Raises:
            Unavailable: the sync failed; the change must be taken back.
        """
        with self._joining:
            group = self._open
            group.changes.append(dirty)
        # One sync at a time. The first thread to get here syncs for all that have joined by then.
        with self._leading:
            if not group.done:
                with self._joining:
                    self._open = Group()
                self.run(group)
        group.check()

    def run(self, group: Group) -> None:
        """Sync a closed group, note the outcome in it, and close its files."""
        try:
            self.run_only(group)
        finally:
            group.close()

    def run_only(self, group: Group) -> None:
        """The same, but the caller closes the group's files."""
        size = _size(group)
        started = time.perf_counter()
        try:
            self._sync(group, size)
        except OSError as error:
            group.error = unavailable(error, f"{group.method} of {len(group.changes)} changes")
        except BaseException:  # raised by a signal handler: nothing is known of any change
            group.error = Unavailable("the sync was interrupted")
            raise
        finally:
            group.done = True
        seconds = time.perf_counter() - started
        with self._counting:
            self.syncs += 1
            self.synced += len(group.changes)
            self._costs.record(group.method, size, seconds)
            if self.on_sync is not None:
                self.on_sync(group.method, len(group.changes), seconds)

    def _sync(self, group: Group, size: int) -> None:
        fd = self._free.get()
        try:
            # Only now that the descriptor is ours: until then the sync of another group could fail.
            group.method = "fsync" if self._is_doubtful(group) else self._method(group, size)
            if group.method == "syncfs":
                self._syncfs(fd)
        finally:
            self._free.put(fd)
        if group.method == "fsync":
            self._fsync_all(group)

    def _method(self, group: Group, size: int) -> SyncMode:
        if self.mode != "auto":
            return self.mode
        if any(dirty.written for dirty in group.changes):
            return "syncfs"  # an fsync by path does not report errors for certain
        with self._counting:
            return self._costs.choose(size)

    def _syncfs(self, fd: int) -> None:
        try:
            _syncfs(fd)
        except OSError as error:
            self._fail(error)
            raise

    def _fail(self, error: OSError) -> None:
        """Remember a failure, and use up its report on all idle descriptors.

        Otherwise each of them would fail one more group that has nothing to do with it.
        """
        idle = []
        with contextlib.suppress(Empty):
            while True:
                idle.append(self._free.get_nowait())
        for fd in idle:
            with contextlib.suppress(OSError):
                _syncfs(fd)
        # After these calls, and before anyone uses the descriptors: they may have reported errors
        # of any file, so everything begun before now is checked file by file.
        self._failed_at, self._failed_with = time.monotonic(), error.errno or 0
        for fd in idle:
            self._free.put(fd)

    def _fsync_all(self, group: Group) -> None:
        files = [fd for dirty in group.changes for fd in dirty.files]
        self._each(os.fsync, files)
        if any(dirty.written for dirty in group.changes):
            self._fsync_written(group)
        closed = [path for dirty in group.changes for path in dirty.closed]
        self._each(self.tree.sync_file, closed)
        # Folders after files: a name must never be durable before what it names.
        moved = [fd for dirty in group.changes for fd in dirty.moved_folders]
        self._each(self.tree.sync_opened, moved)
        folders = sorted({folder for dirty in group.changes for folder in dirty.folders})
        self._each(self.tree.sync_folder, folders)

    def _fsync_written(self, group: Group) -> None:
        """Sync the files that are not open, one group at a time.

        A descriptor that is opened now does not get an error that another was told before, nor one
        of an inode that the kernel has dropped. So a failure counts for everything begun before it.
        """
        with self._asking:
            if not self._is_doubtful(group):
                try:
                    self._each(
                        self.tree.sync_file,
                        [path for dirty in group.changes for path in dirty.written],
                    )
                    return
                except OSError as error:
                    self._failed_at, self._failed_with = time.monotonic(), error.errno or 0
            raise OSError(self._failed_with, os.strerror(self._failed_with))

    def _is_doubtful(self, group: Group) -> bool:
        return any(dirty.begun <= self._failed_at for dirty in group.changes)

    def _each(self, sync: Callable[[T], None], things: list[T]) -> None:
        if len(things) < 2 or self._threads < 2:
            for thing in things:
                sync(thing)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "fsmq-fsync")
        outcomes = [self._pool.submit(sync, thing) for thing in things]
        wait(outcomes)  # all of them: a descriptor must not be closed while its fsync runs
        for outcome in outcomes:
            outcome.result()


def sync_filesystem(path: str | Path) -> None:
    """Make everything durable that was written to a folder's filesystem. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _syncfs(fd)
    finally:
        os.close(fd)


def _syncfs(fd: int) -> None:
    if _call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if _call(fd):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _size(group: Group) -> int:
    """How many fsync calls the group would need."""
    files = sum(
        len(w.files) + len(w.closed) + len(w.written) + len(w.moved_folders) for w in group.changes
    )
    return files + len({folder for dirty in group.changes for folder in dirty.folders})


class _Costs:
    """Recent costs of the two methods, as moving averages: fsync per call, syncfs per group.

    The method that is not in use is tried now and then, since other writers on the filesystem,
    which make syncfs slow, come and go. Each time it loses, the next trial is later.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._per_fsync: float | None = None
        self._per_syncfs: float | None = None
        self._pause = _FIRST_LOOK_S
        self._next_look = clock()
        self._looking = False

    def choose(self, size: int) -> SyncMode:
        if self._per_syncfs is None:
            return "syncfs"
        if self._per_fsync is None:
            return "fsync" if size <= _LARGEST_TRIAL else "syncfs"
        better: SyncMode = "syncfs" if self._per_syncfs <= self._per_fsync * size else "fsync"
        if self._clock() < self._next_look:
            return better
        # Only a small group tries fsync: a large one would pay for each of its files.
        if better == "syncfs" and size > _LARGEST_TRIAL:
            return better
        self._looking = True
        return "fsync" if better == "syncfs" else "syncfs"

    def record(self, method: SyncMode, size: int, seconds: float) -> None:
        if method == "syncfs":
            self._per_syncfs = _average(self._per_syncfs, seconds, fresh=self._looking)
        elif method == "fsync":
            each = seconds / max(size, 1)
            self._per_fsync = _average(self._per_fsync, each, fresh=self._looking)
        if self._looking:
            self._looking = False
            self._plan_next_look(method, size)

    def _plan_next_look(self, tried: SyncMode, size: int) -> None:
        syncfs, fsync = self._per_syncfs or 0.0, (self._per_fsync or 0.0) * size
        won = syncfs < fsync if tried == "syncfs" else fsync < syncfs
        self._pause = _FIRST_LOOK_S if won else min(self._pause * 2, _LONGEST_LOOK_S)
        self._next_look = self._clock() + self._pause


def _average(old: float | None, new: float, *, fresh: bool) -> float:
    # A figure that was not updated for a while is out of date: the new one replaces it.
    return new if old is None or fresh else old + _SMOOTHING * (new - old)
