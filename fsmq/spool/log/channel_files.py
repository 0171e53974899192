"""The folder of a channel: how it is made, and the small files in it."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from ..layout import documents
from ..layout.names import check_queue
from ..layout.tree import Tree
from ..layout.uuids import uuid7
from .disk import Disk
from .finished import DONE, done_name
from .holds import CLAIMS, RETRY
from .log_settings import ChannelSettings

CHANNEL_FILE, TALLY_FILE, LOCK = "channel.json", "tally.json", ".lock"
MAX_FILE_BYTES = 64 * 1024


def check_channel(name: str) -> str:
    """Return what may name a channel. Raises InvalidValue."""
    return check_queue(name, "channel")


@dataclass(slots=True)
class Tally:
    """What a channel did not get, over all its generations.

    lost: messages that retention took, or damage. first_lost: the offset of the first.
    lost_through: what has been counted. skipped, buried: by on_poison.
    """

    lost: int = 0
    first_lost: int | None = None
    lost_through: int = 0
    skipped: int = 0
    buried: int = 0


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
            make_generation(self._disk.tree, f"{draft}/1", start)
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
        self._disk.sync_folder(self._disk.channels)
        return True

    def has(self, name: str) -> bool:
        """Whether there is a channel, durably."""
        is_there = self._tree.is_folder(f"{self._disk.channels}/{name}")
        if is_there:
            self._disk.sync_folder(self._disk.channels)
        return is_there

    def delete(self, name: str) -> bool:
        """Delete a channel durably; False if there was none."""
        return self._disk.trash_durably(f"{self._disk.channels}/{name}")


def make_generation(tree: Tree, folder: str, start: int) -> None:
    """The folders of a generation that begins at an offset, durably but for its name."""
    tree.make_entry(folder)
    for name in (DONE, CLAIMS, RETRY):
        tree.make_entry(f"{folder}/{name}")
    if start:
        os.close(tree.create(f"{folder}/{DONE}/{done_name(0, start)}"))
    tree.sync_folder(f"{folder}/{DONE}")
    tree.sync_folder(folder)


def encode(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()


def read_tally(tree: Tree, folder: str) -> Tally:
    """What a channel did not get. Raises OSError."""
    try:
        found = documents.read(tree, f"{folder}/{TALLY_FILE}", MAX_FILE_BYTES)
    except (FileNotFoundError, ValueError):
        return Tally()
    known = asdict(Tally())
    return Tally(**{n: v for n, v in found.items() if n in known and isinstance(v, int)})


def write_tally(tree: Tree, folder: str, tally: Tally) -> None:
    tree.replace(f"{folder}/{TALLY_FILE}", encode(asdict(tally)))
