"""File events: one inotify instance for all folders that a process watches.

Events only wake a process and name a file; the folder is the truth. After an overflow, or where
events do not arrive (network filesystems) or do not exist (any system but Linux), a listing finds
the same. If the user has no inotify instances or watches left, folders without a watch are listed
now and then, and `unwatched` tells which limit is reached.
"""

from __future__ import annotations

import errno
import os
import select
import struct
import sys
import threading
import time
from collections import Counter
from enum import Enum
from typing import ClassVar, Literal, NamedTuple
from weakref import WeakSet

from ..errors import UnusableSpool
from ..layout.tree import Tree

try:
    from inotify_simple import INotify, flags
except ImportError:  # only Linux has inotify
    HAS_EVENTS = False
else:
    HAS_EVENTS = True
    # CREATE of a file is left out on purpose: a file that is still being written has not arrived;
    # CLOSE_WRITE comes when it has. Folders have no CLOSE_WRITE, so their CREATE counts.
    _ARRIVALS = int(flags.MOVED_TO | flags.CLOSE_WRITE | flags.CREATE)
    _DEPARTURES = int(flags.MOVED_FROM | flags.DELETE)
    _CHANGES = int(flags.ATTRIB)
    _OVERFLOW = int(flags.Q_OVERFLOW)
    # The watched folder itself was removed or renamed.
    _GONE = int(flags.IGNORED | flags.MOVE_SELF)

# The head of an event: watch, mask, cookie, bytes of the name with its padding.
_HEAD = struct.Struct("iIII")
_LARGEST_BYTES = _HEAD.size + 256
# How much is read at a time: a thousand events.
_READ_BYTES = 64 * 1024
_NAMES = sys.getfilesystemencoding()
# The first byte of a name that does not count: an empty one, or that of a hidden file.
_NO_NAME = b"\0."

# The limit that is reached, by the error of creating an instance or a watch.
_LIMITS = {
    errno.EMFILE: "fs.inotify.max_user_instances",
    errno.ENOSPC: "fs.inotify.max_user_watches",
    errno.ENFILE: "fs.file-max",
    errno.ENOMEM: "the kernel's memory",
}

WatchMode = Literal["auto", "events", "poll"]
# How often to look for a folder of the layout that was removed.
_LOOK_S = 0.25


class Kind(Enum):
    ARRIVED = "arrived"  # a finished file, or a folder, has this name now
    LEFT = "left"
    CHANGED = "changed"  # its times were set
    LOST = "lost"  # events were dropped, or a folder was replaced: scan


class Event(NamedTuple):
    kind: Kind
    folder: str  # as given to watch(); empty for LOST
    name: str


def check_watched(watch: WatchMode) -> None:
    """Make sure that events arrive if they are required. Raises UnusableSpool."""
    if watch == "events" and (short := unwatched()):
        limits = " and ".join(short)
        raise UnusableSpool(f"not all folders can be watched: raise {limits}, or set watch to auto")


def must_poll(watch: WatchMode, network: bool) -> bool:
    """Whether folders are listed now and then, because there are no events or by choice.

    Raises:
        UnusableSpool: events are required, but this system has none.
    """
    if watch == "events" and not HAS_EVENTS:
        raise UnusableSpool("this system has no file events (inotify): set watch to auto or poll")
    return watch == "poll" or not HAS_EVENTS or (watch == "auto" and network)


class Events:
    """Watches folders of a tree; ``fileno()`` becomes readable when something happened.

    unwatched: folders that should be watched but cannot be, each with the limit that is reached;
        users of this class list them instead. They are tried again, unless the user had no instance
        left: only the next process tries that.

    Raises:
        OSError: (ENOSYS) the system has no events.
    """

    _open: ClassVar[WeakSet[Events]] = WeakSet()
    _opening: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, tree: Tree) -> None:
        if not HAS_EVENTS:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._tree = tree
        self._inotify: INotify | None = None
        self._limit = ""  # the limit that was reached, if there is no instance
        self.unwatched: dict[str, str] = {}
        self._folders: dict[int, str] = {}
        self._watches: dict[str, int] = {}
        self._masks: dict[str, int] = {}  # what is watched in each
        self._lasting: set[str] = set()  # those watched even if they come back later
        self._missing: set[str] = set()  # those of them that are missing
        self._is_inherited = False  # from our parent, by a fork
        self._has_lost = False  # lost events by the fork
        self._hidden: set[str] = set()  # folders whose hidden names are reported
        self._looked = 0.0
        self._begin()
        with self._opening:
            self._open.add(self)

    def _begin(self) -> None:
        try:
            self._inotify = INotify(nonblocking=True)
        except OSError as error:
            self._limit = _limit_reached(error)

    @classmethod
    def after_fork(cls) -> None:
        """In a child, give up the parent's instances: an event that one process reads does not
        reach the other. Once the child uses one it makes its own, and first reports LOST.
        """
        cls._opening = threading.Lock()
        for one in cls.all_open():
            if one._inotify is not None:
                one._inotify.close()
                one._inotify = None
            one._is_inherited = True

    def _begin_again(self) -> None:
        """Make an instance of our own after a fork. Raises OSError; the next call tries again."""
        if not self._is_inherited:
            return
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None
        self._begin()
        self._folders.clear()
        self._watches.clear()
        for folder, mask in list(self._masks.items()):
            if not self._add(folder, mask) and folder in self._lasting:
                self._missing.add(folder)
        self._is_inherited, self._has_lost = False, True

    @classmethod
    def all_open(cls) -> list[Events]:
        """Those of this process."""
        with cls._opening:
            return list(cls._open)

    def fileno(self) -> int | None:
        """Readable when something happened; None if the user had no instance left."""
        self._begin_again()
        return None if self._inotify is None else int(self._inotify.fileno())

    def close(self) -> None:
        with self._opening:
            self._open.discard(self)
        if self._inotify is not None:
            self._inotify.close()

    @property
    def is_complete(self) -> bool:
        """Whether all folders to be watched exist."""
        return not self._missing

    def watch(
        self,
        folder: str,
        *,
        files: bool = True,
        departures: bool = False,
        changes: bool = False,
        hidden: bool = False,
        lasting: bool = False,
    ) -> bool:
        """Watch a folder; False if it is missing, or `unwatched`.

        files: False if only subfolders matter. hidden: report dot-names and their renames.
        lasting: also watch a folder that gets this name later; LOST reports that, and that it can
        no longer be watched.
        """
        mask = flags.ONLYDIR | flags.DONT_FOLLOW | flags.MOVED_TO
        mask |= flags.CLOSE_WRITE if files else flags.CREATE
        if departures:
            mask |= _DEPARTURES
        if changes:
            mask |= _CHANGES
        if hidden:
            mask |= flags.MOVED_FROM
            self._hidden.add(folder)
        if lasting:
            mask |= flags.MOVE_SELF
            self._lasting.add(folder)
        self._begin_again()
        self._masks[folder] = int(mask)
        there = self._add(folder, int(mask))
        if lasting and not there:
            self._missing.add(folder)
        return there

    def _add(self, folder: str, mask: int) -> bool:
        if self._inotify is None:
            self.unwatched[folder] = self._limit
            return False
        try:
            watch = self._inotify.add_watch(os.path.join(self._tree.root, folder), mask)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                self.unwatched.pop(folder, None)
            else:
                self.unwatched[folder] = _limit_reached(error)
            return False
        self.unwatched.pop(folder, None)
        self._folders[watch] = folder
        self._watches[folder] = watch
        return True

    def unwatch(self, folder: str) -> None:
        self._masks.pop(folder, None)
        self._lasting.discard(folder)
        self._missing.discard(folder)
        self.unwatched.pop(folder, None)
        watch = self._watches.pop(folder, None)
        if watch is None or self._inotify is None:
            return
        self._folders.pop(watch, None)
        try:
            self._inotify.rm_watch(watch)
        except OSError:
            pass  # the folder is gone, and its watch with it

    def read(self, timeout_ms: int | None = 0) -> list[Event]:
        """What happened since the last call; waits up to ``timeout_ms`` (None: forever).

        Names that begin with a dot are left out, unless requested: no finished file has one.
        """
        self._begin_again()
        if timeout_ms != 0 and not self._has_lost:
            heard = [] if self._inotify is None else [self._inotify]
            select.select(heard, [], [], timeout_ms and timeout_ms / 1000)
        result: list[Event] = []
        while self._inotify is not None:
            try:
                data = os.read(self._inotify.fileno(), _READ_BYTES)
            except BlockingIOError:
                break
            self._parse(data, result)
            if len(data) < _READ_BYTES - _LARGEST_BYTES:
                break
        is_heard = self._inotify is not None
        if self._has_lost or (is_heard and self._missing and self._find_missing()):
            self._has_lost = False
            result.append(Event(Kind.LOST, "", ""))
        return result

    def _parse(self, data: bytes, result: list[Event]) -> None:
        at, end = 0, len(data)
        last, folder, kind = (-1, 0), "", None
        # Thousands come in a row: this takes a third of the time of calling Event.
        add, new = result.append, tuple.__new__
        while at < end:
            watch, mask, _, size = _HEAD.unpack_from(data, at)
            begin = at + _HEAD.size
            at = begin + size
            if (watch, mask) != last:
                last = watch, mask
                folder = self._folders.get(watch, "")
                kind = self._kind(watch, mask, folder)
                if kind is Kind.LOST:
                    result.append(Event(Kind.LOST, "", ""))
            if (
                kind is not None
                and size
                and (data[begin] not in _NO_NAME or folder in self._hidden)
            ):
                # Padded with zeros. Decoded like os.fsdecode, but faster.
                name = data[begin:at].rstrip(b"\0").decode(_NAMES, "surrogateescape")
                add(new(Event, (kind, folder, name)))

    def _kind(self, watch: int, mask: int, folder: str) -> Kind | None:
        """The kind of an event of a folder; None if it does not count."""
        if mask & _OVERFLOW:
            return Kind.LOST
        if not folder:
            return None
        if mask & _GONE:
            self._lose(watch, folder)
        if mask & _ARRIVALS:
            return Kind.ARRIVED
        if mask & _DEPARTURES:
            return Kind.LEFT
        return Kind.CHANGED if mask & _CHANGES else None

    def _lose(self, watch: int, folder: str) -> None:
        """Note that a watched folder no longer has its name."""
        if folder not in self._lasting:
            return
        self._looked = 0.0
        self._missing.add(folder)
        del self._folders[watch]
        del self._watches[folder]
        assert self._inotify is not None
        try:
            self._inotify.rm_watch(watch)
        except OSError:
            pass  # it was removed, and its watch with it

    def _find_missing(self) -> bool:
        """Watch new folders with the names of missing ones; whether to list: one was found, or
        cannot be watched from now on.
        """
        now = time.monotonic()
        if now - self._looked < _LOOK_S:
            return False
        self._looked = now
        before = set(self.unwatched)
        found = set()
        for folder in self._missing:
            try:
                if self._add(folder, self._masks[folder]):
                    found.add(folder)
            except OSError:
                continue  # an error of the disk: try later
        self._missing -= found
        return bool(found or self._missing & self.unwatched.keys() - before)


os.register_at_fork(after_in_child=Events.after_fork)


def unwatched() -> dict[str, int]:
    """How many folders this process lists because a limit is reached, by that limit."""
    limits = (limit for one in Events.all_open() for limit in list(one.unwatched.values()))
    return dict(Counter(limits))


def _limit_reached(error: OSError) -> str:
    """The limit that an error of inotify means. Raises any other error."""
    limit = _LIMITS.get(error.errno or 0)
    if limit is None:
        raise error
    if error.errno == errno.EMFILE and _has_no_descriptor():
        return "open files of a process (ulimit -n)"
    return limit


def _has_no_descriptor() -> bool:
    try:
        os.close(os.open(os.curdir, os.O_PATH))
    except OSError as error:
        return error.errno == errno.EMFILE
    return False
