"""Every tree that a crash may leave, by the requirements of POSIX and the on-disk format.

The format (docs/format.md, section 10) requires that a rename is atomic, also in a power cut, and
that synced data are on stable media. Everything else may go wrong:

- Unsynced changes may have happened or not, each independently, in any order. Only changes of the
  same name keep their order, because a later one builds upon an earlier one.
- Unsynced bytes are written, or a part of them, or none, or zeros.
- fsync of a file does not sync its name.
- fsync of a folder syncs the names in it. For a rename between two folders POSIX does not say which
  of them: in one `Reading` it is the source, in the other the target. A program that is safe in
  both is also safe where either is enough.
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

# The most states of one crash point: scenarios must be short.
_MOST_STATES = 70_000


class TooMany(AssertionError):
    """A crash point has too many states."""


class Reading(Enum):
    """The folder whose fsync makes a rename between two folders durable."""

    SOURCE = "source"
    TARGET = "target"


@dataclass
class Files:
    """A tree by inodes: folders with names, files with bytes and times."""

    root: int
    folders: dict[int, dict[str, int]] = field(default_factory=dict)
    contents: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    notes: dict[int, bytes] = field(default_factory=dict)  # values of the extended attribute

    @classmethod
    def of(cls, root: Path) -> Files:
        """The current tree of a root."""
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
        """Create the tree at a path that does not exist."""
        self._write(self.root, str(place), {})

    def _write(self, inode: int, place: str, written: dict[int, str]) -> None:
        os.mkdir(place, 0o700)
        for name, child in self.folders[inode].items():
            path = f"{place}/{name}"
            if child in self.folders:
                self._write(child, path, written)
            elif child in written:
                os.link(written[child], path)  # another name of it
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
        """The same value for equal trees; only for a tree that does not change any more."""
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
    """A step that is durable, or may be undone by a crash."""

    step: Create | Unlink | Rename | Write | Overwrite | Stamp | Note
    durable: bool = False
    # Earlier changes of the same names or bytes.
    builds_on: list[int] = field(default_factory=list)


def crash_states(
    before: Files,
    steps: Sequence[Step],
    readings: Iterable[Reading] = tuple(Reading),
    from_step: int = 0,
) -> Iterator[tuple[Reading, Files, list[Mark]]]:
    """Every tree that a crash after a step may leave, with the marks until then; each once.

    from_step: leaves out crashes before this step.
    """
    tree = _Tree(before, steps)
    decided: set[tuple[int, tuple[bool, ...]]] = set()
    seen: set[tuple[int, tuple[object, ...]]] = set()
    for reading in readings:
        for end in range(from_step, len(steps) + 1):
            last = steps[end - 1] if end > from_step else None
            if isinstance(last, Sync | SyncAll):
                continue  # it adds no state
            changes = _changes(steps[:end], reading)
            durable = end, tuple(change.durable for change in changes)
            if durable in decided:
                continue  # the same as in another reading
            decided.add(durable)
            marks = [step for step in steps[:end] if isinstance(step, Mark)]
            # Without the last change it is a state of the step before.
            is_later = last is not None and not isinstance(last, Mark)
            for state in tree.choices(changes, is_later):
                if (len(marks), state) not in seen:
                    seen.add((len(marks), state))
                    yield reading, tree.files(state), marks


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
    # A durable change makes those durable that it builds upon.
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
    """The possible results of each change: False: not made; bytes: the written part."""
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
_SECTOR_BYTES = 64  # writes of at most this size are atomic
_BIRTH_NS = 1_700_000_000_000_000_000  # whole seconds: no stamp


class _Tree:
    """A tree in which changes are made and undone.

    Its state is the values of everything that any step changes.
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

    def files(self, state: tuple[object, ...]) -> Files:
        """The tree of a state, which is the current one or a known one."""
        if state not in self._known:
            self._known[state] = self._now.copy()
        return self._known[state]

    def choices(self, changes: Sequence[_Change], with_last: bool) -> Iterator[tuple[object, ...]]:
        """Go through all possible results of the changes; the state of each.

        with_last: only those with the last change.
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
                    self._undo_to(since)

        yield from choose(0)
        self._undo_to(0)

    def _set(self, where: dict[Any, Any], name: object, value: object) -> None:
        self._undo.append((where, name, where.get(name, _NOTHING)))
        if value is _NOTHING:
            where.pop(name, None)
        else:
            where[name] = value

    def _undo_to(self, since: int) -> None:
        """Undo all changes after the first ``since``."""
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
        # The folder may be lost; changes in it are then lost as well.
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
