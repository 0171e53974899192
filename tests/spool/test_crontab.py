"""Crontab lines of five and six fields, in every time zone, also when its clock changes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsmq.spool import InvalidValue
from fsmq.spool.schedules.crontab import Crontab

# Changes of clocks: by an hour and by half an hour, in both directions, at midnight, and by a day.
CHANGES = [
    ("Europe/Berlin", (2026, 10, 25, 1)),
    ("Europe/Berlin", (2027, 3, 28, 1)),
    ("Australia/Lord_Howe", (2026, 4, 4, 15)),
    ("Australia/Lord_Howe", (2026, 10, 3, 15, 30)),
    ("America/New_York", (2026, 3, 8, 7)),
    ("America/New_York", (2026, 11, 1, 6)),
    ("Africa/Cairo", (2026, 4, 23, 22)),
    ("Africa/Cairo", (2026, 10, 29, 21)),
    ("America/Havana", (2026, 11, 1, 5)),
    ("Pacific/Apia", (2011, 12, 30, 10)),
    ("Asia/Kathmandu", (2026, 6, 1, 12)),
    ("UTC", (2026, 3, 29, 1)),
]
WINDOW_S = 4 * 3600


def at(*of: int) -> int:
    return int(datetime(*of, tzinfo=UTC).timestamp())  # type: ignore[arg-type,misc]


def shown(zone: str, moment: int) -> datetime:
    return datetime.fromtimestamp(moment, ZoneInfo(zone)).replace(tzinfo=None)


def matcher(field: str) -> Callable[[int], bool]:
    """Whether a number is in a simple field, by a second reader of such fields."""
    if field.startswith("*"):
        step = int(field[2:] or 1)
        return lambda number: number % step == 0
    numbers = set(map(int, field.split(",")))
    return lambda number: number in numbers


def expected(line: str, zone: str, begin: int, end: int) -> list[int]:
    """The times of a line, by checking each second."""
    fields = line.split()
    second, minute, hour = map(matcher, ["0", *fields][-6:-3])
    passes = "*" in fields[-5] + fields[-4]

    def fits(moment: datetime) -> bool:
        return second(moment.second) and minute(moment.minute) and hour(moment.hour)

    found = []
    latest = shown(zone, begin)
    for moment in range(begin + 1, end):
        now = shown(zone, moment)
        if passes:
            if fits(now):
                found.append(moment)
        elif now > latest:
            # This second, and those that the clock skipped: one message for all of them.
            skipped = range(int((now - latest).total_seconds()))
            if any(fits(now - timedelta(seconds=before)) for before in skipped):
                found.append(moment)
        latest = max(latest, now)
    return found


def found(line: str, zone: str, begin: int, end: int) -> list[int]:
    return list(takewhile(lambda one: one < end, Crontab(line, zone).after(begin)))


seconds = st.sampled_from(["0", "15", "59", "*/30", "5,50", "*/20"])
minutes = st.sampled_from(["0", "30", "59", "0,30", "15,45", "*/15", "*", "*/7"])
hours = st.sampled_from(["0", "1", "2", "3", "1,2", "2,3", "0,1,2,3", "*", "*/2", "23,0,1"])


@pytest.mark.slow
@given(where=st.sampled_from(CHANGES), second=seconds, minute=minutes, hour=hours)
def test_each_line_has_the_times_that_the_clock_shows(
    where: tuple[str, tuple[int, ...]], second: str, minute: str, hour: str
) -> None:
    zone, moment = where
    begin, end = at(*moment) - WINDOW_S // 2, at(*moment) + WINDOW_S // 2
    five, six = f"{minute} {hour} * * *", f"{second} {minute} {hour} * * *"
    assert found(six, zone, begin, end) == expected(six, zone, begin, end)
    assert found(five, zone, begin, end) == found(f"0 {five}", zone, begin, end)
    assert found(five, zone, begin, end) == expected(five, zone, begin, end)


@pytest.mark.parametrize(
    ("line", "zone", "begin", "moments"),
    [
        ("0 30 2 * * *", "Europe/Berlin", (2026, 10, 24, 12), ["25 00:30:00", "26 01:30:00"]),
        ("0 30 2 * * *", "Europe/Berlin", (2027, 3, 27, 12), ["28 01:00:00", "29 00:30:00"]),
        ("15 30 2 * * *", "Europe/Berlin", (2027, 3, 27, 12), ["28 01:00:00", "29 00:30:15"]),
        ("*/30 30 2 * * *", "Europe/Berlin", (2026, 10, 25, 0), ["25 00:30:00", "25 00:30:30"]),
        # The clock skips from 2:00 to 2:30: a field that begins with a star misses nothing.
        (
            "*/15 3 * * *",
            "Australia/Lord_Howe",
            (2026, 10, 3, 14),
            ["03 16:00:00", "03 16:15:00", "03 16:30:00", "03 16:45:00"],
        ),
        # Friday to Monday, over the end of the week; 22 to 2, over midnight.
        ("0 0 * * FRI-MON", "UTC", (2026, 6, 2), ["05 00:00:00", "06 00:00:00", "07 00:00:00"]),
        ("0 22-1 * * *", "UTC", (2026, 6, 1, 20), ["01 22:00:00", "01 23:00:00", "02 00:00:00"]),
        ("0 20-4/3 * * *", "UTC", (2026, 6, 1, 12), ["01 20:00:00", "01 23:00:00", "02 02:00:00"]),
        ("0 0 1 NOV-FEB *", "UTC", (2026, 6, 1), ["01 00:00:00"] * 4),
        ("50-10/10 * * * *", "UTC", (2026, 6, 1), ["01 00:10:00", "01 00:50:00", "01 01:00:00"]),
        ("0 12 ? * MON", "UTC", (2026, 6, 2), ["08 12:00:00", "15 12:00:00"]),
        ("0 12 15 * ?", "UTC", (2026, 6, 2), ["15 12:00:00", "15 12:00:00"]),
        ("0 0 L * *", "UTC", (2026, 2, 1), ["28 00:00:00", "31 00:00:00"]),
        ("0 0 LW * *", "UTC", (2026, 2, 1), ["27 00:00:00", "31 00:00:00"]),
        ("0 0 * * FRI#2", "UTC", (2026, 6, 1), ["12 00:00:00"]),
        ("0 0 * * 5L", "UTC", (2026, 6, 1), ["26 00:00:00"]),
        ("@every 5m", "Europe/Berlin", (2026, 6, 1, 0, 2), ["01 00:05:00", "01 00:10:00"]),
        ("@EVERY 1h30m", "UTC", (2026, 6, 1), ["01 01:30:00", "01 03:00:00"]),
        ("@every 90s", "UTC", (2026, 6, 1), ["01 00:01:30", "01 00:03:00"]),
    ],
)
def test_times_of_a_line(line: str, zone: str, begin: tuple[int, ...], moments: list[str]) -> None:
    next_ones = islice(Crontab(line, zone).after(at(*begin)), len(moments))
    assert [datetime.fromtimestamp(m, UTC).strftime("%d %H:%M:%S") for m in next_ones] == moments


@pytest.mark.parametrize(
    "line",
    [
        "",
        "* * * *",
        "* * * * * * *",
        "60 * * * *",
        "* 24-2 * * *",
        "* * * * MON-FOO",
        "? * * * *",
        "* * 15W * *",
        "* 22-2/0 * * *",
        "@every",
        "@every 5",
        "@every 0s",
        "@every 367d",
        "@every 1h 30m",
        "@reboot",
        "* * 32-2 * *",
        "0 0 30 2 * x",
    ],
)
def test_a_malformed_line_is_refused(line: str) -> None:
    with pytest.raises(InvalidValue, match="five fields"):
        Crontab(line)


def test_a_line_that_never_matches_ends() -> None:
    for line in ("0 0 30 2 *", "*/5 * 31 4 *"):
        try:
            assert list(Crontab(line, "Europe/Berlin").after(at(2026, 6, 1))) == []
        except InvalidValue:
            continue  # it may be refused at once
