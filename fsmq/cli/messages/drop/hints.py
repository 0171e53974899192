"""File events of a drop folder. They are hints where to look: any of them may be missing."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from fsmq.cli.failures import Exit, Failure
from fsmq.cli.messages.drop.folder import DropFolder
from fsmq.daemons.process.observer import end, make_observer

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver

Hint = tuple[str, bool]
"""A path within the folder, and whether the event says that the file is complete."""


class Hints:
    """Watches a drop folder within a ``with`` block.

    noted: called in another thread with each hint.
    tells_of_closing: whether there is an event when a written file is closed.
    problem: why hints are missing; None if all come.
    """

    def __init__(self, folder: DropFolder, noted: Callable[[Hint], object]) -> None:
        """Prepare it. Raises Failure if the package watchdog is missing."""
        self.problem: str | None = None
        self.tells_of_closing = False
        self._observer: BaseObserver | None = None
        try:
            from watchdog import events

            self._observer, self.tells_of_closing = make_observer()
        except OSError as error:
            self._give_up(error)
        except ImportError as error:
            advice = "it comes with fsmq: pip install watchdog"
            raise Failure("the package watchdog is missing", Exit.USAGE, advice) from error

        class Handler(events.FileSystemEventHandler):
            def on_closed(self, event: events.FileSystemEvent) -> None:
                note(event.src_path, True)

            def on_moved(self, event: events.FileSystemEvent) -> None:
                note(event.dest_path, True)

            def on_created(self, event: events.FileSystemEvent) -> None:
                note(event.src_path, False)

        def note(path: bytes | str, complete: bool) -> None:
            name = folder.within(os.fsdecode(path)) if path else None
            if name is not None:
                noted((name, complete))

        self._folder = folder
        self._handler = Handler()
        # Without this filter each read, and each part of a write, would be an event, too.
        self._wanted: list[type[events.FileSystemEvent]] = [
            events.FileClosedEvent,
            events.FileMovedEvent,
            events.FileCreatedEvent,
        ]

    def __enter__(self) -> Self:
        folder = self._folder
        if self._observer is None:
            return self
        threading.excepthook = self._on_thread_ended
        try:
            self._observer.schedule(
                self._handler,
                str(folder.path),
                recursive=folder.recursive,
                event_filter=self._wanted,
            )
            self._observer.start()
        except OSError as error:
            self._give_up(error)
        return self

    def __exit__(self, *exception: object) -> None:
        threading.excepthook = threading.__excepthook__
        if self._observer is not None and self._observer.is_alive():
            end(self._observer)

    def _on_thread_ended(self, ended: threading.ExceptHookArgs) -> None:
        """A thread of watchdog ends when a new subfolder cannot be watched."""
        if isinstance(ended.exc_value, OSError):
            self._give_up(ended.exc_value)
        else:
            threading.__excepthook__(ended)

    def _give_up(self, error: OSError) -> None:
        self.tells_of_closing = False
        limit = _LIMITS.get(error.errno or 0)
        self.problem = f"raise {limit}" if limit else error.strerror or str(error)


_LIMITS = {
    errno.EMFILE: "fs.inotify.max_user_instances",
    errno.ENOSPC: "fs.inotify.max_user_watches",
}
