"""The folder of a channel: how it is made, and the small files in it."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any

from ..errors import Unavailable
from ..layout.files import write_all
from ..layout.names import check_queue
from ..layout.uuids import uuid7
from .disk import Disk
from .lines import DONE, Line, Tally
from .log_settings import ChannelSettings
from .progress import Progress
from .progress_file import progress_name

CHANNEL_FILE = "channel.json"
MAX_FILE_BYTES = 64 * 1024


def check_channel(name: str) -> str:
    """Return what may name a channel. Raises InvalidValue."""
    return check_queue(name, "channel")


class Channels:
    """The channels of a log: made, listed, removed. Methods raise OSError."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._tree = disk.tree

    def create(self, name: str, start: int, settings: ChannelSettings) -> bool:
        """Create a channel at an offset, durably; False if it was there, and is as it was."""
        if self.has(name):
            return False
        path = f"{self._disk.channels}/{name}"
        draft = f"{self._disk.channels}/.{uuid7()}"
        self._tree.make_entry(draft)
        try:
            self._begin(f"{draft}/{progress_name(1)}", start)
            self._tree.replace(f"{draft}/{CHANNEL_FILE}", encode(settings.as_dict()))
            self._tree.rename(draft, path)
        except FileExistsError:
            self._disk.trash(draft)
            self._disk.sync_folder(self._disk.channels)
            return False
        except OSError:
            with suppress(OSError):
                self._disk.trash(draft)
            raise
        if not self.has(name):
            raise Unavailable("it was under way for an hour: what there was of it has been removed")
        return True

    def _begin(self, path: str, start: int) -> None:
        begun = Progress(1, Tally(), None)
        begun.apply(Line(DONE, [(0, start)]))
        fd = self._tree.create(path)
        try:
            write_all(fd, begun.encode(uuid7()))
            self._disk.sync_file(fd)
        finally:
            os.close(fd)

    def has(self, name: str) -> bool:
        """Whether there is a channel, durably."""
        is_there = self._tree.is_folder(f"{self._disk.channels}/{name}")
        if is_there:
            self._disk.sync_folder(self._disk.channels)
        return is_there

    def delete(self, name: str) -> bool:
        """Delete a channel durably; False if there was none."""
        return self._disk.trash_durably(f"{self._disk.channels}/{name}")


def encode(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()
