"""File events of a drop folder. They are hints where to look: none of them has to come."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Self

from fsmq.cli.drop.folder import DropFolder
from fsmq.cli.failures import Exit, Failure
from fsmq.daemons.process.observer import end, make_observer

Hint = tuple[str, bool]
"""A path within the folder, and whether an event says that what is there is complete."""


class Hints:
    """Watches a drop folder within a ``with`` block.

    noted: called in another thread with each hint.
    tells_of_closing: whether the system says when a file that was written to is closed.
    """

    def __init__(self, folder: DropFolder, noted: Callable[[Hint], object]) -> None:
        """Prepare it. Raises Failure where the package watchdog is missing."""
        try:
            self._observer, self.tells_of_closing = make_observer()
            from watchdog import events
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
        # Else each read, and each part of a write, would be an event, too.
        self._wanted: list[type[events.FileSystemEvent]] = [
            events.FileClosedEvent,
            events.FileMovedEvent,
            events.FileCreatedEvent,
        ]

    def __enter__(self) -> Self:
        folder = self._folder
        try:
            self._observer.schedule(
                self._handler,
                str(folder.path),
                recursive=folder.recursive,
                event_filter=self._wanted,
            )
            self._observer.start()
        except OSError as error:
            raise Failure(
                f"cannot watch {folder.path}: {error.strerror or error}",
                Exit.UNAVAILABLE,
                "raise fs.inotify.max_user_watches or fs.inotify.max_user_instances (sysctl)",
            ) from error
        return self

    def __exit__(self, *exception: object) -> None:
        end(self._observer)
