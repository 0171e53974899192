"""Scans: find messages in the bytes of a segment, damage, and where a torn tail begins."""

from __future__ import annotations

import zlib
from typing import NamedTuple

from ..ranges import Range, ranges_of
from .checkpoint import End
from .record import (
    HEAD,
    HEAD_BYTES,
    MARK,
    MARK_BYTES,
    MORE,
    LogMessage,
    Mark,
    find_mark,
    looks_like_mark,
    read_mark,
)
from .segments import File

_CHUNK = 1024 * 1024
_MOST_TRIES = 1000


class Parsed(NamedTuple):
    """Where the parsing of some bytes ended.

    at: index of the next record. bad: whether that record does not verify. need: how many bytes the
    next record has, if it is longer than the data.
    """

    at: int
    offset: int
    bad: bool = False
    need: int = 0


def parse(
    data: bytes, at: int, offset: int, messages: list[LogMessage], stop: int | None = None
) -> Parsed:
    """Add the messages of whole records to a list, up to the first that begins at ``stop``."""
    unpack, crc32, add = HEAD.unpack_from, zlib.crc32, messages.append
    view, size = memoryview(data), len(data)
    stop = size if stop is None else stop
    while at < stop and at + HEAD_BYTES <= size:
        crc, body, time_us, header, flags = unpack(data, at)
        start = at + HEAD_BYTES + header
        end = start + body
        if end > size:
            return Parsed(at, offset, need=end - at)
        if crc32(view[at + 4 : end]) != crc:
            return Parsed(at, offset, bad=True)
        if not flags & MARK:
            add(LogMessage(offset, time_us, data[at + HEAD_BYTES : start], data[start:end]))
            offset += 1
        at = end
    return Parsed(at, offset, need=0 if at >= stop else HEAD_BYTES)


class Scanned(NamedTuple):
    """Messages of a part of a segment, up to ``position``; ``offset`` is that of the next one.

    lost: offsets whose records are damaged.
    """

    messages: list[LogMessage]
    position: int
    offset: int
    lost: list[Range]


def scan_records(
    file: File, position: int, offset: int, target: int, limit: int, end_offset: int
) -> Scanned:
    """Read from a record's position to the first record at or after ``target``.

    limit: where the good part of the file ends; end_offset: the next offset there.
    """
    messages: list[LogMessage] = []
    lost: list[Range] = []
    data = file.read(position, min(max(target - position, 1) + _CHUNK // 16, limit - position))
    begin = position
    while True:
        at = position - begin
        found = parse(data, at, offset, messages, max(at, target - begin))
        position, offset = begin + found.at, found.offset
        if offset > end_offset:  # bytes after the end, which never counted
            messages = [message for message in messages if message.offset < end_offset]
            return Scanned(messages, limit, end_offset, lost)
        if position >= min(target, limit) or offset == end_offset:
            return Scanned(messages, position, offset, lost)
        if not found.bad and found.need <= limit - position:
            large = _read_large(file, position, offset) if found.need > _CHUNK else None
            if large is not None:
                messages.append(large)
                position, offset = position + found.need, offset + 1
                data, begin = file.read(position, min(_CHUNK, limit - position)), position
                continue
            more = file.read(position, max(found.need, min(_CHUNK, limit - position)))
            if len(more) >= found.need:
                data, begin = more, position
                continue
        before = offset
        behind = _behind_damage(file, position, offset, limit, end_offset)
        messages += behind.messages
        lost += behind.lost
        position, offset = behind.position, behind.offset
        data, begin = file.read(position, min(_CHUNK, limit - position)), position
        if position >= min(target, limit) or offset >= end_offset or offset == before:
            return Scanned(messages, position, offset, lost)


def _read_large(file: File, position: int, offset: int) -> LogMessage | None:
    """The message at a position, read without a second copy of its body; None if damaged."""
    head = file.read(position, HEAD_BYTES)
    if len(head) < HEAD_BYTES:
        return None
    crc, size, time_us, header_size, flags = HEAD.unpack(head)
    header = file.read(position + HEAD_BYTES, header_size)
    body = file.read(position + HEAD_BYTES + header_size, size)
    if (
        flags & MARK
        or len(body) < size
        or crc != zlib.crc32(body, zlib.crc32(header, zlib.crc32(head[4:])))
    ):
        return None
    return LogMessage(offset, time_us, header, body)


def _behind_damage(file: File, position: int, offset: int, limit: int, end_offset: int) -> Scanned:
    """Skip from a damaged record to the next mark or the end, keeping good messages in between."""
    uuid = file.mark
    data = b""
    mark = None
    base = end_offset
    while position + len(data) < limit:
        more = file.read(position + len(data), min(_CHUNK, limit - position - len(data)))
        if not more:
            break
        searched = max(0, len(data) - MARK_BYTES)
        data += more
        mark = None if uuid is None else find_mark(data, searched, uuid, position)
        if mark is not None:
            break
    if mark is not None:
        # A mark counts from the file's first message, whose offset the caller knows.
        base = file.base + mark.ordinal
    if mark is None or not offset <= base <= end_offset:
        mark, base = None, end_offset
    stop = mark.position - position if mark is not None else len(data)
    end_position = mark.position if mark is not None else limit
    items = _hop(data[:stop], uuid, position)
    if len(items) != base - offset:
        return Scanned([], end_position, base, [(offset, base)] if base > offset else [])
    for number, item in enumerate(items):
        if item is not None:
            item.offset = offset + number
    good = [item for item in items if item is not None]
    lost = ranges_of(offset + number for number, item in enumerate(items) if item is None)
    return Scanned(good, end_position, base, lost)


def _hop(data: bytes, uuid: bytes | None, position: int) -> list[LogMessage | None]:
    """The messages, with None for each damaged one, as far as their beginnings can be found.

    position: that of the first byte.
    """
    items: list[LogMessage | None] = []
    at = 0
    while at < len(data):
        run: list[LogMessage] = []
        at = parse(data, at, 0, run).at
        items += run
        if at >= len(data):
            break
        if looks_like_mark(data, at, uuid, position + at):
            at += MARK_BYTES  # a damaged mark is no message
            continue
        items.append(None)
        if at + HEAD_BYTES > len(data):
            break
        _, body, _, header, _ = HEAD.unpack_from(data, at)
        behind = at + HEAD_BYTES + header + body
        at = behind if behind == len(data) or _verifies(data, behind) else _next_record(data, at)
    return items


def _verifies(data: bytes, at: int) -> bool:
    """Whether there is a whole, undamaged record at a position."""
    if at + HEAD_BYTES > len(data):
        return False
    crc, body, _, header, flags = HEAD.unpack_from(data, at)
    end = at + HEAD_BYTES + header + body
    if flags > MORE | MARK or end > len(data):
        return False
    return bool(zlib.crc32(memoryview(data)[at + 4 : end]) == crc)


def _next_record(data: bytes, at: int) -> int:
    """Where the first record after a damaged one begins, whose lengths cannot be trusted."""
    tries = _MOST_TRIES
    while tries and (at := at + 1) + HEAD_BYTES <= len(data):
        if data[at + 15] or data[at + 19]:
            continue  # the highest bytes of time and flags are always 0
        tries -= 1
        if _verifies(data, at):
            return at
    return len(data)


def walk(file: File, end: End, size: int, *, doubtful: bool) -> End:
    """Continue from the end of one batch to that of the last one.

    doubtful: the machine has been off since. Then a mark after a bad record can tell that the
    record had been durable: it is damaged, and what follows counts.
    """
    while True:
        end, position = _walk(file, end, size)
        if position >= size or not doubtful:
            return end
        mark = _later_mark(file, position, size)
        if mark is None:
            return end
        latest_us = max(end.latest_us, mark.latest_us)
        end = end._replace(position=mark.position, ordinal=mark.ordinal, latest_us=latest_us)


def is_sound(file: File, limit: int) -> bool:
    """Whether all records and marks of a segment are undamaged up to a position."""
    return _walk(file, file.start, limit)[1] >= limit


def _walk(file: File, end: End, size: int) -> tuple[End, int]:
    uuid = file.mark or b""
    position, ordinal = end.position, end.ordinal
    time_us, latest_us = end.time_us, end.latest_us
    data, begin = b"", position
    while position < size:
        at = position - begin
        if at + HEAD_BYTES > len(data):
            data, begin, at = file.read(position, min(_CHUNK, size - position)), position, 0
        if at + HEAD_BYTES > len(data):
            break
        crc, body, time, header, flags = HEAD.unpack_from(data, at)
        length = HEAD_BYTES + header + body
        if length > size - position:
            break
        if at + length > len(data):
            data, begin, at = file.read(position, max(length, _CHUNK)), position, 0
        if len(data) < length or zlib.crc32(memoryview(data)[at + 4 : at + length]) != crc:
            break
        if flags & MARK:
            mark = read_mark(data, at, uuid, position)
            if mark is None or mark.ordinal != ordinal:
                break
        else:
            ordinal, time_us = ordinal + 1, time
        position += length
        latest_us = max(latest_us, time)
        if not flags & MORE:
            end = End(file.number, file.base, ordinal, position, time_us, latest_us)
    return end, position


def _later_mark(file: File, position: int, size: int) -> Mark | None:
    """The first mark after a position, if a mark tells that the file was durable beyond it."""
    if file.mark is None:
        return None
    first: Mark | None = None
    at = position
    while at < size:
        data = file.read(at, _CHUNK + MARK_BYTES)
        start = 0
        while (mark := find_mark(data, start, file.mark, at)) is not None:
            first = first or mark
            if mark.durable > position:
                return first
            start = mark.position - at + 1
        at += _CHUNK
    return None
