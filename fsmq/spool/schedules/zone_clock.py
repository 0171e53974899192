"""The clock of a time zone: what it shows, and when it is set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

from ..errors import InvalidValue

_EPOCH = datetime(1970, 1, 1)
_DAY_S = 86_400


class ZoneClock:
    """The clock of a time zone. Moments are whole Unix seconds; shown times have no zone."""

    def __init__(self, name: str) -> None:
        """Raises InvalidValue."""
        self._zone = _zone(name)

    def shows(self, moment: int, offset: int | None = None) -> datetime:
        """What it shows; ``offset``: as if it were that many seconds ahead of UTC."""
        offset = self.offset(moment) if offset is None else offset
        return _EPOCH + timedelta(seconds=moment + offset)

    def offset(self, moment: int) -> int:
        """How many seconds it is ahead of UTC."""
        found = datetime.fromtimestamp(moment, self._zone).utcoffset()
        return 0 if found is None else found.days * _DAY_S + found.seconds

    def set_between(self, after: int, until: int, offset: int) -> int | None:
        """The first moment after ``after``, up to ``until``, with another offset.

        No zone sets its clock twice within a day.
        """
        if self._zone is UTC:
            return None
        while after < until:
            end = min(after + _DAY_S, until)
            if self.offset(end) != offset:
                break
            after = end
        else:
            return None
        while end - after > 1:
            middle = (after + end) // 2
            after, end = (middle, end) if self.offset(middle) == offset else (after, middle)
        return end

    def moment(self, shown: datetime) -> int:
        """When it first shows this; if it is skipped, when the clock is set."""
        at = int(shown.replace(tzinfo=self._zone).timestamp())
        if self.shows(at) == shown:
            return at
        # With the offset before the gap this is after its end; with the other, before its start.
        before = int(shown.replace(tzinfo=self._zone, fold=1).timestamp())
        end = self.set_between(before, at, self.offset(before))
        return at if end is None else end


@lru_cache(256)
def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        raise InvalidValue(
            "timezone", f"{name[:100]!r} is unknown; expected a name such as Europe/Berlin, or UTC"
        ) from None
