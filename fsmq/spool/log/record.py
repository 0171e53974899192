"""Records: what stands in a segment, byte by byte.

A segment begins with a line of 64 bytes. Then come records: a head of 20 bytes, header lines as in
a message of a queue, and the body. No record holds its offset: the segment's name and the order
give it, so that a file may stand at another place without being written again.

A batch is in the log as a whole or not at all: each record but its last has the flag MORE. A record
with the flag MARK is no message. It says where it is, how many messages come before it, and up to
where the file was durable when it was written. So one can find an offset without reading what comes
before it, go on behind damage, and tell damage from what a crash has torn.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from ..errors import InvalidValue
from ..layout.message import header as parse_header
from ..layout.message import pack_header

HEAD = struct.Struct("<IIQHH")  # CRC-32 of all that follows, body, time in µs, header, flags
HEAD_BYTES = HEAD.size
_AFTER_CRC = struct.Struct("<IQHH")
_CRC = struct.Struct("<I")
MORE, MARK = 1, 2
_MARK = struct.Struct("<16sQQQ")  # the file's UUID, position, messages before it, durable up to
MARK_BYTES = HEAD_BYTES + _MARK.size
LINE_BYTES = 64
MAX_HEADER_BYTES = 0xFFFF
# A mark stands at least this often: what one must read to find an offset, or what damage may cost.
MARK_EVERY_BYTES = 64 * 1024
MARK_EVERY = 64
_KEY, _ID = "Key", "Id"
_RESERVED = (_KEY.lower(), _ID.lower())
MAX_KEY_BYTES = 1024
MAX_ID_BYTES = 256


class LogMessage:
    """A message of a log.

    offset: its place. published_at: Unix seconds, as the server had them; never less than those of
    the message before. key: what `order="key"` keeps in order; None if it has none. id: what its
    publisher called it; None if nothing.
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
        """Its header block, as it stands in the file."""
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
        return f"<LogMessage {self.offset}: {self.body[:40]!r}>"

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
    """A message that is to be written: its header block, its body, and its publisher's id."""

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
    """A message that is to be written. Raises InvalidValue."""
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
        # A key is an attribute to the header block, and a name of its own to the caller.
        field = error.field.removeprefix("attribute ")
        raise InvalidValue(
            field.lower() if field in lines else error.field, error.problem
        ) from None
    if len(block) > MAX_HEADER_BYTES:
        raise InvalidValue("attributes", f"are more than {MAX_HEADER_BYTES} bytes in all")
    return Entry(block, body, id)


def first_line(uuid: str, count: int | None = None) -> bytes:
    """The first 64 bytes of a segment; ``count``: how many messages it has, if that is final."""
    line = f"fsmq-log 1 {uuid} {'-' if count is None else count}"
    return line.ljust(LINE_BYTES - 1).encode() + b"\n"


class Line(NamedTuple):
    """What the first line of a segment says.

    uuid: 16 bytes, which its marks have, too. messages: how many; None while it grows.
    """

    uuid: bytes
    messages: int | None


def parse_line(line: bytes) -> Line | None:
    """The first line of a segment; None if these bytes are no such line."""
    words = line[:LINE_BYTES].split()
    if len(line) < LINE_BYTES or line[63:64] != b"\n" or words[:2] != [b"fsmq-log", b"1"]:
        return None
    try:
        uuid = UUID(words[2].decode()).bytes
        return Line(uuid, None if words[3] == b"-" else int(words[3]))
    except (IndexError, ValueError):
        return None


def pack(header: bytes, body: bytes, time_us: int, flags: int) -> bytes:
    """The head of a record and its header block; the body comes behind it."""
    rest = _AFTER_CRC.pack(len(body), time_us, len(header), flags) + header
    return _CRC.pack(zlib.crc32(body, zlib.crc32(rest))) + rest


class Mark(NamedTuple):
    """A mark. ordinal: how many messages of the file come before it. end: where it ends."""

    position: int
    ordinal: int
    durable: int
    end: int


class Marks:
    """Where the next mark of a file is due. durable: says up to where the file is durable."""

    def __init__(
        self,
        uuid: bytes,
        position: int,
        ordinal: int,
        marked_at: int,
        marked: int,
        durable: Callable[[], int] = int,
    ) -> None:
        self.uuid = uuid
        self.position = position  # where the next byte goes
        self.ordinal = ordinal
        self._durable = durable
        self.marked_at = marked_at
        self.marked = marked

    @property
    def is_due(self) -> bool:
        return (
            self.ordinal - self.marked >= MARK_EVERY
            or self.position - self.marked_at >= MARK_EVERY_BYTES
        )

    def make(self, time_us: int) -> bytes:
        """The bytes of a mark for this place, which are counted as written."""
        body = _MARK.pack(self.uuid, self.position, self.ordinal, self._durable())
        made = pack(b"", body, time_us, MARK | MORE) + body
        self.marked_at, self.marked = self.position, self.ordinal
        self.position += MARK_BYTES
        return made


def encode(entries: Sequence[Entry], time_us: int, marks: Marks) -> Iterator[bytes]:
    """The bytes of one batch, in parts."""
    last = len(entries) - 1
    for number, (header, body, _) in enumerate(entries):
        if marks.is_due:
            yield marks.make(time_us)
        head = pack(header, body, time_us, MORE if number < last else 0)
        yield head
        yield body
        marks.position += len(head) + len(body)
        marks.ordinal += 1


def chunks(parts: Iterable[bytes], size: int = 1 << 18) -> Iterator[bytes]:
    """Parts joined to pieces of about a size.

    For a large one the allocator fetches memory anew each time, page by page.
    """
    some: list[bytes] = []
    left = size
    for part in parts:
        some.append(part)
        left -= len(part)
        if left <= 0:
            yield b"".join(some)
            some, left = [], size
    if some:
        yield b"".join(some)


def read_mark(data: bytes | memoryview, at: int, uuid: bytes, position: int) -> Mark | None:
    """The mark at ``at`` of some bytes, which are those of a file from ``position - at`` on."""
    if at < 0 or at + MARK_BYTES > len(data):
        return None
    crc, size, _, _, flags = HEAD.unpack_from(data, at)
    if size != _MARK.size or not flags & MARK:
        return None
    if zlib.crc32(memoryview(data)[at + 4 : at + MARK_BYTES]) != crc:
        return None
    found, place, ordinal, durable = _MARK.unpack_from(data, at + HEAD_BYTES)
    if found != uuid or place != position:
        return None
    return Mark(position, ordinal, durable, position + MARK_BYTES)


def find_mark(data: bytes, start: int, uuid: bytes, position: int) -> Mark | None:
    """The first mark in bytes from ``start`` on; ``position``: that of the first byte of all."""
    at = data.find(uuid, start + HEAD_BYTES)
    while at >= 0:
        mark = read_mark(data, at - HEAD_BYTES, uuid, position + at - HEAD_BYTES)
        if mark is not None:
            return mark
        at = data.find(uuid, at + 1)
    return None
