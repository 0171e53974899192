"""Notices replaced files: new secrets are renamed into place, and nobody sends a signal."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fsmq.daemons.process.logs import get_logger
from fsmq.daemons.process.observer import end, make_observer

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent, FileSystemEventHandler
    from watchdog.observers.api import BaseObserver, ObservedWatch

log = get_logger(__name__)
# A certificate and its key are replaced one after the other.
_SETTLE_S = 0.5
# How often to look while a file cannot be used: no event tells that it can be read now (chmod).
_RETRY_S = 2.0
# How often to look otherwise: no event tells that a folder was replaced, or that another host has
# written to it (NFS).
_LOOK_EVERY_S = 10.0
# As many links as Linux follows.
_MOST_LINKS = 40

_SECOND_NS = 1_000_000_000
# How long the time of a change can come again where times are whole seconds.
_TICK_S = 1.05

Version = tuple[int, ...]
# A path, and the folder that it led to when it was watched: a watch stays with the folder.
_Folder = tuple[str, Version]


def version_of(path: Path) -> Version:
    """What tells one version of a file from another; empty if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return ()
    version = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    # Where times are whole seconds, what is written later in this second has the same: so it equals
    # no version until that is over.
    is_whole = not found.st_ctime_ns % _SECOND_NS
    is_settled = not is_whole or abs(time.time() - found.st_ctime) > _TICK_S
    return version if is_settled else (*version, time.monotonic_ns())


class FileWatch:
    """Calls back on the event loop after events in the folders of files, and periodically.

    changed: reads files that have changed, and returns whether all of them can be used.
    """

    def __init__(self, paths: Sequence[Path], changed: Callable[[], Awaitable[bool]]) -> None:
        self._paths = paths
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._looks: set[asyncio.Task[None]] = set()
        self._observer: BaseObserver | None = None
        self._handler: FileSystemEventHandler | None = None
        self._events: list[type[FileSystemEvent]] = []
        self._watched: dict[_Folder, ObservedWatch] = {}

    def start(self) -> None:
        """Begin; if there are no events, log that changes are noticed late."""
        try:
            self._observer, _ = make_observer()
            self._prepare()
            self._watch_folders()
            self._observer.start()
        except (ImportError, OSError) as error:
            log.warning("files that change are noticed late: send SIGHUP", error=error)
            self._observer = None
        # A file may have changed between the first reading and the first watch.
        self._look_soon()

    def close(self) -> None:
        """End it."""
        if self._timer is not None:
            self._timer.cancel()
        for look in self._looks:
            look.cancel()
        observer, self._observer = self._observer, None
        if observer is not None:
            end(observer)

    def _prepare(self) -> None:
        from watchdog import events

        loop, look_soon = self._loop, self._look_soon

        class Handler(events.FileSystemEventHandler):
            def on_any_event(self, event: events.FileSystemEvent) -> None:
                try:
                    loop.call_soon_threadsafe(look_soon)
                except RuntimeError:
                    pass  # the loop has ended

        self._handler = Handler()
        # Renamed, made, written and removed. A link to a folder counts as a file.
        self._events = [
            events.FileMovedEvent,
            events.DirMovedEvent,
            events.FileCreatedEvent,
            events.FileClosedEvent,
            events.FileDeletedEvent,
        ]

    def _watch_folders(self) -> None:
        """Watch the folders in which the files are now. Raises OSError."""
        observer, handler = self._observer, self._handler
        if observer is None or handler is None:
            return
        paths = {folder for path in self._paths for folder in folders_of(path)}
        wanted = {(path, version_of(Path(path))[:2]) for path in paths}
        for folder in self._watched.keys() - wanted:
            observer.unschedule(self._watched.pop(folder))
        for folder in wanted - self._watched.keys():
            self._watched[folder] = observer.schedule(handler, folder[0], event_filter=self._events)

    def _look_soon(self, seconds: float = _SETTLE_S) -> None:
        """Look after some seconds, unless a look is due sooner anyway."""
        if self._timer is not None:
            if self._timer.when() <= self._loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        try:
            self._watch_folders()
        except OSError as error:
            log.warning("a folder of keys or certificates cannot be watched", error=error)
        look = self._loop.create_task(self._look_now())
        self._looks.add(look)
        look.add_done_callback(self._looks.discard)

    async def _look_now(self) -> None:
        self._look_soon(_LOOK_EVERY_S if await self._changed() else _RETRY_S)


def folders_of(path: Path) -> set[str]:
    """The folders in which a change can make a path lead to another file.

    Those of the file itself and of each link on the way to it: Kubernetes replaces a link to the
    folder in which the file is.
    """
    found = set()
    here = "/"
    ahead = deque(path.absolute().parts[1:])
    links = 0
    while ahead:
        step = ahead.popleft()
        if step == "..":
            here = os.path.dirname(here)
            continue
        there = os.path.join(here, step)
        try:
            target = os.readlink(there)
        except OSError:  # not a link, or nothing
            if not ahead and os.path.isdir(here):
                found.add(here)
            here = there
            continue
        found.add(here)
        links += 1
        if links > _MOST_LINKS:
            break
        if os.path.isabs(target):
            here = "/"
        ahead.extendleft(reversed([part for part in target.split("/") if part not in ("", ".")]))
    return found
