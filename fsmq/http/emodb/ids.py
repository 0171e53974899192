"""Ids as EmoDB's clients see them: bound to their queue, so that an id of another one is an error.

An id is the message's name and a checksum of four bytes over queue and name, in lower-case hex. A
UUIDv7 without prefix and flags, which is what a send makes, is packed into its 16 bytes, so its id
has 40 digits as in EmoDB; any other name follows a zero byte, with which no such UUID begins.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Sequence
from uuid import UUID

from fsmq.spool.checks import MAX_FILE_NAME_BYTES, is_id
from fsmq.spool.on_disk import UUID7

from .errors import IllegalArgument

_uuid7 = re.compile(UUID7)
_hex = re.compile(r"(?:[0-9a-fA-F]{2})+")
_CHECK_BYTES = 4
_MAX_DIGITS = 2 * (1 + MAX_FILE_NAME_BYTES + _CHECK_BYTES)


def encode(queue: str, message_id: str) -> str:
    """A message's id for clients, from the spool's queue and id."""
    packed = _pack(message_id)
    return (packed + _check(queue, packed)).hex()


def decode(queue: str, text: object) -> str:
    """The message's id in the spool.

    Raises:
        IllegalArgument: it is not an id, or one of another queue.
    """
    if not isinstance(text, str) or len(text) > _MAX_DIGITS or not _hex.fullmatch(text):
        raise IllegalArgument(f"Invalid message ID: {str(text)[:100]!r} is not hexadecimal")
    raw = bytes.fromhex(text)
    packed, check = raw[:-_CHECK_BYTES], raw[-_CHECK_BYTES:]
    message_id = _unpack(packed)
    if message_id is None or check != _check(queue, packed):
        raise IllegalArgument(f"Invalid message ID: {text[:100]!r} is of another queue, or damaged")
    return message_id


def decode_all(queue: str, text: Sequence[object]) -> list[str]:
    """The same for many. Raises IllegalArgument for the first invalid one."""
    return [decode(queue, one) for one in text]


def _pack(message_id: str) -> bytes:
    if _uuid7.fullmatch(message_id) and message_id[:2] != "00":
        return bytes.fromhex(message_id.replace("-", ""))
    return b"\0" + os.fsencode(message_id)


def _unpack(packed: bytes) -> str | None:
    if packed[:1] == b"\0":
        message_id = os.fsdecode(packed[1:])
        return message_id if is_id(message_id) else None
    return str(UUID(bytes=packed)) if len(packed) == 16 else None


def _check(queue: str, packed: bytes) -> bytes:
    return zlib.crc32(packed + queue.encode()).to_bytes(_CHECK_BYTES, "big")
