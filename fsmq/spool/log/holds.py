"""Holds: the files in ``claims/`` and ``retry/`` of a channel, and what they cover.

    <from>-<to>.<n>[.<k>]

A file in ``claims/`` is a claim: its messages were handed out for the n-th time, and its mtime is
the deadline. One in ``retry/`` was given up after n deliveries, and comes back at its mtime. An
empty file is about all of its range; else it holds the ranges as JSON. ``k`` tells apart what would
have the same name. Where files overlap, the one with the higher n counts, and of equal ones that in
``retry/``.
"""

from __future__ import annotations

import json
import os
import re
from typing import NamedTuple

from ..layout.files import read_all, write_all
from ..layout.tree import Tree
from ..layout.uuids import uuid7
from .disk import GONE
from .ranges import Range, Ranges

CLAIMS, RETRY = "claims", "retry"
_name = re.compile(r"([0-9]{20})-([0-9]{20})\.([1-9][0-9]{0,8})(?:\.([0-9]{1,9}))?")
_MAX_FILE_BYTES = 64 * 1024 * 1024


class Hold:
    """Messages that are handed out, or were given up for a while.

    folder: CLAIMS or RETRY. ranges: its unfinished offsets. deliveries: how often they were handed
    out. deadline_ns: when it ends, Unix nanoseconds. is_due: whether it has ended, as far as seen.
    """

    __slots__ = ("deadline_ns", "deliveries", "folder", "is_due", "name", "ranges")

    def __init__(
        self, folder: str, name: str, ranges: Ranges, deliveries: int, deadline_ns: int
    ) -> None:
        self.folder = folder
        self.name = name
        self.ranges = ranges
        self.deliveries = deliveries
        self.deadline_ns = deadline_ns
        self.is_due = False

    @property
    def is_claim(self) -> bool:
        return self.folder == CLAIMS


class HoldName(NamedTuple):
    start: int
    end: int
    deliveries: int


def parse_hold(name: str) -> HoldName | None:
    """What the name of a hold says; None if it is not one."""
    match = _name.fullmatch(name)
    if match is None or int(match[1]) >= int(match[2]):
        return None
    return HoldName(int(match[1]), int(match[2]), int(match[3]))


class HoldFiles:
    """The holds of one generation of a channel. Methods raise OSError."""

    def __init__(self, tree: Tree, folder: str) -> None:
        self._tree = tree
        self._folder = folder

    def path(self, hold: Hold) -> str:
        return f"{self._folder}/{hold.folder}/{hold.name}"

    def make(self, folder: str, ranges: Ranges, deliveries: int, deadline_ns: int) -> Hold:
        """A new file, whose deadline is set."""
        start, end = next(iter(ranges))[0], ranges.end
        base = f"{start:020}-{end:020}.{deliveries}"
        content = _encode(ranges)
        for number in range(1_000_000):
            name = base if not number else f"{base}.{number}"
            try:
                fd = self._tree.create(f"{self._folder}/{folder}/{name}")
                break
            except FileExistsError:
                continue
        else:
            raise FileExistsError(base)
        try:
            # The deadline first: without its ranges the file would be about all between.
            os.utime(fd, ns=(0, 0))
            if content:
                write_all(fd, content)
            os.utime(fd, ns=(deadline_ns, deadline_ns))
        finally:
            os.close(fd)
        return Hold(folder, name, ranges, deliveries, deadline_ns)

    def stamp(self, hold: Hold, deadline_ns: int) -> None:
        """Give a hold another deadline."""
        self._tree.stamp(self.path(hold), deadline_ns)
        hold.deadline_ns = deadline_ns
        hold.is_due = False

    def shrink(self, hold: Hold) -> None:
        """Write down that a hold has fewer offsets; remove one that has none."""
        if not hold.ranges:
            self._tree.unlink(self.path(hold))
            return
        draft = f"{self._folder}/{hold.folder}/.{uuid7()}"
        fd = self._tree.create(draft)
        try:
            write_all(fd, _encode(hold.ranges, always=True))
            os.utime(fd, ns=(hold.deadline_ns, hold.deadline_ns))
        finally:
            os.close(fd)
        self._tree.rename(draft, self.path(hold), replace=True)

    def to_retry(self, hold: Hold, deadline_ns: int) -> None:
        """Give a whole claim up until a moment."""
        source = self.path(hold)
        self._tree.stamp(source, deadline_ns)
        hold.deadline_ns, hold.folder, hold.is_due = deadline_ns, RETRY, False
        self._tree.rename(source, self.path(hold), replace=True)

    def list(self) -> list[Hold]:
        """All holds there are, in the order in which they count."""
        found: list[Hold] = []
        for folder in (CLAIMS, RETRY):
            self._tree.refresh(f"{self._folder}/{folder}")
            for name in self._tree.names(f"{self._folder}/{folder}"):
                hold = self._read(folder, name)
                if hold is not None:
                    found.append(hold)
        found.sort(key=lambda one: (-one.deliveries, one.folder == CLAIMS, -one.deadline_ns))
        return found

    def _read(self, folder: str, name: str) -> Hold | None:
        parsed = parse_hold(name)
        if parsed is None:
            return None
        try:
            fd = self._tree.open(f"{self._folder}/{folder}/{name}")
            try:
                stat = os.fstat(fd)
                content = read_all(fd, stat.st_size) if stat.st_size <= _MAX_FILE_BYTES else b"?"
            finally:
                os.close(fd)
        except OSError as error:
            if error.errno in GONE:
                return None
            raise
        ranges = Ranges([(parsed.start, parsed.end)])
        if content:
            listed = _decode(content)
            if listed is None:
                return None  # torn: its messages are ready
            ranges = Ranges(
                (max(start, parsed.start), min(end, parsed.end)) for start, end in listed
            )
        return Hold(folder, name, ranges, parsed.deliveries, stat.st_mtime_ns)


def _encode(ranges: Ranges, *, always: bool = False) -> bytes:
    if len(ranges) == 1 and not always:
        return b""
    return json.dumps({"ranges": [list(one) for one in ranges]}).encode() + b"\n"


def _decode(content: bytes) -> list[Range] | None:
    try:
        found = json.loads(content)["ranges"]
        return [(int(start), int(end)) for start, end in found]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
