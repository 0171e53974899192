"""Places in a log, as values and as texts."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from fsmq.units import seconds

from ..errors import InvalidValue
from ..layout.settings import check_number

From = int | datetime | str
"""Where to begin: an offset, a datetime with a time zone, "first" or "last"."""
_ENDS = ("first", "last")
_MOST_DIGITS = 18
# The + of a time zone, as a blank in an address.
_lost_plus = re.compile(r" (\d\d:?\d\d)$")


def check_place(place: From) -> From:
    """Return a place in a log; raise InvalidValue if it is none."""
    if isinstance(place, datetime):
        if place.tzinfo is None:
            raise InvalidValue("from", "is a datetime without a time zone: give it one")
    elif isinstance(place, str):
        if place not in _ENDS:
            raise InvalidValue("from", f"unknown place {place!r}; expected: first, last")
    else:
        check_number("from", place, 0, 10**_MOST_DIGITS)
    return place


def place_in(name: str, text: str) -> From:
    """The place that a text such as ``17``, ``last`` or ``2h ago`` denotes.

    Raises InvalidValue for the field ``name``.
    """
    if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS:
        return int(text)
    if text in _ENDS:
        return text
    moment = None
    span = text.removesuffix(" ago")
    with suppress(ValueError, OverflowError):
        if span != text:
            moment = datetime.now(UTC) - timedelta(seconds=seconds(span))
        else:
            moment = datetime.fromisoformat(_lost_plus.sub(r"+\1", text))
    if moment is None or moment.tzinfo is None:
        raise InvalidValue(
            name,
            f"{text[:50]!r} is unknown; expected an offset, first, last,"
            " or a moment such as 2030-01-31T12:00:00Z or 2h ago",
        )
    return moment
