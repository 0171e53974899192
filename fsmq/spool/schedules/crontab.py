"""Crontab lines: the moments that a line names, in a time zone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..errors import InvalidValue
from .cron_fields import Fields
from .zone_clock import ZoneClock

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
    f" in front, @every with a time such as 5m, or one of: {', '.join(_ALIASES)}"
)
_every = re.compile(r"@every ((?:[0-9]{1,9}[smhd])+)", re.ASCII)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LONGEST_S = 366 * 86_400
# Errors for moments beyond the calendar.
_NEVER = (OverflowError, ValueError)


class Crontab:
    """A line in a time zone. All moments are Unix seconds, and whole.

    When clocks are set, it does what Debian's cron does: a moment that is skipped in spring comes
    when the gap ends, and one that occurs twice in autumn comes once; lines whose minute or hour
    begins with ``*`` go by elapsed time. ``@every`` counts from 1970, the same for all processes.
    """

    def __init__(self, line: str, zone: str = "UTC") -> None:
        """Raises InvalidValue for ``cron`` or ``timezone``."""
        self._clock = ZoneClock(zone)
        plain = " ".join(line.split())
        if not plain or len(line) > MAX_LINE:
            raise InvalidValue("cron", _EXPECTED)
        try:
            self._every = _seconds(plain)
            if plain.lower() == "@reboot":
                raise ValueError("@reboot is not supported")
            self._fields = Fields(
                "* * * * *" if self._every else _ALIASES.get(plain.lower(), plain)
            )
        except ValueError as error:
            raise InvalidValue("cron", f"{line[:MAX_LINE]!r}: {error}; {_EXPECTED}") from None

    def after(self, moment: float) -> Iterator[int]:
        """The moments after one, in order; it ends when there is none for 50 years."""
        last = int(moment // 1)
        if self._every:
            found = self._by_steps(last)
        else:
            found = self._as_time_passes(last) if self._fields.passes else self._as_shown(last)
        try:
            yield from found
        except _NEVER:
            return

    def _by_steps(self, last: int) -> Iterator[int]:
        while True:
            last += self._every - last % self._every
            self._clock.shows(last)  # raises at the end of the calendar
            yield last

    def _as_shown(self, last: int) -> Iterator[int]:
        """The moments at which the clock first shows what the fields name."""
        shown = self._fields.following(self._clock.shows(last))
        while shown is not None:
            at = self._clock.moment(shown)
            # All moments that a gap skips come once, at its end; a repeated time comes only once.
            if at > last:
                last = at
                yield at
            shown = self._fields.following(shown)

    def _as_time_passes(self, last: int) -> Iterator[int]:
        """All moments at which the clock shows what the fields name."""
        while True:
            offset = self._clock.offset(last + 1)
            shown = self._fields.following(self._clock.shows(last, offset))
            if shown is None:
                return
            at = last + int((shown - self._clock.shows(last, offset)).total_seconds())
            is_set = self._clock.set_between(last + 1, at, offset)
            if is_set is None:
                yield at
            # When the clock is set, it shows something else from then on.
            last = at if is_set is None else is_set - 1

    def next(self, moment: float) -> int | None:
        """The first one after a moment; None if there is none for 50 years."""
        return next(self.after(moment), None)

    def last(self, after: float, until: float) -> int | None:
        """The last one that is after ``after`` and not after ``until``; None if there is none."""
        low, high = int(after // 1), int(until // 1)
        found = self.next(low)
        if found is None or found > high:
            return None
        # By bisection: there may be millions in between.
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


def _seconds(line: str) -> int:
    """The seconds of ``@every`` and a time; 0 for any other line. Raises ValueError."""
    found = _every.fullmatch(line.lower())
    if found is None:
        return 0
    parts = re.findall(r"([0-9]+)([smhd])", found[1])
    seconds = sum(int(number) * _UNITS[unit] for number, unit in parts)
    if not 1 <= seconds <= _LONGEST_S:
        raise ValueError("the time is from 1s to 366d")
    return seconds
