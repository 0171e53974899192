"""What groups mean in a queue, what holds a group up, and who claims."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from ..layout.settings import QueueSettings
from ..layout.transitions import State
from .gate import SpoolView

# The length of the file of the claims.
WHO_BYTES = 64


class Mode(Enum):
    """What groups mean in a queue."""

    FIFO = "fifo"
    FAIR = "fair"
    LIMITED = "fair, with a limit for each group"


def mode_of(settings: QueueSettings) -> Mode:
    """The mode of a queue that is claimed by groups."""
    if settings.fifo:
        return Mode.FIFO
    return Mode.FAIR if settings.max_in_flight_per_group is None else Mode.LIMITED


def holds(spool_view: SpoolView, mode: Mode, queue: str, message_id: str) -> bool:
    """Whether a message in ``delay/`` holds up its group: without order, only if it is claimed.

    Nobody works on a message that waits for its delay or backoff. An unreadable one counts.
    """
    if mode is not Mode.LIMITED:
        return mode is Mode.FIFO
    try:
        found = spool_view.tree.stat(spool_view.tree.path(State.DELAY, queue, message_id))
    except OSError:
        return True
    stamp = found and spool_view.stamps.decode(message_id, found.st_mtime_ns)
    return bool(stamp and stamp.is_claim)


def line_of(who: str) -> bytes:
    """The content of the claims file after claims by a program."""
    return who.ljust(WHO_BYTES - 1)[: WHO_BYTES - 1].encode() + b"\n"


def kernel() -> str | None:
    """An id of the running kernel: file events only report changes by its programs."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
