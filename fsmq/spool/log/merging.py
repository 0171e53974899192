"""Merging: many small groups of a log of many hosts become one segment.

The new file is written and synced, linked to a name that has its end, and that is synced, too. Only
then the names that it contains go, the oldest first. A name must not become free while a writer may
still try for it: `linking.py` says why these times are enough.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

from ..layout.files import write_all
from ..layout.uuids import uuid7
from .disk import Disk
from .linking import KEPT_NAMES, MERGE_AFTER_S, since_boot
from .record import LINE_BYTES, Marks, first_line, pack, parse_line
from .segments import Piece, arrange, name_of, open_file, parse_name
from .stretch import read_stretch

# So many bytes of groups are read for one segment at most, beside its size.
_LARGEST_GROUP = 1 << 30


class Merger:
    """Merges the groups of one log. It must have seen a name for ten minutes itself.

    after_s: how long. kept: how many of the newest names stay.
    """

    def __init__(
        self, disk: Disk, *, after_s: float = MERGE_AFTER_S, kept: int = KEPT_NAMES
    ) -> None:
        self._disk = disk
        self._after_s = after_s
        self._kept = kept
        self._seen: dict[str, float] = {}

    def step(self, segment_bytes: int) -> int:
        """Merge one segment's worth, if there is; how many names went. Raises OSError."""
        names = self._disk.tree.names(self._disk.segments)
        now = since_boot()
        self._seen = {name: self._seen.get(name, now) for name in names}
        pieces = arrange(names)
        freed = self._free_contained(names, pieces, now)
        run, size = [], 0
        for piece in self._mergeable(pieces, now):
            found = self._disk.tree.stat(f"{self._disk.segments}/{piece.name}")
            if found is None or found.st_size > _LARGEST_GROUP:
                break
            run.append(piece)
            size += found.st_size
            if size >= segment_bytes:
                break
        if len(run) < 2 or (size < segment_bytes and len(run) < self._kept):
            return freed
        return freed + self._merge(run)

    def _mergeable(self, pieces: Sequence[Piece], now: float) -> Iterator[Piece]:
        """Groups that join on to each other, and that have been there for long enough."""
        groups = [piece for piece in pieces if piece.name == name_of(piece.base)]
        if len(groups) <= self._kept:
            return
        for number, piece in enumerate(groups[: len(groups) - self._kept]):
            if now - self._seen.get(piece.name, now) < self._after_s:
                return
            if number and groups[number - 1].end != piece.start:
                return
            yield piece

    def _free_contained(self, names: Sequence[str], pieces: Sequence[Piece], now: float) -> int:
        """Unlink names that a merged segment contains: a crash, or a late writer, has left them."""
        counts = {piece.name for piece in pieces}
        freed = self._free_void(pieces, now)
        for name in sorted(names):
            parsed = parse_name(name)
            if parsed is None or name in counts or now - self._seen[name] < self._after_s:
                continue
            if any(
                piece.start <= parsed.base and (parsed.end or parsed.base + 1) <= (piece.end or 0)
                for piece in pieces
                if piece.name != name_of(piece.base)
            ):
                freed += self._disk.tree.unlink(f"{self._disk.segments}/{name}")
        return freed

    def _free_void(self, pieces: Sequence[Piece], now: float) -> int:
        """Unlink groups that join on to nothing: their writer slept, and will see it or is dead."""
        freed = 0
        for piece in pieces[:-1]:
            if piece.name != name_of(piece.base) or now - self._seen[piece.name] < self._after_s:
                continue
            file = open_file(self._disk.tree, self._disk.segments, piece.name)
            if file is None:
                continue
            file.close()
            if file.line is not None and file.line.messages is not None:
                is_void = piece.base + file.line.messages < (piece.end or 0)
                if is_void:
                    freed += self._disk.tree.unlink(f"{self._disk.segments}/{piece.name}")
        return freed

    def _merge(self, run: Sequence[Piece]) -> int:
        disk, uuid = self._disk, uuid7()
        end = run[-1].end
        assert end is not None
        line = first_line(uuid, end - run[0].base)
        known = parse_line(line)
        assert known is not None
        marks = Marks(known.uuid, LINE_BYTES, 0, LINE_BYTES, 0)
        draft = f"{disk.segments}/.{uuid}"
        fd = disk.tree.create(draft)
        try:
            try:
                write_all(fd, line)
                for piece in run:
                    data = self._records(piece, marks)
                    if data is None:
                        return 0
                    write_all(fd, data)
                disk.sync_file(fd)
            finally:
                os.close(fd)
            with suppress(FileExistsError):  # another merger has done the same
                disk.tree.link(draft, f"{disk.segments}/{name_of(run[0].base, end)}")
        finally:
            with suppress(OSError):
                disk.tree.unlink(draft)
        disk.sync_folder(disk.segments)
        for piece in run:
            disk.tree.unlink(f"{disk.segments}/{piece.name}")
        return len(run)

    def _records(self, piece: Piece, marks: Marks) -> bytes | None:
        """The records of a group, with new marks; None if it is damaged, and so left as it is."""
        file = open_file(self._disk.tree, self._disk.segments, piece.name)
        if file is None or piece.end is None:
            return None
        try:
            if file.line is None or piece.base + (file.line.messages or 0) != piece.end:
                return None
            size = file.size
            found = read_stretch(file, LINE_BYTES, piece.base, size, size, piece.end)
        finally:
            file.close()
        if found.lost or len(found.messages) != piece.end - piece.base:
            return None
        parts: list[bytes] = []
        for message in found.messages:
            if marks.is_due:
                parts.append(marks.make(message.time_us))
            head = pack(message.header, message.body, message.time_us, 0)
            parts += [head, message.body]
            marks.position += len(head) + len(message.body)
            marks.ordinal += 1
        return b"".join(parts)
