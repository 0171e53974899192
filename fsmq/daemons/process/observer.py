"""File events on this system, by the package ``watchdog``, which is imported when it is used."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver

# How long to wait for its threads, which end with the process anyway.
_PATIENCE_S = 5.0


def make_observer() -> tuple[BaseObserver, bool]:
    """An observer, and whether it reports that a file is closed. Raises ImportError, OSError."""
    from watchdog.observers import Observer
    from watchdog.utils import UnsupportedLibcError

    try:
        from watchdog.observers.inotify import InotifyObserver
    except (ImportError, UnsupportedLibcError, AttributeError):
        return Observer(), False
    # Without "full" events a file that is moved in would look like one that has just been created.
    return InotifyObserver(generate_full_events=True), True


def end(observer: BaseObserver) -> None:
    """Stop an observer that was started."""
    # It logs being stopped as an error.
    logging.getLogger("watchdog").setLevel(logging.CRITICAL)
    observer.stop()
    observer.join(_PATIENCE_S)
