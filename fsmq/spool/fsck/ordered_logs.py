"""The rules for ``logs/``: names, settings, holes between segments, and damaged records."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import TypeVar

from ..errors import FsmqError
from ..layout import documents
from ..layout.names import UUID7, is_queue
from ..layout.transitions import LOGS, REMOVE
from ..layout.uuids import uuid7
from ..log.consuming.lines import MAX_HEAD_BYTES, parse_head
from ..log.consuming.progress_file import PROGRESS, newest, progress_name
from ..log.log_document import Document
from ..log.log_settings import ChannelSettings
from ..log.ranges import Range
from ..log.reader import Known, as_it_is
from ..log.segment.blocks import Blocks
from ..log.segment.chain import open_piece
from ..log.segment.disk import CHANNELS, FOLDERS, LOG_FILE, SEGMENTS, Disk
from ..log.segment.record import FIRST, LINE_BYTES, Piece, parse_line
from ..log.segment.record_scan import is_sound
from ..log.segment.segments import name_of, numbers_in
from ..log.segment.turns import turn_of
from ..log.store import Store
from .messages import Inspection, kind_of_file, stray
from .report import Fault, Finding, Kind, Severity

T = TypeVar("T")
Check = Callable[[], Fault | None]
LEFT_AFTER_S = 2 * 3600.0
_draft = re.compile(rf"\.{UUID7}(\.tmp)?")
_KNOWN = (".writer", ".sync")
_MAX_BYTES = 64 * 1024


class LogRules:
    """The rules for logs and their channels."""

    def __init__(self, inspection: Inspection) -> None:
        self._inspection = inspection
        self._tree = inspection.tree

    def checks(self) -> Iterator[Check]:
        """The checks of all logs."""
        for name in self._names(LOGS):
            path = self._tree.folder(LOGS, name)
            if not is_queue(name):
                yield partial(self._other, path, "a log")
                continue
            yield from self.checks_of(name)

    def checks_of(self, name: str) -> Iterator[Check]:
        """The checks of one log."""
        path = self._tree.folder(LOGS, name)
        of_log = partial(self._log, name)
        yield of_log
        fault = of_log()
        if fault is not None and fault.finding.kind is Kind.OTHER_OWNER:
            return
        file = f"{path}/{LOG_FILE}"
        yield self._of_ours(file, partial(self._settings, file, Document.parse))
        for inner in self._names(f"{path}/{SEGMENTS}"):
            check = partial(self._segment, f"{path}/{SEGMENTS}", inner)
            yield self._of_ours(f"{path}/{SEGMENTS}/{inner}", check)
        yield partial(self._holes, name)
        if self._inspection.bodies:
            yield partial(self._records, name)
        for channel in self._names(f"{path}/{CHANNELS}"):
            folder = f"{path}/{CHANNELS}/{channel}"
            if not is_queue(channel):
                yield partial(self._other, folder, "a channel")
                continue
            if self._foreign(folder) is not None:
                yield partial(self._foreign, folder)
                continue
            file = f"{folder}/channel.json"
            yield self._of_ours(file, partial(self._settings, file, ChannelSettings.of))
            yield partial(self._progress, folder)

    def _names(self, folder: str) -> list[str]:
        try:
            return sorted(self._tree.names(folder))
        except NotADirectoryError:
            return []

    def _other(self, path: str, what: str) -> Fault | None:
        """The rule for an entry that is no log, channel or segment."""
        found = self._tree.stat(path)
        name = path.rpartition("/")[2]
        if found is None or name.startswith(".nfs"):
            return None
        if _draft.fullmatch(name):
            if self._inspection.now() - found.st_ctime < LEFT_AFTER_S:
                return None
            reason = "was never finished, and its writer is gone"
            finding = Finding(Kind.LEFTOVER, Severity.WARNING, path, reason, "remove it")
            target = self._tree.folder(REMOVE, f".{uuid7()}")
            return Fault(finding, lambda: self._tree.rename(path, target))
        return stray(path, f"is {kind_of_file(found.st_mode)}, not {what}: move it away")

    def _log(self, name: str) -> Fault | None:
        path = self._tree.folder(LOGS, name)
        for folder in (path, *(f"{path}/{inner}" for inner in FOLDERS)):
            found = self._tree.stat(folder)
            if found is None and self._tree.stat(path) is not None:
                reason = "is missing: put it back, or remove the log"
                return Fault(Finding(Kind.MISSING_FOLDER, Severity.ERROR, folder, reason))
            if found is not None and not stat.S_ISDIR(found.st_mode):
                reason = f"is {kind_of_file(found.st_mode)}, not a folder; move it away"
                return Fault(Finding(Kind.NOT_A_FOLDER, Severity.ERROR, folder, reason))
            if (fault := self._foreign(folder)) is not None:
                return fault
        return None

    def _foreign(self, path: str) -> Fault | None:
        found = self._tree.stat(path)
        return None if found is None else self._inspection.foreign(path, found)

    def _of_ours(self, path: str, check: Check) -> Check:
        """The check of a file, which others than its owner may not be able to read."""
        return lambda: self._foreign(path) or check()

    def _settings(self, path: str, parse: Callable[[dict[str, object]], object]) -> Fault | None:
        try:
            parse(documents.read(self._tree, path, _MAX_BYTES))
        except FileNotFoundError:
            if self._tree.stat(path.rpartition("/")[0]) is None:
                return None
            reason = "is missing: the log or channel cannot be used with its own settings"
            return Fault(Finding(Kind.BAD_SETTINGS, Severity.ERROR, path, reason))
        except (ValueError, FsmqError) as error:
            reason = f"{error}: correct it"
            return Fault(Finding(Kind.BAD_SETTINGS, Severity.ERROR, path, reason))
        return None

    def _progress(self, folder: str) -> Fault | None:
        if not self._tree.is_folder(folder):
            return None
        number = newest(self._tree, folder)
        if not number:
            reason = f"has no {PROGRESS}: put it back, or delete the channel and create it"
            return Fault(Finding(Kind.BAD_CHANNEL, Severity.ERROR, folder, reason))
        path = f"{folder}/{progress_name(number)}"
        if (fault := self._foreign(path)) is not None:
            return fault
        try:
            fd = self._tree.open(path)
        except FileNotFoundError:
            return None  # a newer one has replaced it
        try:
            head = os.pread(fd, MAX_HEAD_BYTES, 0)
        finally:
            os.close(fd)
        if parse_head(head) is not None:
            return None
        reason = "has a damaged first line: put it back, or delete the channel and create it"
        return Fault(Finding(Kind.BAD_CHANNEL, Severity.ERROR, path, reason))

    def _segment(self, folder: str, name: str) -> Fault | None:
        path = f"{folder}/{name}"
        if name in _KNOWN or turn_of(name) is not None:
            return None
        if not numbers_in([name]):
            return self._other(path, "a segment")
        found = self._tree.stat(path)
        if found is not None and not stat.S_ISREG(found.st_mode):
            return stray(path, f"is {kind_of_file(found.st_mode)}, not a segment: move it away")
        fd = self._tree.open(path) if found is not None else -1
        try:
            data = os.pread(fd, FIRST, 0) if fd >= 0 else b""
        finally:
            if fd >= 0:
                os.close(fd)
        copies = [parse_line(data[at : at + LINE_BYTES]) for at in (0, LINE_BYTES)]
        if all(line is not None and name_of(line.number) == name for line in copies):
            return None
        if not found or found.st_size <= FIRST:
            return None  # its writer died before the line was durable, and nothing was appended
        reason = "has a damaged first line: restore it from its other copy or from the marks"
        return Fault(Finding(Kind.BAD_SEGMENT, Severity.ERROR, path, reason))

    def _read(self, name: str, read: Callable[[Store, Known], T]) -> T | None:
        """The result of ``read``; None if the log is gone, or unreadable: another rule's fault."""
        try:
            store = Store(Disk(self._tree, name, self._inspection.clock), Blocks(0))
        except (FsmqError, OSError):
            return None
        try:
            return read(store, as_it_is(store.disk, store.uuid))
        except (FsmqError, OSError):
            return None
        finally:
            store.close()

    def _holes(self, name: str) -> Fault | None:
        """The fault of a log with offsets that no segment has."""
        holes = self._read(name, _holes_in)
        if not holes:
            return None
        lost = sum(end - start for start, end in holes)
        path = f"{self._tree.folder(LOGS, name)}/{SEGMENTS}"
        holes.sort()
        reason = f"has no messages at the offsets {holes[0][0]} to {holes[0][1] - 1}, or more"
        return Fault(Finding(Kind.LOG_HOLE, Severity.ERROR, path, reason, count=lost))

    def _records(self, name: str) -> Fault | None:
        """The fault of a log with damaged messages or marks; reads all of it."""
        damage = self._read(name, _damage_in)
        if damage is None:
            return None
        lost, spoiled = damage
        path = f"{self._tree.folder(LOGS, name)}/{SEGMENTS}"
        if spoiled and not lost:
            reason = "has damaged marks: all messages are readable, but damage nearby loses more"
            return Fault(Finding(Kind.BAD_RECORD, Severity.ERROR, path, reason, count=spoiled))
        if not lost:
            return None
        reason = f"has damaged messages, the first at offset {lost[0][0]}: readers skip them"
        number = sum(end - start for start, end in lost)
        return Fault(Finding(Kind.BAD_RECORD, Severity.ERROR, path, reason, count=number))


def _holes_in(store: Store, known: Known) -> list[Range]:
    """The offsets that no segment has, and those missing from a truncated file."""
    between = [
        (before.end, after.start)
        for before, after in pairwise(known.pieces)
        if before.end < after.start
    ]
    return between + [
        one
        for piece in known.pieces
        if piece.end > piece.start
        for one in store.reader.page_of(known, piece.end - 1, 1).lost
    ]


def _damage_in(store: Store, known: Known) -> tuple[list[Range], int]:
    """The offsets of unreadable messages in segments; how many segments have bad marks."""
    lost: list[Range] = []
    offset = known.first
    while offset < known.end:
        page = store.reader.page_of(known, offset, 10_000)
        lost += page.lost
        if page.next <= offset:
            break
        offset = page.next
    pieces = known.pieces
    within = [one for one in lost if any(piece.start <= one[0] < piece.end for piece in pieces)]
    return within, sum(not _is_sound(store, piece) for piece in pieces)


def _is_sound(store: Store, piece: Piece) -> bool:
    file = open_piece(store.disk, store.uuid, piece)
    if file is None:
        return True
    with file:
        return is_sound(file, piece.limit)
