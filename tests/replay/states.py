"""Every tree that a crash may leave, by what POSIX and the on-disk format ask of a filesystem.

What the format asks for (docs/format.md, section 10): a rename is atomic, also for a power cut; and
what fsync has returned for is on stable media. Everything else may go wrong:

- What is not synced may have happened or not, each change for itself, in any order. Only changes of
  one and the same name keep their order, since a later one builds upon an earlier one.
- Unsynced bytes are there, or in part, or not at all, or there are zeros in their place.
- fsync of a file says nothing about its name.
- fsync of a folder is for the names in it. Of a rename between two folders it is not said of which
  of them: in one `Reading` the sync of either will do, in one only that of the source, in one only
  that of the target. A program that syncs what it must is safe in all three.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import product
from pathlib import Path

from fsmq.spool.layout.dead_letter import ATTRIBUTE
from tests.replay.recorder import (
    Create,
    Mark,
    Note,
    Overwrite,
    Rename,
    Slot,
    Stamp,
    Step,
    Sync,
    SyncAll,
    Unlink,
    Write,
)

# A crash point with more undecided changes than this is an error of the scenario: it must be short.
_MOST_STATES = 70_000


class TooMany(AssertionError):
    """A crash point of a scenario has more states than can be looked at."""


class Reading(Enum):
    """Whose fsync makes a rename between two folders durable."""

    EITHER = "either"
    SOURCE = "source"
    TARGET = "target"


@dataclass
class Files:
    """A tree by inodes: folders with their names, files with their bytes and times."""

    root: int
    folders: dict[int, dict[str, int]] = field(default_factory=dict)
    contents: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    notes: dict[int, bytes] = field(default_factory=dict)  # values of the extended attribute

    @classmethod
    def of(cls, root: Path) -> Files:
        """What stands on the disk now."""
        files = cls(os.stat(root).st_ino)
        files._take(root, files.root)
        return files

    def _take(self, folder: Path, inode: int) -> None:
        names = self.folders[inode] = {}
        for path in folder.iterdir():
            found = path.lstat()
            names[path.name] = found.st_ino
            if path.is_dir():
                self._take(path, found.st_ino)
            else:
                self.contents[found.st_ino] = (path.read_bytes(), found.st_mtime_ns)
                if ATTRIBUTE in os.listxattr(path):
                    self.notes[found.st_ino] = os.getxattr(path, ATTRIBUTE)

    def copy(self) -> Files:
        folders = {inode: dict(names) for inode, names in self.folders.items()}
        return Files(self.root, folders, dict(self.contents), dict(self.notes))

    def write_to(self, place: Path) -> None:
        """Make the tree at a place where nothing stands."""
        self._write(self.root, str(place), {})

    def _write(self, inode: int, place: str, written: dict[int, str]) -> None:
        os.mkdir(place, 0o700)
        for name, child in self.folders[inode].items():
            path = f"{place}/{name}"
            if child in self.folders:
                self._write(child, path, written)
            elif child in written:
                os.link(written[child], path)  # one more name of it
            else:
                written[child] = path
                self._write_file(child, path)

    def _write_file(self, inode: int, path: str) -> None:
        data, mtime_ns = self.contents[inode]
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            if data:
                os.write(fd, data)
            if inode in self.notes:
                os.setxattr(fd, ATTRIBUTE, self.notes[inode])
            os.utime(fd, ns=(mtime_ns, mtime_ns))
        finally:
            os.close(fd)

    @cached_property
    def key(self) -> tuple[object, ...]:
        """The same for all trees that look the same; for a tree that changes no more."""
        seen: list[object] = []
        self._list(self.root, "", {}, seen)
        return tuple(seen)

    def _list(self, inode: int, path: str, first: dict[int, str], seen: list[object]) -> None:
        for name, child in sorted(self.folders[inode].items()):
            below = f"{path}/{name}"
            if child in self.folders:
                seen.append(below)
                self._list(child, below, first, seen)
            else:
                seen.append((below, self.contents[child], self.notes.get(child)))
                if below != first.setdefault(child, below):
                    seen.append((first[child],))


@dataclass
class _Change:
    """A step that may be undone by a crash, or one that is durable."""

    step: Create | Unlink | Rename | Write | Overwrite | Stamp | Note
    durable: bool = False
    # Changes of the same names, or of the same bytes, that came before.
    builds_on: list[int] = field(default_factory=list)


def crash_states(
    before: Files, steps: Sequence[Step], reading: Reading, from_step: int = 0
) -> Iterator[tuple[Files, list[Mark]]]:
    """Every tree that a crash after any step may leave, with the marks until then.

    from_step: crashes before this step are left out.
    """
    for end in range(from_step, len(steps) + 1):
        marks = [step for step in steps[:end] if isinstance(step, Mark)]
        changes = _changes(steps[:end], reading)
        seen: set[tuple[object, ...]] = set()
        for files in _choices(before, changes):
            key = files.key
            if key not in seen:
                seen.add(key)
                yield files, marks


def _changes(steps: Sequence[Step], reading: Reading) -> list[_Change]:
    changes: list[_Change] = []
    last: dict[object, int] = {}
    for step in steps:
        if isinstance(step, Mark):
            continue
        if isinstance(step, SyncAll | Sync):
            for change in changes:
                change.durable |= isinstance(step, SyncAll) or _covers(step, change.step, reading)
            continue
        change = _Change(step)
        for thing in _touched(step):
            if thing in last:
                change.builds_on.append(last[thing])
            last[thing] = len(changes)
        changes.append(change)
    # A durable change takes with it what it builds upon.
    for number in reversed(range(len(changes))):
        if changes[number].durable:
            for other in changes[number].builds_on:
                changes[other].durable = True
    return changes


def _touched(step: Step) -> list[object]:
    match step:
        case Create(slot, inode):
            return [slot, inode]
        case Unlink(slot):
            return [slot]
        case Rename(source, target):
            return [source, target]
        case Write(inode, _) | Overwrite(inode, _, _):
            return [("bytes", inode)]
        case Stamp(inode, _):
            return [("time", inode)]
        case Note(inode, _):
            return [("note", inode)]
    return []


def _covers(sync: Sync, step: Step, reading: Reading) -> bool:
    match step:
        case Write(inode, _) | Overwrite(inode, _, _) | Stamp(inode, _) | Note(inode, _):
            return inode == sync.inode
        case Create(slot, _) | Unlink(slot):
            return slot.folder == sync.inode
        case Rename(source, target):
            ends = {Reading.SOURCE: {source.folder}, Reading.TARGET: {target.folder}}
            return sync.inode in ends.get(reading, {source.folder, target.folder})
    return False


def _choices(before: Files, changes: Sequence[_Change]) -> Iterator[Files]:
    options: list[list[object]] = []
    for change in changes:
        if change.durable:
            options.append([True])
        elif isinstance(change.step, Overwrite) and len(change.step.data) <= _SECTOR_BYTES:
            options.append([change.step.data, b""])
        elif isinstance(change.step, Write | Overwrite):
            data = change.step.data
            options.append([data, b"", data[: len(data) // 2], bytes(len(data))])
        else:
            options.append([True, False])
    count = 1
    for option in options:
        count *= len(option)
    if count > _MOST_STATES:
        raise TooMany(f"{count} states after {len(changes)} changes: shorten it")
    for chosen in product(*options):
        if _is_ordered(changes, chosen):
            yield _apply(before, changes, chosen)


def _is_ordered(changes: Sequence[_Change], chosen: Sequence[object]) -> bool:
    return all(
        chosen[other] is not False
        for change, choice in zip(changes, chosen, strict=True)
        if choice is not False
        for other in change.builds_on
    )


def _apply(before: Files, changes: Sequence[_Change], chosen: Sequence[object]) -> Files:
    files = before.copy()
    for change, choice in zip(changes, chosen, strict=True):
        if choice is False:
            continue
        match change.step:
            case Create(slot, inode, is_folder):
                _folder(files, slot)[slot.name] = inode
                if is_folder:
                    files.folders.setdefault(inode, {})
                else:
                    files.contents.setdefault(inode, (b"", _BIRTH_NS))
            case Unlink(slot):
                _folder(files, slot).pop(slot.name, None)
            case Rename(source, target, exchange):
                _rename(files, source, target, exchange)
            case Write() | Overwrite():
                _write(files, change.step, choice)
            case Stamp(inode, mtime_ns):
                old, _ = files.contents.get(inode, (b"", _BIRTH_NS))
                files.contents[inode] = (old, mtime_ns)
            case Note(inode, value):
                _note(files, inode, value)
    return files


_SECTOR_BYTES = 64  # so little is written as a whole
_BIRTH_NS = 1_700_000_000_000_000_000  # whole seconds: no stamp


def _folder(files: Files, slot: Slot) -> dict[str, int]:
    # A folder may itself be lost; what was done in it is then nowhere.
    return files.folders.setdefault(slot.folder, {})


def _write(files: Files, step: Write | Overwrite, choice: object) -> None:
    old, mtime_ns = files.contents.get(step.inode, (b"", _BIRTH_NS))
    kept = step.data if choice is True else choice
    assert isinstance(kept, bytes)
    at = len(old) if isinstance(step, Write) or not kept else step.at
    new = old.ljust(at, b"\0")[:at] + kept + old[at + len(kept) :]
    files.contents[step.inode] = (new, mtime_ns)


def _note(files: Files, inode: int, value: bytes | None) -> None:
    if value is None:
        files.notes.pop(inode, None)
    else:
        files.notes[inode] = value


def _rename(files: Files, source: Slot, target: Slot, exchange: bool) -> None:
    inode = _folder(files, source).pop(source.name)
    other = _folder(files, target).pop(target.name, None)
    _folder(files, target)[target.name] = inode
    if exchange and other is not None:
        _folder(files, source)[source.name] = other
