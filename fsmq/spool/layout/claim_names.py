"""The names of claims, derived from stamps, so that nothing else has to be stored.

A name is the count and the last two digits of the deadline: ``c5-47``. A renewal keeps both.
Another claim of the same message has another count or, where that is impossible, other digits.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..errors import InvalidValue
from .stamps import Stamp, Stamps

_DIGITS = 100
PATTERN = r"c(0|[1-9][0-9]?)-[0-9]{2}"
_NAME = re.compile(PATTERN)


class _Any(str):
    """No text from a client is an instance of this."""


# Stands for any claim. Not for clients, which may only name their own.
ANY = _Any("*")
# Where the filesystem keeps no count, claims cannot be told apart.
_UNTOLD = "c0-00"


class Renewal(NamedTuple):
    """The result of a renewal: the new deadline in Unix seconds, and the name of the claim.

    claim: None if a delay was renewed.
    """

    deadline: float
    claim: str | None


def claim_name(stamps: Stamps, deliveries: int, deadline_ms: int) -> str:
    """The name of a claim with this count and this deadline."""
    return _UNTOLD if stamps.coarse else f"c{deliveries}-{deadline_ms % _DIGITS:02d}"


def claim_seen(deliveries: int | None, deadline: float) -> str:
    """The name of the claim of a message that was looked at, in flight; deadline: Unix seconds."""
    return (
        _UNTOLD if deliveries is None else f"c{deliveries}-{round(deadline * 1000) % _DIGITS:02d}"
    )


def check_claim(name: str, field: str = "claim") -> str:
    """Return a name; raise InvalidValue if no claim can have it."""
    if not _NAME.fullmatch(name):
        raise InvalidValue(field, f"{name[:50]!r} is no claim; expected a name like c1-47")
    return name


def check_named(claim: str | None) -> None:
    """Check the name of a claim, if one is given. Raises InvalidValue."""
    if claim is not None and claim is not ANY:
        check_claim(claim)


def is_claimed(stamps: Stamps, message_id: str, mtime_ns: int, claim: str = ANY) -> bool:
    """Whether a message in ``delay/`` with this mtime is in this claim."""
    stamp = stamps.decode(message_id, mtime_ns)
    if stamp is None or not stamp.is_claim:
        return False
    # Where times are coarse no count is known: every claim matches, even a delay.
    if claim == ANY or stamp.deliveries is None:
        return True
    return claim_name(stamps, stamp.deliveries, stamp.deadline_ms) == claim


def was_last(stamps: Stamps, stamp: Stamp, claim: str) -> bool:
    """Whether a message with this stamp was in this claim, and in no other since."""
    return claim_name(stamps, stamp.deliveries or 0, stamp.deadline_ms) == claim


def of_next_claim(before: Stamp | None, deliveries: int, deadline_ms: int) -> int:
    """The deadline of a new claim with this count. before: the current stamp.

    A millisecond later if the claim would get the name of the previous one.
    """
    if before is None or before.deliveries is None:
        return deadline_ms
    if before.deliveries != deliveries and before.deadline_ms >= _DIGITS:
        return deadline_ms
    return deadline_ms + (before.deadline_ms % _DIGITS == deadline_ms % _DIGITS)


def of_same_claim(before: Stamp | None, deadline_ms: int) -> int:
    """The deadline of a renewal: at most 99 ms later, with the digits of the claim."""
    if before is None or not before.deliveries:
        return deadline_ms
    return deadline_ms + (before.deadline_ms - deadline_ms) % _DIGITS


def of_ended_claim(before: Stamp | None, now_ms: int) -> int:
    """The deadline of a message whose claim ends, leaving another count than the claim's.

    It keeps only the digits of the claim, in 1970, so that the next claim can avoid them.
    """
    if before is None or not before.deliveries:
        return now_ms
    return before.deadline_ms % _DIGITS
