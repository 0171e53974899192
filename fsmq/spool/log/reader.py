"""Reading: find the file and position of an offset or a time, and read blocks from there."""

from __future__ import annotations

import errno
import itertools
import os
import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from ..errors import OffsetGone, Unavailable
from .ranges import Range
from .segment.blocks import Block, Blocks, block_end, read_block
from .segment.chain import chain, find, newest, open_piece
from .segment.checkpoint import End, read_checkpoint
from .segment.disk import Disk
from .segment.record import FIRST, HEAD, MARK_BYTES, MARK_EVERY_BYTES, LogMessage, Piece, find_mark
from .segment.record_scan import scan_records, walk
from .segment.segments import File

_SEARCHED = 2 * MARK_EVERY_BYTES
PAGE_BYTES = 64 * 1024 * 1024
# How many messages are read at a time; and how many are read without first searching for a place
# before which all are too old.
_PAGE, _FEW = 10_000, 1000
_numbers = itertools.count()
T = TypeVar("T")


class Known(NamedTuple):
    """What can be read: the pieces of the chain, in order."""

    pieces: list[Piece]

    @property
    def first(self) -> int:
        return self.pieces[0].start if self.pieces else 0

    @property
    def end(self) -> int:
        return self.pieces[-1].end if self.pieces else 0


class Page(NamedTuple):
    """Messages in order, the next offset, and offsets whose messages are damaged."""

    messages: list[LogMessage]
    next: int
    lost: list[Range]


class Reader:
    """Reads one log. Safe in threads.

    log: its UUID. known: returns what can be read; its argument: a file was missing.
    """

    def __init__(
        self, disk: Disk, log: str, blocks: Blocks, known: Callable[[bool], Known]
    ) -> None:
        self._disk = disk
        self._log = log
        self._blocks = blocks
        self._known = known
        self._lock = threading.RLock()
        self._number = next(_numbers)  # identifies its blocks
        # Places where records begin, by file: (offset, position), in order.
        self._places: dict[int, list[tuple[int, int]]] = {}

    def page(self, offset: int, count: int, max_bytes: int = PAGE_BYTES) -> Page:
        """Messages from an offset on. Raises OffsetGone, OSError."""
        return self.page_of(self._known(False), offset, count, max_bytes)

    def page_of(self, known: Known, offset: int, count: int, max_bytes: int = PAGE_BYTES) -> Page:
        """The same, from pieces that the caller has."""
        if offset < known.first:
            raise OffsetGone(self._disk.name, offset, known.first)
        messages: list[LogMessage] = []
        lost: list[Range] = []
        size = 0
        missing: Piece | None = None
        while len(messages) < count and offset < known.end and size < max_bytes:
            at = find(known.pieces, offset)
            piece = known.pieces[at]
            if piece.start > offset:
                lost.append((offset, piece.start))
                offset = piece.start
                continue
            block = self._block(piece, offset)
            if block is None and piece != missing:
                known, missing = self._known(True), piece
                if offset < known.first:
                    raise OffsetGone(self._disk.name, offset, known.first)
                continue
            if block is None:
                lost.append((offset, piece.end))
                offset = piece.end
                continue
            got = block.from_offset(offset, count - len(messages))
            size += sum(len(message.body) for message in got)
            begin, offset = offset, block.next
            if len(messages) + len(got) == count and got:
                offset = got[-1].offset + 1
            messages += got
            lost += [one for one in block.lost_from(begin) if one[0] < offset]
        return Page(messages, offset, lost)

    # -- blocks ----------------------------------------------------------------------------------

    def _block(self, piece: Piece, offset: int) -> Block | None:
        """The block with an offset of a piece; None if the file is gone."""
        with self._lock:
            places = self._places.get(piece.number, [])
            at = bisect_right(places, (offset, 1 << 62)) - 1
            begin, position = places[at] if at >= 0 else (-1, -1)
            block = self._blocks.get(self._number, piece.number, position)
            if block is not None and offset < block.next:
                return block
            return self._look_into(
                piece, lambda file: self._read_up_to(offset, file, piece, begin, position, block)
            )

    def _read_up_to(
        self,
        offset: int,
        file: File,
        piece: Piece,
        begin: int,
        position: int,
        before: Block | None,
    ) -> Block:
        """The block with an offset. before: the one at ``position``, which ends earlier."""
        if before is not None and offset == before.next:
            if before.position < block_end(position):
                return self._grow(file, before, position, piece)
            begin, position = before.next, before.position
        elif begin != offset:
            begin, position = self._place(file, piece, offset)
        block = self._read(file, begin, position, piece)
        while begin < block.next <= offset:  # a large message is a block of its own
            begin, position = block.next, block.position
            block = self._read(file, begin, position, piece)
        return block

    def _look_into(self, piece: Piece, look: Callable[[File], T]) -> T | None:
        """Call ``look`` with the file of a piece; None if another host has removed it by now."""
        try:
            file = open_piece(self._disk, self._log, piece)
            if file is None:
                return None
            with file:
                return look(file)
        except OSError as error:
            if error.errno == errno.ESTALE:
                return None
            raise

    def _read(self, file: File, begin: int, position: int, piece: Piece) -> Block:
        block = read_block(file, position, begin, piece.limit, piece.end)
        _end_with(block, piece)
        places = self._places.setdefault(piece.number, [])
        if (begin, position) not in places[-1:] and not _has(places, (begin, position)):
            insort(places, (begin, position))
        self._blocks.keep(self._number, piece.number, position, block)
        return block

    def _grow(self, file: File, block: Block, begin: int, piece: Piece) -> Block:
        before = block.size
        end = block_end(begin)
        block.grow(scan_records(file, block.position, block.next, end, piece.limit, piece.end))
        _end_with(block, piece)
        self._blocks.grew(self._number, piece.number, begin, block.size - before)
        return block

    def _place(self, file: File, piece: Piece, offset: int) -> tuple[int, int]:
        """A record at or shortly before an offset: its offset and position."""
        return self._search(file, piece, lambda mark_offset, _: mark_offset <= offset)

    def _search(
        self, file: File, piece: Piece, is_before: Callable[[int, int], bool]
    ) -> tuple[int, int]:
        """Bisect the file by its marks, until little is left."""
        low, low_offset, high = FIRST, piece.start, piece.limit
        while file.mark is not None and high - low > _SEARCHED:
            middle = (low + high) // 2
            found = _next_mark(file, middle, high)
            if found is not None and is_before(piece.start + found[0], found[1]):
                low_offset, low = piece.start + found[0], found[1]
            else:
                high = middle
        return low_offset, low

    def close(self) -> None:
        """Forget what was read."""
        self._blocks.forget(self._number)
        self.forget_before(1 << 63)

    def forget_before(self, number: int) -> None:
        """Forget the places of segments with a lower number, which are gone."""
        with self._lock:
            for gone in [one for one in self._places if one < number]:
                del self._places[gone]

    # -- times and sizes --------------------------------------------------------------------------

    def offset_at(self, time_us: int) -> int:
        """The offset of the first message that is not older than a time; the end if all are.

        If a clock was set back there can be several such places: this is one of them.
        """
        known = self._known(False)
        pieces = known.pieces
        low, high = 0, len(pieces)  # the last piece that begins before the time
        while low < high:
            middle = (low + high) // 2
            begins = self.first_time(pieces[middle])
            if begins is None or begins >= time_us:
                high = middle
            else:
                low = middle + 1
        if not low:
            return known.first
        piece = pieces[low - 1]
        offset = self._since(piece, time_us)
        while offset < piece.end:
            page = self.page(offset, 1000)
            for message in page.messages:
                if message.time_us >= time_us:
                    return message.offset
            if page.next == offset:
                break
            offset = page.next
        return min(offset, known.end)

    def since(self, time_us: int, start: int) -> Iterator[Page]:
        """All messages from an offset on that are not older than a time, and possibly others, in
        order, up to the end; pages can be empty.

        Messages can have times in any order: hosts have different clocks, and clocks are set. Marks
        and lines contain the latest time of all messages before them.
        """
        known = self._known(False)
        for piece in known.pieces[find(known.pieces, start) :]:
            offset = max(start, piece.start)
            if 0 < piece.latest_us < time_us or piece.end - offset > _FEW:
                offset = max(offset, self._since(piece, time_us))
            while offset < piece.end:
                try:
                    page = self.page_of(known, offset, min(_PAGE, piece.end - offset))
                except OffsetGone:  # retention was faster
                    break
                yield page
                if page.next <= offset:
                    return
                offset = page.next
            yield Page([], piece.end, [])

    def _since(self, piece: Piece, time_us: int) -> int:
        """An offset of a piece before which all messages are older than a time."""
        if 0 < piece.latest_us < time_us:
            return piece.end
        found = self._look_into(
            piece,
            lambda file: self._search(file, piece, lambda _, at: _time_at(file, at) < time_us),
        )
        return piece.start if found is None else found[0]

    def first_time(self, piece: Piece) -> int | None:
        """The time of a piece's first message, µs; 0 if it has none, None if the file is gone."""
        if piece.limit <= FIRST:
            return 0
        return self._look_into(piece, lambda file: _time_at(file, FIRST))

    def last_time_us(self, known: Known) -> int:
        """The time of the last message; 0 if there is none."""
        end = known.end
        while end > known.first:
            try:
                page = self.page(end - 1, 1)
            except (OffsetGone, Unavailable):
                return 0
            if page.messages:
                return page.messages[-1].time_us
            end -= 1
            if end < known.end - 1000:
                break
        return 0

    def bytes_from(self, offset: int) -> int:
        """About how many bytes of segments the messages from an offset on take."""
        known = self._known(False)
        at = find(known.pieces, offset)
        total = sum(piece.limit - FIRST for piece in known.pieces[at:])
        if total and offset > known.pieces[at].start:
            piece = known.pieces[at]
            found = self._look_into(piece, lambda file: self._place(file, piece, offset))
            total -= (found[1] if found is not None else FIRST) - FIRST
        return total if offset < known.end else 0


def _has(places: list[tuple[int, int]], place: tuple[int, int]) -> bool:
    at = bisect_left(places, place)
    return at < len(places) and places[at] == place


def _next_mark(file: File, position: int, limit: int) -> tuple[int, int] | None:
    """The first mark from a position on: the number of messages before it, and its position."""
    assert file.mark is not None
    data, at = b"", position
    while at < limit:
        more = file.read(at, min(_SEARCHED, limit - at))
        if not more:
            return None
        begin = at - len(data)
        data += more
        at += len(more)
        mark = find_mark(data, 0, file.mark, begin)
        if mark is not None:
            return mark.ordinal, mark.position
        data = data[-MARK_BYTES:]
    return None


def _time_at(file: File, position: int) -> int:
    data = file.read(position, HEAD.size)
    return int(HEAD.unpack(data)[2]) if len(data) == HEAD.size else 0


def _end_with(block: Block, piece: Piece) -> None:
    """Count the remaining messages as lost, if the file of a piece ends too early."""
    if block.position >= piece.limit and block.next < piece.end:
        block.lost = [*block.lost, (block.next, piece.end)]
        block.next = piece.end


def piece_of(end: End) -> Piece:
    """The newest segment up to a place."""
    return Piece(*end.piece)


def as_it_is(disk: Disk, log: str) -> Known:
    """What can be read according to the notes on disk; changes nothing. log: its UUID. OSError."""
    synced = read_checkpoint(disk.tree, f"{disk.segments}/.sync")
    file, _ = newest(disk, log, synced, os.O_RDONLY)
    if file is not None:
        with file:
            if synced is None or synced.number != file.number:
                synced = walk(file, file.start, file.size, doubtful=True)
    return Known(chain(disk, log, piece_of(synced), []) if synced is not None else [])
