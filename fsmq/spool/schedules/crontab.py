"""Crontab lines: the moments that one names, in a time zone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from functools import lru_cache, partial

from ..errors import InvalidValue

MAX_LINE = 200
_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_EXPECTED = (
    "expected five fields (minute, hour, day of month, month, day of week), six with the second"
    f" in front, or one of: {', '.join(_ALIASES)}"
)
# Of no moment within the 50 years that are searched, or beyond the calendar.
_NEVER = (StopIteration, OverflowError, ValueError)


class Crontab:
    """A line in a time zone. All moments are Unix seconds, and whole.

    Where clocks are set, it does what Debian's cron does: a moment that is skipped in spring comes
    when the gap ends, and one that is there twice in autumn comes once; lines whose minute or hour
    begins with ``*`` go by the time that really passes.
    """

    def __init__(self, line: str, zone: str = "UTC") -> None:
        """Raises InvalidValue, of ``cron`` or ``timezone``."""
        # Only here: most programs have no schedules, and it takes its time to load.
        from cronsim import CronSim, CronSimError

        self._line = " ".join(_ALIASES.get(line.strip().lower(), line).split())
        self._zone = _zone(zone)
        if not self._line or len(line) > MAX_LINE:
            raise InvalidValue("cron", _EXPECTED)
        try:
            self._from = partial(CronSim, self._line)
            self._from(datetime(2020, 1, 1, tzinfo=self._zone))
        except (CronSimError, AssertionError, ValueError, TypeError, RecursionError) as error:
            said = str(error).removeprefix("Bad ")
            about = said if said == "Wrong number of fields" else f"the field {said} is not valid"
            raise InvalidValue("cron", f"{line[:MAX_LINE]!r}: {about}; {_EXPECTED}") from None

    def after(self, moment: float) -> Iterator[int]:
        """The moments behind one, in order; it ends where there is none for 50 years."""
        last = int(moment // 1)
        try:
            found = self._from(datetime.fromtimestamp(last, UTC).astimezone(self._zone))
            for one in found:
                at = int(one.timestamp())
                # In the hour that is there twice it begins again with those of the first time, and
                # all that a gap has skipped come at its end.
                if at > last:
                    last = at
                    yield at
        except _NEVER:
            return

    def next(self, moment: float) -> int | None:
        """The first one behind a moment; None if there is none for 50 years."""
        return next(self.after(moment), None)

    def last(self, after: float, until: float) -> int | None:
        """The last one that is behind ``after`` and not behind ``until``; None if there is none."""
        low, high = int(after // 1), int(until // 1)
        found = self.next(low)
        if found is None or found > high:
            return None
        # By halves: there may be millions in between.
        while True:
            low = found
            while high > low:
                middle = (low + high) // 2
                later = self.next(middle)
                if later is not None and later <= until:
                    found = later
                    break
                high = middle
            else:
                return found


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
