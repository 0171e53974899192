"""Logs: each is copied up to where it is durable, with channels that have done no more than that.

Old segments come first, then channels, then the end of the log. So a channel in the copy has done
nothing that the copy does not have, and what it has not done was not yet removed by retention.
"""

from __future__ import annotations

import os
import time

from ..errors import FsmqError, Unavailable
from ..layout import documents
from ..layout.names import is_queue
from ..layout.transitions import LOGS
from ..log.consuming.progress_file import newest as newest_progress
from ..log.consuming.progress_file import progress_name
from ..log.log_document import Document
from ..log.reader import piece_of
from ..log.segment.chain import chain, newest, open_piece
from ..log.segment.checkpoint import FAILED, End, encode_checkpoint, read_checkpoint
from ..log.segment.disk import CHANNELS, FOLDERS, LOG_FILE, SEGMENTS, WRITERS, Disk
from ..log.segment.record import FIRST, Piece
from ..log.segment.record_scan import walk
from ..log.segment.segments import name_of
from .open_spool import Source

_MAX_BYTES = 64 * 1024
_TRIES = 20
# How long a log is watched to find out whether somebody writes it.
_PATIENCE_S, _PAUSE_S = 1.0, 0.02


class OfLogs:
    """Copies all logs. Methods raise OSError, Unavailable. names: of those copied."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._tree = source.tree
        self._copy = source.copy
        self.names: list[str] = []

    def take(self) -> None:
        """Copy all logs that exist."""
        for name in sorted(self._tree.names(LOGS)):
            if is_queue(name):
                self._take(name)

    def _take(self, name: str) -> None:
        """Copy a log; nothing if it is deleted meanwhile. Raises Unavailable."""
        folder = f"{LOGS}/{name}"
        for _ in range(_TRIES):
            uuid = self._uuid(name)
            if uuid is None:
                return
            try:
                if self._take_log(name, uuid) and self._uuid(name) == uuid:
                    self.names.append(name)
                    return
            except (FileNotFoundError, NotADirectoryError):
                pass  # it is being deleted
            self._copy.unmake(folder)
        raise Unavailable(f"log {name!r} changes faster than it can be copied: try again later")

    def _uuid(self, name: str) -> str | None:
        path = f"{LOGS}/{name}/{LOG_FILE}"
        try:
            return Document.parse(documents.read(self._tree, path, _MAX_BYTES)).uuid
        except FileNotFoundError:
            return None
        except (ValueError, FsmqError) as error:
            self._source.leave_out(path, str(error))
            return None

    def _take_log(self, name: str, uuid: str) -> bool:
        """False if retention has removed what a copied channel has not done yet."""
        folder = f"{LOGS}/{name}"
        for path in (folder, *(f"{folder}/{inner}" for inner in FOLDERS)):
            self._copy.make(path, os.stat(path, dir_fd=self._tree.fd, follow_symlinks=False))
        disk = Disk(self._tree, name, time.time)
        before, _ = self._end(disk, uuid)
        copied = self._take_pieces(disk, uuid, before[:-1], set())
        for channel in self._tree.folders(f"{folder}/{CHANNELS}"):
            self._take_channel(disk, channel)
        pieces, end = self._end_with_writers(disk, uuid)
        self._take_pieces(disk, uuid, pieces, copied)
        self._source.take(f"{folder}/{LOG_FILE}")
        if end is not None:
            like = os.stat(f"{folder}/{LOG_FILE}", dir_fd=self._tree.fd, follow_symlinks=False)
            self._copy.write(f"{folder}/{SEGMENTS}/.sync", encode_checkpoint(end), like)
        return not before or before[-1].number in copied

    def _end_with_writers(self, disk: Disk, uuid: str) -> tuple[list[Piece], End | None]:
        """The end of the log, when the copied notes of numbered batches were in force.

        With an older note a batch would be published again, with a later one it would be missed.
        """
        folder = f"{disk.folder}/{WRITERS}"
        for _ in range(_TRIES):
            noted = self._versions(folder)
            pieces, end = self._end(disk, uuid)
            self._source.take_folder(folder)
            if self._versions(folder) == noted:
                return pieces, end
            self._copy.unmake(folder)
        raise Unavailable(f"{folder} changes faster than it can be copied: try again later")

    def _versions(self, folder: str) -> set[tuple[str, int, int]]:
        found = ((name, self._tree.look(f"{folder}/{name}")) for name in self._tree.names(folder))
        return {(name, at.st_ino, at.st_ctime_ns) for name, at in found if at and name[0] != "."}

    # -- segments --------------------------------------------------------------------------------

    def _end(self, disk: Disk, uuid: str) -> tuple[list[Piece], End | None]:
        """What is durable: the pieces in order, and the place where they end."""
        end = self._durable(disk, uuid)
        if end is None:
            return [], None
        return chain(disk, uuid, piece_of(end), []), end._replace(state=0)

    def _durable(self, disk: Disk, uuid: str) -> End | None:
        """Where the newest segment ends, durably; None if there is none.

        A program that writes notes it. If the segment goes further and the note does not change, a
        crash has left an old one: then all whole batches count.
        """
        until = time.monotonic() + _PATIENCE_S
        first = noted = self._noted(disk)
        while True:
            file, _ = newest(disk, uuid, noted, os.O_RDONLY)
            if file is None:
                return None
            with file:
                is_left = time.monotonic() > until
                if noted is None or noted.number != file.number or noted.position > file.size:
                    if is_left:
                        return walk(file, file.start, file.size, doubtful=True)
                elif noted.state == FAILED or noted != first or file.ends_at(noted.position):
                    return noted
                elif is_left:
                    return walk(file, noted, file.size, doubtful=True)
            time.sleep(_PAUSE_S)
            noted = self._noted(disk)

    def _noted(self, disk: Disk) -> End | None:
        return read_checkpoint(self._tree, f"{disk.segments}/.sync")

    def _take_pieces(
        self, disk: Disk, uuid: str, pieces: list[Piece], copied: set[int]
    ) -> set[int]:
        """Copy segments, the newest first, as the oldest are removed first; their numbers."""
        for piece in reversed(pieces):
            if piece.number in copied:
                continue
            file = open_piece(disk, uuid, piece)
            if file is None:
                break
            with file:
                path = f"{disk.segments}/{name_of(piece.number)}"
                size = min(piece.limit, file.size)
                self._copy.add(file.fd, os.fstat(file.fd), path, size, known_by=min(FIRST, size))
            copied.add(piece.number)
        return copied

    # -- channels --------------------------------------------------------------------------------

    def _take_channel(self, disk: Disk, channel: str) -> None:
        folder = disk.channel(channel)
        for _ in range(_TRIES):
            found = self._tree.stat(folder)
            number = newest_progress(self._tree, folder) if found is not None else 0
            if found is None or not number:
                return
            progress = f"{folder}/{progress_name(number)}"
            with (
                self._source.opened(progress) as lines,
                self._source.opened(f"{folder}/channel.json") as settings,
            ):
                now = self._tree.stat(folder)
                if lines is None or now is None or now.st_ino != found.st_ino:
                    continue  # replaced, or made anew
                self._copy.make(folder, found)
                self._copy.add(lines.fd, lines.found, progress)
                if settings is not None:
                    self._copy.add(settings.fd, settings.found, f"{folder}/channel.json")
            return
