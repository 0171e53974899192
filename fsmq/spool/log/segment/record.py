"""Records: the content of a segment, byte by byte.

A segment begins with a line, written twice, that names this segment and the end of the one before
it. Then come records: a head of 20 bytes, header lines as in a message of a queue, and the body.
Records do not contain their offsets, which follow from the line and the order.

A batch is in the log as a whole or not at all: each record but its last has the flag MORE. A record
with the flag MARK is no message. It contains its position, how many messages come before it, and up
to where the file was durable when it was written. So an offset can be found without reading what
comes before it, reading can continue after damage, and damage can be told from a torn end.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from ...errors import InvalidValue
from ...layout.messages.message import header as parse_header
from ...layout.messages.message import pack_header

HEAD = struct.Struct("<IIQHH")  # CRC-32 of all that follows, body, time in µs, header, flags
HEAD_BYTES = HEAD.size
_AFTER_CRC = struct.Struct("<IQHH")
_CRC = struct.Struct("<I")
MORE, MARK = 1, 2
_MARK = struct.Struct("<16sQQQ")  # the file's UUID, position, messages before it, durable up to
MARK_BYTES = HEAD_BYTES + _MARK.size
_SIZE_OF_MARK = _AFTER_CRC.pack(_MARK.size, 0, 0, 0)[:4]
LINE_BYTES = 512
FIRST = 2 * LINE_BYTES  # where the first record begins
MAX_HEADER_BYTES = 0xFFFF
# A mark precedes each message whose number is a multiple of MARK_EVERY, and each that crosses a
# multiple of MARK_EVERY_BYTES: this limits the reading for an offset, and the loss by damage.
MARK_EVERY_BYTES = 64 * 1024
MARK_EVERY = 64
_KEY, _ID = "Key", "Id"
_RESERVED = (_KEY.lower(), _ID.lower())
MAX_KEY_BYTES = 1024
MAX_ID_BYTES = 256


class LogMessage:
    """A message of a log.

    offset: its place. published_at: Unix seconds by the server's clock; less than for the message
    before only if a clock was set back. key: messages of one key are kept in order by
    `order="key"`. id: the one that its publisher gave, if any.
    """

    __slots__ = ("_header", "_parsed", "body", "offset", "time_us")

    def __init__(self, offset: int, time_us: int, header: bytes, body: bytes) -> None:
        self.offset = offset
        self.time_us = time_us
        self.body = body
        self._header = header
        self._parsed: _Parsed | None = None if header else _NOTHING

    @property
    def header(self) -> bytes:
        """Its header block, as in the file."""
        return self._header

    @property
    def published_at(self) -> float:
        return self.time_us / 1e6

    @property
    def key(self) -> str | None:
        return (self._parsed or self._parse()).key

    @property
    def id(self) -> str | None:
        return (self._parsed or self._parse()).id

    @property
    def content_type(self) -> str | None:
        return (self._parsed or self._parse()).content_type

    @property
    def attributes(self) -> Mapping[str, str]:
        return (self._parsed or self._parse()).attributes

    def _parse(self) -> _Parsed:
        _, content_type, attributes, _ = parse_header(self._header)
        key, own = attributes.pop(_KEY, None), attributes.pop(_ID, None)
        self._parsed = _Parsed(key, own, content_type, attributes)
        return self._parsed

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.offset}: {self.body[:40]!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LogMessage) and (
            (self.offset, self.time_us, self.body, self._header)
            == (other.offset, other.time_us, other.body, other._header)
        )

    def __hash__(self) -> int:
        return hash((self.offset, self.body))


class _Parsed(NamedTuple):
    key: str | None
    id: str | None
    content_type: str | None
    attributes: Mapping[str, str]


_NOTHING = _Parsed(None, None, None, {})


class Entry(NamedTuple):
    """A message to be written: its header block, its body, and its publisher's id."""

    header: bytes
    body: bytes
    id: str | None = None

    @property
    def size(self) -> int:
        return HEAD_BYTES + len(self.header) + len(self.body)


def entry(
    body: bytes,
    key: str | None = None,
    id: str | None = None,
    content_type: str | None = None,
    attributes: Mapping[str, str] | None = None,
) -> Entry:
    """A message to be written. Raises InvalidValue."""
    if key is None and id is None and content_type is None and not attributes:
        return Entry(b"", body)
    lines: dict[str, str] = {}
    for name, value, limit in ((_KEY, key, MAX_KEY_BYTES), (_ID, id, MAX_ID_BYTES)):
        if value is None:
            continue
        if not value or len(value.encode("utf-8", "replace")) > limit:
            raise InvalidValue(name.lower(), f"must have 1 to {limit} bytes")
        lines[name] = value
    for name in attributes or {}:
        if name.lower() in _RESERVED:
            raise InvalidValue("attributes", f"{name!r} is not an attribute name of a log")
    try:
        block = pack_header(content_type, {**lines, **(attributes or {})})
    except InvalidValue as error:
        # A key is an attribute in the header block, but a field of its own for the caller.
        field = error.field.removeprefix("attribute ")
        raise InvalidValue(
            field.lower() if field in lines else error.field, error.problem
        ) from None
    if len(block) > MAX_HEADER_BYTES:
        raise InvalidValue("attributes", f"are more than {MAX_HEADER_BYTES} bytes in all")
    return Entry(block, body, id)


class Piece(NamedTuple):
    """A segment in the chain: offsets from ``start`` to before ``end``, at positions up to
    ``limit``. number: 0: none. latest_us: its latest time; 0 if unknown. uuid: "-" if unknown."""

    number: int = 0
    start: int = 0
    end: int = 0
    limit: int = 0
    latest_us: int = 0
    uuid: str = "-"


class Line(NamedTuple):
    """The first line of a segment.

    log, uuid: of the log, and of the segment; its marks have the latter, too. number: its name.
    base: the offset of its first message. time_us: of the message before that. before: the two
    segments before it, the nearest first.
    """

    log: str
    uuid: str
    number: int
    base: int
    time_us: int
    before: tuple[Piece, Piece]

    def encode(self) -> bytes:
        """The first bytes of the segment: the line, twice."""
        words = (self.number, self.base, self.time_us, *self.before[0], *self.before[1])
        text = " ".join(["fsmq-log 1", self.log, self.uuid, *map(str, words)]).encode()
        line = (b"%s %08x" % (text, zlib.crc32(text))).ljust(LINE_BYTES - 1) + b"\n"
        return line * 2


def parse_line(data: bytes) -> Line | None:
    """The line of the first bytes of a segment; None if neither copy verifies."""
    for at in (0, LINE_BYTES):
        text, _, seal = data[at : at + LINE_BYTES].rstrip().rpartition(b" ")
        words = text.decode("ascii", "replace").split(" ")
        try:
            if words[:2] != ["fsmq-log", "1"] or int(seal, 16) != zlib.crc32(text):
                continue
            log, uuid, (number, base, time_us) = words[2], words[3], map(int, words[4:7])
            UUID(uuid)
            before = _piece(*words[7:13]), _piece(*words[13:])
        except (IndexError, ValueError, TypeError):
            continue
        return Line(log, uuid, number, base, time_us, before)
    return None


def _piece(number: str, start: str, end: str, limit: str, latest_us: str, uuid: str) -> Piece:
    return Piece(int(number), int(start), int(end), int(limit), int(latest_us), uuid)


def pack(header: bytes, body: bytes, time_us: int, flags: int) -> bytes:
    """The head of a record and its header block; the body follows."""
    rest = _AFTER_CRC.pack(len(body), time_us, len(header), flags) + header
    return _CRC.pack(zlib.crc32(body, zlib.crc32(rest))) + rest


class Mark(NamedTuple):
    """A mark. ordinal: how many messages of the file come before it. latest_us: the latest time of
    these and the next one. end: where it ends."""

    position: int
    ordinal: int
    latest_us: int
    durable: int
    end: int


class Cursor:
    """Where in a file the next record goes, and how many messages come before it. uuid: the file's.
    latest_us: their latest time, later ones included. durable: up to where the file is durable."""

    def __init__(
        self,
        uuid: bytes,
        position: int,
        ordinal: int,
        latest_us: int,
        durable: Callable[[], int] = int,
    ) -> None:
        self.uuid = uuid
        self.position = position
        self.ordinal = ordinal
        self.latest_us = latest_us
        self._durable = durable

    def mark(self) -> bytes:
        """The bytes of a mark for this place, which are counted as written."""
        body = _MARK.pack(self.uuid, self.position, self.ordinal, self._durable())
        self.position += MARK_BYTES
        return pack(b"", body, self.latest_us, MARK | MORE) + body


def encode(entries: Sequence[Entry], time_us: int, cursor: Cursor) -> Iterator[bytes]:
    """The bytes of one batch, in parts."""
    last = len(entries) - 1
    for number, (header, body, _) in enumerate(entries):
        end = cursor.position + HEAD_BYTES + len(header) + len(body)
        is_across = end // MARK_EVERY_BYTES > cursor.position // MARK_EVERY_BYTES
        if is_across or not cursor.ordinal % MARK_EVERY:
            yield cursor.mark()
        head = pack(header, body, time_us, MORE if number < last else 0)
        yield head
        yield body
        cursor.position += len(head) + len(body)
        cursor.ordinal += 1


def chunks(parts: Iterable[bytes], size: int = 1 << 18) -> Iterator[bytes]:
    """Parts joined to pieces of about ``size`` bytes.

    For a larger piece the allocator would map new memory each time, page by page.
    """
    chunk: list[bytes] = []
    left = size
    for part in parts:
        chunk.append(part)
        left -= len(part)
        if left <= 0:
            yield b"".join(chunk)
            chunk, left = [], size
    if chunk:
        yield b"".join(chunk)


def read_mark(data: bytes | memoryview, at: int, uuid: bytes, position: int) -> Mark | None:
    """The mark at index ``at`` of bytes that begin at ``position - at`` in the file."""
    if at < 0 or at + MARK_BYTES > len(data):
        return None
    crc, size, latest_us, _, flags = HEAD.unpack_from(data, at)
    if size != _MARK.size or not flags & MARK:
        return None
    if zlib.crc32(memoryview(data)[at + 4 : at + MARK_BYTES]) != crc:
        return None
    found, place, ordinal, durable = _MARK.unpack_from(data, at + HEAD_BYTES)
    if found != uuid or place != position:
        return None
    return Mark(position, ordinal, latest_us, durable, position + MARK_BYTES)


def any_mark(data: bytes, position: int) -> bytes | None:
    """The UUID of the first mark in bytes from a position; None if there is none."""
    at = data.find(_SIZE_OF_MARK)
    while at >= 0:
        place = position + at - _CRC.size
        uuid = data[at - _CRC.size + HEAD_BYTES :][:16]
        if read_mark(data, at - _CRC.size, uuid, place) is not None:
            return uuid
        at = data.find(_SIZE_OF_MARK, at + 1)
    return None


def looks_like_mark(data: bytes, at: int, uuid: bytes | None, position: int) -> bool:
    """Whether a record that does not verify was a mark, as most of it looks like one."""
    if uuid is None or at + MARK_BYTES > len(data):
        return False
    _, size, _, header, flags = HEAD.unpack_from(data, at)
    found, place, _, _ = _MARK.unpack_from(data, at + HEAD_BYTES)
    agree: tuple[bool, ...]
    agree = (size == _MARK.size, not header, flags == MARK | MORE, found == uuid, place == position)
    return sum(agree) >= 4


def find_mark(data: bytes, start: int, uuid: bytes, position: int) -> Mark | None:
    """The first mark in bytes from ``start`` on. position: that of the first byte."""
    at = data.find(uuid, start + HEAD_BYTES)
    while at >= 0:
        mark = read_mark(data, at - HEAD_BYTES, uuid, position + at - HEAD_BYTES)
        if mark is not None:
            return mark
        at = data.find(uuid, at + 1)
    return None
