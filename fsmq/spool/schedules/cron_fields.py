"""The fields of a crontab line, and the moments they name on a clock that is never set."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta

_ONE_DAY = timedelta(days=1)
_YEARS = 50
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_range = re.compile(r"([0-9]{1,2}|[A-Z]{3})-([0-9]{1,2}|[A-Z]{3})(?:/([0-9]{1,4}))?")


class _Kind:
    """What one of the six fields can name: numbers, and words for some of them."""

    def __init__(
        self, first: int, last: int, names: tuple[str, ...] = (), *, may_be_any: bool = False
    ) -> None:
        self._first = first
        self._count = last - first + 1
        self._numbers = {name: first + place for place, name in enumerate(names)}
        self._may_be_any = may_be_any

    def plain(self, field: str) -> str:
        """The same field without ranges that wrap around, and without ``?``."""
        if field == "?" and self._may_be_any:
            return "*"
        return ",".join(map(self._plain_term, field.split(",")))

    def _plain_term(self, term: str) -> str:
        found = _range.fullmatch(term)
        if found is None:
            return term
        begin, end = self._number(found[1]), self._number(found[2])
        step = int(found[3] or 1)
        if begin is None or end is None or begin <= end or not step:
            return term  # valid as it is, or invalid
        span = range(0, (end - begin) % self._count + 1, step)
        return ",".join(str(self._first + (begin + n - self._first) % self._count) for n in span)

    def _number(self, text: str) -> int | None:
        number = self._numbers.get(text)
        if number is None and text.isdecimal():
            number = int(text)
        inside = number is not None and self._first <= number < self._first + self._count
        return number if inside else None


_KINDS = (
    _Kind(0, 59),
    _Kind(0, 59),
    _Kind(0, 23),
    _Kind(1, 31, may_be_any=True),
    _Kind(1, 12, _MONTHS),
    _Kind(0, 6, _DAYS, may_be_any=True),
)


class Fields:
    """Six fields, or five, which imply the second 0.

    passes: whether the line goes by elapsed time, as its minute or hour begins with ``*``.
    """

    def __init__(self, line: str) -> None:
        """Raises ValueError, which tells what is wrong."""
        # Imported here: most programs have no schedules, and it loads slowly.
        from cronsim import CronSim, CronSimError

        fields = line.upper().split()
        fields = ["0", *fields] if len(fields) == len(_KINDS) - 1 else fields
        if len(fields) != len(_KINDS):
            raise ValueError("Wrong number of fields")
        plain = (kind.plain(field) for kind, field in zip(_KINDS, fields, strict=True))
        try:
            self._days = CronSim(" ".join(plain), datetime(2020, 1, 1))
        except (CronSimError, AssertionError, TypeError, RecursionError) as error:
            problem = str(error).removeprefix("Bad ")
            raise ValueError(f"the field {problem} is not valid") from None
        self._months: set[int] = self._days.months
        self._hours = sorted(self._days.hours)
        self._minutes = sorted(self._days.minutes)
        self._seconds = sorted(self._days.seconds)
        self.passes = fields[1].startswith("*") or fields[2].startswith("*")

    def following(self, moment: datetime) -> datetime | None:
        """The first moment after one; None if there is none for 50 years."""
        moment += timedelta(seconds=1)
        day = moment.date()
        found = self._time_from(moment) if self._names(day) else None
        if found is not None:
            return datetime.combine(day, found)
        last = day.year + _YEARS
        day += _ONE_DAY
        while not self._names(day):
            month = day.replace(day=1) if day.month not in self._months else None
            day = day + _ONE_DAY if month is None else (month + 31 * _ONE_DAY).replace(day=1)
            if day.year > last:
                return None
        return datetime.combine(day, time(self._hours[0], self._minutes[0], self._seconds[0]))

    def _names(self, day: date) -> bool:
        return day.month in self._months and self._days.match_day(day)

    def _time_from(self, begin: datetime) -> time | None:
        """The first time of a day that is not before ``begin``."""
        hour, minute, second = begin.hour, begin.minute, begin.second
        if hour in self._hours:
            later = _first(self._seconds, second)
            if minute in self._minutes and later is not None:
                return time(hour, minute, later)
            later = _first(self._minutes, minute + 1)
            if later is not None:
                return time(hour, later, self._seconds[0])
        later = _first(self._hours, hour + 1)
        return None if later is None else time(later, self._minutes[0], self._seconds[0])


def _first(numbers: list[int], least: int) -> int | None:
    return next((number for number in numbers if number >= least), None)
