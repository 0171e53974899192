"""The folder of a channel: how it is made, and the small files in it."""

from __future__ import annotations

import os

from ...layout import documents
from ...layout.files import write_all
from ...layout.uuids import uuid7
from ..log_settings import ChannelSettings
from ..segment.disk import Disk
from .lines import DONE, Line, Tally
from .progress import Progress
from .progress_file import progress_name

CHANNEL_FILE = "channel.json"
MAX_FILE_BYTES = 64 * 1024
# JSON readers keep whole numbers of 53 bits: the last bit leaves room for seeks.
_BITS = 52


def create(disk: Disk, name: str, start: int, settings: ChannelSettings) -> bool:
    """Create a channel at an offset, durably; False if it existed, unchanged.

    Raises OSError, Unavailable.
    """

    def fill(draft: str) -> None:
        begun = Progress(_first_generation(), Tally(), None)
        begun.apply(Line(DONE, [(0, start)]))
        fd = disk.tree.create(f"{draft}/{progress_name(1)}")
        try:
            write_all(fd, begun.encode(uuid7()))
            disk.sync_file(fd)
        finally:
            os.close(fd)
        disk.tree.replace(f"{draft}/{CHANNEL_FILE}", documents.encode(settings.as_dict()))

    return disk.make(disk.channel(name), fill)


def _first_generation() -> int:
    """A random number to begin with: so no claim of a deleted channel is one of a later channel."""
    return 1 + (int.from_bytes(os.urandom(8)) >> (64 - _BITS))
