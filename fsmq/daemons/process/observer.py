"""What reports file events on this system, of the package ``watchdog``; loaded when it is used."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver

# For its threads to end; they end with the process anyway.
_PATIENCE_S = 5.0


def make_observer() -> tuple[BaseObserver, bool]:
    """An observer, and whether it reports that a file is closed. Raises ImportError, OSError."""
    from watchdog.observers import Observer
    from watchdog.utils import UnsupportedLibcError

    try:
        from watchdog.observers.inotify import InotifyObserver
    except (ImportError, UnsupportedLibcError, AttributeError):
        return Observer(), False
    # "Full": else what is moved in from elsewhere would be reported like what is only begun.
    return InotifyObserver(generate_full_events=True), True


def end(observer: BaseObserver) -> None:
    """Stop an observer that was started."""
    # It logs its own end as an error.
    logging.getLogger("watchdog").setLevel(logging.CRITICAL)
    observer.stop()
    observer.join(_PATIENCE_S)
