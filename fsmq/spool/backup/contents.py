"""What a snapshot contains: recorded by the backup, and compared by the restore.

For each folder there are the number of its files and two sums, in which the order of the files does
not matter: one over names and bytes, one over names, times and attributes. So the record stays
small, and it shows a copy that has lost only the times.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from fsmq.words import many

from ..layout.transitions import IDS

_MODULUS = 1 << 64


@dataclass(slots=True)
class Folder:
    """The files of one folder: how many, and the sums over their contents and their times."""

    files: int = 0
    contents: int = 0
    times: int = 0


@dataclass(frozen=True, slots=True)
class File:
    """A copied file. checksum: the CRC-32 of its bytes; time_ns: its mtime."""

    size: int
    checksum: int
    time_ns: int
    attributes: Mapping[str, bytes]


@dataclass(slots=True)
class Contents:
    """The folders of a snapshot by their paths. segments: size and CRC-32 of each log segment."""

    folders: dict[str, Folder] = field(default_factory=dict)
    segments: dict[str, tuple[int, int]] = field(default_factory=dict)

    def make(self, path: str) -> None:
        """Note a folder."""
        self.folders.setdefault(path, Folder())

    def add(self, path: str, file: File, count: int = 1) -> None:
        """Note a file; ``count`` -1: it is taken out."""
        attributes = sorted(file.attributes.items())
        self._count(
            path,
            count,
            _hash(path, file.size, file.checksum),
            _hash(path, file.time_ns, attributes),
        )

    def link(self, name: str, count: int = 1) -> None:
        """Note the second name of a file, in an index."""
        self._count(name, count, _hash(name), 0)

    def discard(self, path: str) -> None:
        """Forget a folder with all in it."""
        for found in (self.folders, self.segments):
            for name in [name for name in found if f"{name}/".startswith(f"{path}/")]:
                del found[name]

    def _count(self, path: str, count: int, contents: int, times: int) -> None:
        folder = self.folders.setdefault(path.rpartition("/")[0], Folder())
        folder.files += count
        folder.contents = (folder.contents + count * contents) % _MODULUS
        folder.times = (folder.times + count * times) % _MODULUS

    # -- its record --------------------------------------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        """The record in `backup.json`."""
        folders = {
            path: [folder.files, f"{folder.contents:016x}", f"{folder.times:016x}"]
            for path, folder in sorted(self.folders.items())
        }
        return {"folders": folders, "segments": dict(sorted(self.segments.items()))}

    @classmethod
    def from_json(cls, record: Any) -> Contents:
        """Parse a record. Raises ValueError, LookupError, TypeError, AttributeError."""
        folders = {
            str(path): Folder(int(files), int(contents, 16), int(times, 16))
            for path, (files, contents, times) in record["folders"].items()
        }
        segments = {
            str(path): (int(size), int(checksum))
            for path, (size, checksum) in record["segments"].items()
        }
        return cls(folders, segments)

    # -- comparing ---------------------------------------------------------------------------------

    def differences(self, now: Contents) -> dict[str, str]:
        """What is missing or changed in a snapshot that has ``now``: by path, with the reason."""
        found: dict[str, str] = {}
        lost: dict[str, list[str]] = {}
        for path in sorted({*self.folders, *now.folders}):
            was, there = self.folders.get(path), now.folders.get(path)
            if was is None or there is None:
                found[path] = "the folder was added" if was is None else "the folder is missing"
            elif path.startswith(f"{IDS}/"):
                if was != there:
                    lost.setdefault("links", []).append(path)
            elif was.files != there.files:
                found[path] = f"it has {many(there.files, 'file')}, not {was.files:,}"
            elif was.contents != there.contents:
                found[path] = "names or contents of files have changed"
            elif was.times != there.times:
                lost.setdefault("times", []).append(path)
        for what, paths in lost.items():
            also = f", as in {many(len(paths) - 1, 'other folder')}" if len(paths) > 1 else ""
            found[paths[0]] = f"{what} of files were lost{also}: copy snapshots with rsync -aHX"
        return found


def _hash(path: str, *facts: object) -> int:
    name = os.fsencode(path.rpartition("/")[2])
    return int.from_bytes(blake2b(name + b"\0" + repr(facts).encode(), digest_size=8).digest())
