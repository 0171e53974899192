"""Every tree that a crash may leave, by what POSIX and the on-disk format ask of a filesystem.

What the format asks for (docs/format.md, section 10): a rename is atomic, also for a power cut; and
what fsync has returned for is on stable media. Everything else may go wrong:

- What is not synced may have happened or not, each change for itself, in any order. Only changes of
  one and the same name keep their order, since a later one builds upon an earlier one.
- Unsynced bytes are there, or in part, or not at all, or there are zeros in their place.
- fsync of a file says nothing about its name.
- fsync of a folder is for the names in it. Of a rename between two folders it is not said of which
  of them: in one `Reading` only the sync of the source will do, in one only that of the target. A
  program that syncs what it must is safe in both, and so where the sync of either would do: there
  nothing is left but what each of the two leaves as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

from fsmq.spool.layout.messages.dead_letter import ATTRIBUTE
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
    before: Files,
    steps: Sequence[Step],
    readings: Iterable[Reading] = tuple(Reading),
    from_step: int = 0,
) -> Iterator[tuple[Reading, Files, list[Mark]]]:
    """Every tree that a crash after any step may leave, with the marks until then; each once.

    from_step: crashes before this step are left out.
    """
    tree = _Tree(before, steps)
    decided: set[tuple[int, tuple[bool, ...]]] = set()
    seen: set[tuple[int, tuple[object, ...]]] = set()
    for reading in readings:
        for end in range(from_step, len(steps) + 1):
            last = steps[end - 1] if end > from_step else None
            if isinstance(last, Sync | SyncAll):
                continue  # it leaves nothing that was not left before it
            changes = _changes(steps[:end], reading)
            durable = end, tuple(change.durable for change in changes)
            if durable in decided:
                continue  # another reading says the same of it
            decided.add(durable)
            marks = [step for step in steps[:end] if isinstance(step, Mark)]
            # Without the last change it is what was left before that.
            is_later = last is not None and not isinstance(last, Mark)
            for look in tree.choices(changes, is_later):
                if (len(marks), look) not in seen:
                    seen.add((len(marks), look))
                    yield reading, tree.files(look), marks


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
            return sync.inode == (source if reading is Reading.SOURCE else target).folder
    return False


def _options(changes: Sequence[_Change]) -> list[list[object]]:
    """What may have become of each change: False if it was not made, else what of it."""
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
    if (count := prod(map(len, options))) > _MOST_STATES:
        raise TooMany(f"{count} states after {len(changes)} changes: shorten it")
    return options


_NOTHING = object()
_SECTOR_BYTES = 64  # so little is written as a whole
_BIRTH_NS = 1_700_000_000_000_000_000  # whole seconds: no stamp


class _Tree:
    """A tree in which changes are made, and taken back.

    Its look is the value of everything that any step changes.
    """

    def __init__(self, before: Files, steps: Sequence[Step]) -> None:
        self._now = before.copy()
        self._undo: list[tuple[dict[Any, Any], object, object]] = []
        self._known: dict[tuple[object, ...], Files] = {}
        places: dict[tuple[int, object], tuple[dict[Any, Any], object]] = {}
        for where, name in (place for step in steps for place in self._places(step)):
            places[id(where), name] = where, name
        self._changing = list(places.values())

    def _places(self, step: Step) -> Iterator[tuple[dict[Any, Any], object]]:
        match step:
            case Create(slot, inode):
                yield self._folder(slot), slot.name
                yield self._now.contents, inode
            case Unlink(slot):
                yield self._folder(slot), slot.name
            case Rename(source, target):
                yield self._folder(source), source.name
                yield self._folder(target), target.name
            case Write(inode) | Overwrite(inode) | Stamp(inode):
                yield self._now.contents, inode
            case Note(inode):
                yield self._now.notes, inode

    def files(self, look: tuple[object, ...]) -> Files:
        """The tree of a look, which is that of now or was given before."""
        if look not in self._known:
            self._known[look] = self._now.copy()
        return self._known[look]

    def choices(self, changes: Sequence[_Change], with_last: bool) -> Iterator[tuple[object, ...]]:
        """Go through all that may have become of the changes; how the tree looks each time.

        with_last: only what has the last one.
        """
        options = _options(changes)
        if with_last:
            options[-1] = [choice for choice in options[-1] if choice is not False]
        chosen: list[object] = [True] * len(changes)

        def choose(number: int) -> Iterator[tuple[object, ...]]:
            while number < len(changes) and changes[number].durable:
                self._make(changes[number].step, True)
                number += 1
            if number == len(changes):
                yield tuple([where.get(name) for where, name in self._changing])
                return
            change, since = changes[number], len(self._undo)
            for choice in options[number]:
                if choice is False or all(chosen[n] is not False for n in change.builds_on):
                    chosen[number] = choice
                    if choice is not False:
                        self._make(change.step, choice)
                    yield from choose(number + 1)
                    self._take_back(since)

        yield from choose(0)
        self._take_back(0)

    def _set(self, where: dict[Any, Any], name: object, value: object) -> None:
        self._undo.append((where, name, where.get(name, _NOTHING)))
        if value is _NOTHING:
            where.pop(name, None)
        else:
            where[name] = value

    def _take_back(self, since: int) -> None:
        """Take back all changes but so many."""
        while len(self._undo) > since:
            where, name, value = self._undo.pop()
            if value is _NOTHING:
                where.pop(name, None)
            else:
                where[name] = value

    def _make(self, step: Step, choice: object) -> None:
        now = self._now
        match step:
            case Create(slot, inode, is_folder):
                self._set(self._folder(slot), slot.name, inode)
                if is_folder:
                    now.folders.setdefault(inode, {})
                elif inode not in now.contents:
                    self._set(now.contents, inode, (b"", _BIRTH_NS))
            case Unlink(slot):
                self._set(self._folder(slot), slot.name, _NOTHING)
            case Rename(source, target, exchange):
                self._rename(source, target, exchange)
            case Write() | Overwrite():
                self._write(step, choice)
            case Stamp(inode, mtime_ns):
                old, _ = now.contents.get(inode, (b"", _BIRTH_NS))
                self._set(now.contents, inode, (old, mtime_ns))
            case Note(inode, value):
                self._set(now.notes, inode, _NOTHING if value is None else value)

    def _folder(self, slot: Slot) -> dict[str, int]:
        # A folder may itself be lost; what was done in it is then nowhere.
        return self._now.folders.setdefault(slot.folder, {})

    def _write(self, step: Write | Overwrite, choice: object) -> None:
        old, mtime_ns = self._now.contents.get(step.inode, (b"", _BIRTH_NS))
        kept = step.data if choice is True else choice
        assert isinstance(kept, bytes)
        at = len(old) if isinstance(step, Write) or not kept else step.at
        new = old.ljust(at, b"\0")[:at] + kept + old[at + len(kept) :]
        self._set(self._now.contents, step.inode, (new, mtime_ns))

    def _rename(self, source: Slot, target: Slot, exchange: bool) -> None:
        inode = self._folder(source)[source.name]
        other = self._folder(target).get(target.name, _NOTHING)
        self._set(self._folder(source), source.name, other if exchange else _NOTHING)
        self._set(self._folder(target), target.name, inode)
