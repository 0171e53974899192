"""Reading the files of messages in steps, and never more than there is memory for.

A compressed body is larger than its file, so memory is reserved before unpacking it.
"""

from __future__ import annotations

import os
from typing import NamedTuple, Protocol

from ..context import Context
from ..errors import NoRoom
from ..layout.files import read_all
from ..layout.messages.compression import decompress_in
from ..layout.messages.message import MAX_HEADER_BYTES, NO_HEADER, NO_LINES, OwnLines, header
from ..layout.names import Facts
from ..layout.steps import LARGE_BYTES, Steps

# An answer of many messages ends early when their bodies reach this many bytes.
MAX_ANSWER_BYTES = 64 * 1024 * 1024
# The memory that a message takes in Python beside its body.
_MESSAGE_BYTES = 1024


class Room(Protocol):
    """Memory that several readers share."""

    def take(self, size: int, *, is_first: bool) -> None:
        """Take ``size`` bytes for a message; is_first: of several. Raises NoRoom."""

    def free(self, size: int) -> None:
        """Return ``size`` of the bytes that were taken."""


class Budget:
    """The memory taken from a room for messages that are read one after the other.

    room: None has no limit. Close it when the last message is read.
    """

    def __init__(self, room: Room | None) -> None:
        self._room = room
        self._spare = 0  # taken, but not used by any message yet
        self._is_first = True

    def need(self, size: int) -> None:
        """Reserve ``size`` bytes for the next message. Raises NoRoom."""
        missing = size + _MESSAGE_BYTES - self._spare
        if self._room is not None and missing > 0:
            self._room.take(missing, is_first=self._is_first)
            self._spare += missing

    def use(self, size: int) -> None:
        """Count a message of ``size`` bytes as read; it keeps them."""
        if self._room is not None:
            if self._spare < size + _MESSAGE_BYTES:
                self.need(size)
            self._spare -= size + _MESSAGE_BYTES
            self._is_first = False

    @property
    def is_first(self) -> bool:
        """Whether no message has been read."""
        return self._is_first

    def forget(self, size: int, *, is_first: bool) -> None:
        """Count a message of ``size`` bytes as not read, and reuse its bytes for the next one.

        is_first: what the budget's ``is_first`` was before.
        """
        if self._room is not None:
            self._spare += size + _MESSAGE_BYTES
            self._is_first = is_first

    def close(self) -> None:
        """Return the bytes that were not used."""
        if self._room is not None and self._spare:
            self._room.free(self._spare)
            self._spare = 0


UNLIMITED = Budget(None)


class Rest:
    """The memory left for the messages of one answer, from any number of queues."""

    def __init__(self, room: Room | None) -> None:
        self._room = room
        self._taken = 0

    def take(self, size: int, *, is_first: bool) -> None:
        """Take bytes for a message; is_first: of its queue. Raises NoRoom."""
        if self._taken and self._taken + size > MAX_ANSWER_BYTES:
            raise NoRoom("the messages of an answer have no more bytes")
        if self._room is not None:
            self._room.take(size, is_first=is_first and not self._taken)
        self._taken += size

    def free(self, size: int) -> None:
        """Return bytes that were taken."""
        if self._room is not None:
            self._room.free(size)
        self._taken -= size


class Content(NamedTuple):
    """The content of a message's file; the rest is in its name."""

    body: bytes
    content_type: str | None
    attributes: dict[str, str]
    own: OwnLines


def is_plain(size: int, known: Facts) -> bool:
    """Whether :func:`read_plain` can read a message, which is the usual case."""
    return size <= LARGE_BYTES and not known.packed


def read_plain(fd: int, size: int, known: Facts, budget: Budget) -> Content:
    """Read a small, uncompressed message, without steps. Raises NoRoom, OSError.

    The caller has reserved its ``size`` bytes in the budget.
    """
    body = read_all(fd, size)
    budget.use(max(size, len(body)))
    if not known.headed:
        return Content(body, None, {}, NO_LINES)
    end, content_type, attributes, own = header(body)
    return Content(body[end:], content_type, attributes if end else {}, own)


def read(context: Context, fd: int, size: int, known: Facts, budget: Budget) -> Steps[Content]:
    """Read a message from its open file of ``size`` bytes.

    Raises:
        NoRoom, OSError
    """
    budget.need(size)
    if is_plain(size, known):
        return read_plain(fd, size, known, budget)
    found = NO_HEADER
    if size > LARGE_BYTES:
        yield
        if known.headed:
            found = header(os.pread(fd, MAX_HEADER_BYTES, 0))
        body = read_all(fd, size - found.end, found.end)
    else:
        body = read_all(fd, size)
        if known.headed:
            found = header(body)
            body = body[found.end :]
    if known.packed:
        limit = context.max_plain_bytes
        plain = yield from decompress_in(body, limit, lambda plain: budget.need(size + plain))
        body = body if plain is None else plain
    budget.use(max(size, len(body)))  # the file has the attributes too
    return Content(body, found.content_type, dict(found.attributes), found.own)
