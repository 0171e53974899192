"""References of moves: the 16 bytes of a UUID and the name of EmoDB's job, in base32."""

from __future__ import annotations

import base64
import binascii
from uuid import UUID

from .errors import IllegalArgument

_JOBS = {False: b"move-queue", True: b"move-dedup-queue"}
_UUID_BYTES = 16


def encode(ref: str, is_dedup: bool) -> str:
    """The reference of a move of one of the two services."""
    return base64.b32encode(UUID(ref).bytes + _JOBS[is_dedup]).decode().rstrip("=")


def decode(reference: str, is_dedup: bool) -> str | None:
    """The spool's reference; None for one that cannot be this service's.

    Raises:
        IllegalArgument: it is a truncated reference.
    """
    try:
        raw = base64.b32decode(reference + "=" * (-len(reference) % 8))
    except (binascii.Error, ValueError):
        return None
    if len(raw) < _UUID_BYTES:
        raise IllegalArgument(f"Invalid move reference: {reference[:100]!r} is too short")
    if raw[_UUID_BYTES:] != _JOBS[is_dedup]:
        return None
    return str(UUID(bytes=raw[:_UUID_BYTES]))
