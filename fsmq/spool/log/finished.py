"""What a channel has done: the names in ``done/``, whose union counts.

    <from>-<to>        all of these, the end exclusive
    <from>-<to>.bits   those whose bit is set, the lowest bit of the first byte for the first

Names only add. A name is removed when another one that is durable contains it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from ..durability.sync import Work
from ..layout.files import read_all, write_all
from ..layout.tree import Tree
from ..layout.uuids import uuid7
from .disk import GONE
from .ranges import Range, Ranges

DONE = "done"
_name = re.compile(r"([0-9]{20})-([0-9]{20})(\.bits)?")
# From so many names on that no longer one contains, a bitmap takes their place.
_MANY = 64
_MAX_BITS = 1 << 26


def done_name(start: int, end: int) -> str:
    return f"{start:020}-{end:020}"


def parse_done(name: str) -> tuple[int, int, bool] | None:
    """The range of a name, and whether it is a bitmap; None if it is not one of ``done/``."""
    match = _name.fullmatch(name)
    if match is None or int(match[1]) >= int(match[2]):
        return None
    return int(match[1]), int(match[2]), match[3] is not None


class Finished:
    """The names of one generation of a channel. Methods raise OSError."""

    def __init__(self, tree: Tree, folder: str) -> None:
        self._tree = tree
        self.folder = f"{folder}/{DONE}"
        self.done = Ranges()
        self._names: dict[str, Range] = {}

    def load(self) -> None:
        """Read what there is."""
        self._tree.refresh(self.folder)
        done, names = Ranges(), {}
        for name in self._tree.names(self.folder):
            parsed = parse_done(name)
            if parsed is None:
                continue
            start, end, is_bitmap = parsed
            if is_bitmap:
                done.update(self._bits(name, start, end))
            else:
                done.add(start, end)
            names[name] = (start, end)
        self.done, self._names = done, names

    def add(self, ranges: Iterable[Range]) -> tuple[Work, list[str]]:
        """Write down what is done: the work to sync, and the paths to be unlinked after that."""
        work = Work(folders={self.folder})
        ranges = list(ranges)
        self.done.update(ranges)
        old: list[str] = []
        for start, _ in ranges:
            first, end = self.done.run(start)
            name = done_name(first, end)
            if name in self._names:
                continue
            old += self._contained(first, end)
            self._create(name)
            self._names[name] = (first, end)
        if len(self._names) > _MANY:
            old += self._fold(work)
        return work, old

    def unlink(self, paths: Iterable[str]) -> None:
        """Unlink names that others contain, which are durable now."""
        for path in paths:
            self._tree.unlink(path)

    def _contained(self, start: int, end: int) -> list[str]:
        names = [n for n, (a, b) in self._names.items() if start <= a and b <= end]
        for name in names:
            del self._names[name]
        return [f"{self.folder}/{name}" for name in names]

    def _create(self, name: str) -> None:
        try:
            fd = self._tree.create(f"{self.folder}/{name}")
        except FileExistsError:
            return
        os.close(fd)

    def _fold(self, work: Work) -> list[str]:
        """One bitmap for all runs behind the first."""
        runs = list(self.done)[1:]
        if len(runs) < _MANY // 2:
            return []
        start, end = runs[0][0], runs[-1][1]
        if end - start > _MAX_BITS:
            return []
        bits = 0
        for a, b in runs:
            bits |= ((1 << (b - a)) - 1) << (a - start)
        while (name := f"{done_name(start, end)}.bits") in self._names:
            end += 1
        data = bits.to_bytes((end - start + 7) // 8, "little")
        draft = f"{self.folder}/.{uuid7()}"
        fd = self._tree.create(draft)
        work.files.append(fd)
        write_all(fd, data)
        os.fsync(fd)  # before its name: nobody must read a part of it
        self._tree.rename(draft, f"{self.folder}/{name}", replace=True)
        old = self._contained(start, end)
        self._names[name] = (start, end)
        return old

    def _bits(self, name: str, start: int, end: int) -> list[Range]:
        try:
            fd = self._tree.open(f"{self.folder}/{name}")
            try:
                data = read_all(fd, (end - start + 7) // 8)
            finally:
                os.close(fd)
        except OSError as error:
            if error.errno in GONE:
                return []
            raise
        return runs_of(int.from_bytes(data, "little"), start, end)


def runs_of(bits: int, start: int, end: int) -> list[Range]:
    """The runs of ones in a bitmap."""
    found: list[Range] = []
    text = bin(bits)[2:][::-1]
    for match in re.finditer("1+", text):
        a, b = start + match.start(), min(start + match.end(), end)
        if a < b:
            found.append((a, b))
    return found
