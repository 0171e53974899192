"""Given ids: the ids that producers give to the messages of a queue with an index.

A given id is any text. No file name can both be found by it and sort by priority and time, so the
message has a name of ours, and ``ids/<queue>/<link>``, made of the given id, is a second name of
its file. The first two lines of the header block contain both, so that each leads to the other.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple
from urllib.parse import quote, unquote

from ...errors import InvalidValue
from ..digests import sha256
from .message import GIVEN_ID

MAX_GIVEN_BYTES = 1024
GIVEN_NAME = "fsmq.name"
_MAX_LINK = 200
_SAFE = "@+~"
_plain = re.compile(r"[A-Za-z0-9_.~@+-]+")
_lines = re.compile(rb"fsmq\.id: ([!-~]+)\nfsmq\.name: ([!-~]+)\n")
# Enough for both lines, and for most small messages as a whole.
_FIRST_BYTES = 4096


class Given(NamedTuple):
    """The given id and the message's own name, from the header block."""

    id: str
    name: str


def check_given(given_id: str) -> str:
    """Return an id that a producer may give; raise InvalidValue otherwise."""
    if isinstance(given_id, str):
        try:
            size = len(given_id if given_id.isascii() else given_id.encode())
        except UnicodeEncodeError:
            size = 0
        if 0 < size <= MAX_GIVEN_BYTES:
            return given_id
    raise InvalidValue("id", f"must be text of 1 to {MAX_GIVEN_BYTES} bytes in UTF-8")


def escaped(given_id: str) -> str:
    """The id in printable ASCII, as the header block and links have it."""
    # Most ids need no escapes, and `quote` costs more than writing the message's name.
    if (given_id.isalnum() and given_id.isascii()) or _plain.fullmatch(given_id):
        return given_id
    return quote(given_id, safe=_SAFE)


def link_name(given_id: str) -> str:
    """The name of the link of a given id; for a long id its SHA-256."""
    name = escaped(given_id)
    if len(name) > _MAX_LINK:
        return "=" + sha256(given_id.encode()).hex()
    return "%2E" + name[1:] if name[0] == "." else name


def given_lines(given_id: str, name: str) -> bytes:
    """The lines with which the header block of a message begins."""
    return f"{GIVEN_ID}: {escaped(given_id)}\n{GIVEN_NAME}: {name}\n".encode()


def read_given(fd: int) -> Given | None:
    """The given id in an open message; None if it has none, or is not finished."""
    match = _lines.match(os.pread(fd, _FIRST_BYTES, 0))
    if match is None:
        return None
    return Given(unquote(match[1].decode()), match[2].decode())
