"""Which files of watched folders have moved since a listing of these folders began.

A rename is a pair of events with the same cookie. A file that was created since then is fresh, and
stays so wherever it goes; any other file that moves is noted with its latest path.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator

from ..index import events
from ..layout.transitions import NEW, QUEUES
from ..layout.tree import Tree

if events.HAS_EVENTS:
    from inotify_simple import INotify, flags

    _CREATE, _DELETE = int(flags.CREATE), int(flags.DELETE)
    _FROM, _TO = int(flags.MOVED_FROM), int(flags.MOVED_TO)
    _FOLDER, _OVERFLOW = int(flags.ISDIR), int(flags.Q_OVERFLOW)
    _MASK = flags.CREATE | flags.DELETE | flags.MOVED_FROM | flags.MOVED_TO
    _MASK |= flags.ONLYDIR | flags.DONT_FOLLOW

# Both halves of a rename come from one call, whose thread may get no time in between. A message
# that is removed has no second half.
_HALVES_S = 5.0
# No instance or watch is left to this user.
_LIMITS = (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOMEM)


def _instance() -> INotify:
    # Of that module, whose tests use one again instead of closing it.
    return getattr(events, "INotify")(nonblocking=True)  # noqa: B009


class Renames:
    """Watches folders. Methods raise OSError.

    moved: the paths of files that have moved and are not fresh, with the numbers of their arrivals.
    lost: whether events were lost since `begin`.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._inotify: INotify | None = None
        self._unwatched = tree.network or not events.HAS_EVENTS
        self._folders: dict[int, str] = {}
        self._watches: dict[str, int] = {}
        # By cookie: followed, fresh (False) or neither, and when it was read; the oldest first.
        self._left: dict[int, tuple[bool | None, float]] = {}
        self._fresh: set[str] = set()
        self._made: list[str] = []
        self._is_closed = False
        self._arrivals = 0
        self.moved: dict[str, int] = {}
        self.lost = False
        if not self._unwatched:
            try:
                self._inotify = _instance()
            except OSError as error:
                self._stop_watching(error)

    def close(self) -> None:
        if self._inotify is not None:
            self._inotify.close()

    @property
    def is_watching(self) -> bool:
        """Whether all folders are watched."""
        return not self._unwatched

    def watch(self, folder: str) -> None:
        """Watch a folder, unless it is gone."""
        if self._inotify is None or self._unwatched:
            return
        try:
            watch = self._inotify.add_watch(os.path.join(self._tree.root, folder), _MASK)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                self._stop_watching(error)
            return
        # The folder that had this name before was replaced: what leaves it does not leave this one.
        self._folders.pop(self._watches.get(folder, watch), None)
        self._folders[watch], self._watches[folder] = folder, watch

    def _stop_watching(self, error: OSError) -> None:
        if error.errno not in _LIMITS:
            raise error
        self._unwatched = True

    def begin(self) -> None:
        """Forget what has moved so far: all folders are about to be listed."""
        self._is_closed = False
        self.read()
        self.moved.clear()
        self._fresh.clear()
        self._left.clear()
        self.lost = False

    def end(self) -> None:
        """All folders are listed: from now on follow only what is in `moved`."""
        self.read()
        self._is_closed = True
        self._fresh.clear()

    def new_queues(self) -> Iterator[str]:
        """Queues whose folders have been made since the last call."""
        made, self._made = self._made, []
        return iter(dict.fromkeys(made))

    def read(self) -> None:
        """Take in what has happened."""
        if self._inotify is None:
            return
        for watch, mask, cookie, name in self._inotify.read(timeout=0):
            if mask & _OVERFLOW:
                self.lost = True
            folder = self._folders.get(watch)
            if folder is not None and name:
                self._take(folder, name, mask, cookie)
        self._forget_halves()

    def _forget_halves(self) -> None:
        """Forget what has left the watched folders: its other half would have come by now, however
        long this process was stopped."""
        until = time.monotonic() - _HALVES_S
        while self._left:
            cookie, (_, read) = next(iter(self._left.items()))
            if read > until:
                return
            del self._left[cookie]

    def _take(self, folder: str, name: str, mask: int, cookie: int) -> None:
        path = f"{folder}/{name}"
        if mask & _FOLDER:
            if mask & (_CREATE | _TO) and folder == QUEUES:
                self._made.append(name)
        elif mask & (_FROM | _DELETE):
            state: bool | None = path in self.moved or (None if self._is_closed else True)
            if path in self._fresh:
                state = False
            self.moved.pop(path, None)
            self._fresh.discard(path)
            if mask & _FROM:
                self._left[cookie] = state, time.monotonic()
        elif mask & _CREATE:
            if not self._is_closed:
                self._fresh.add(path)
        else:
            self._arrive(folder, name, path, cookie)

    def _arrive(self, folder: str, name: str, path: str, cookie: int) -> None:
        if cookie not in self._left:
            # From a folder without a watch: a queue that was just made; or, into new/, a job that
            # is being committed, or a shell user's file.
            state: bool | None = folder != NEW or name[0] == "." or None
        else:
            state, _ = self._left.pop(cookie)
        self._fresh.discard(path)  # what was here has gone with its folder
        if state:
            self._arrivals += 1
            self.moved[path] = self._arrivals
        elif state is False and not self._is_closed:
            self._fresh.add(path)
