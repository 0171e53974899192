"""``fsmq top``: all queues, live."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import click

from fsmq.cli import output
from fsmq.cli.failures import Exit, Failure
from fsmq.cli.output import json_option, span
from fsmq.cli.params import SPAN
from fsmq.cli.place.place import at_option, open_place, report_delays
from fsmq.cli.queues.queues import as_dict
from fsmq.cli.queues.sampling import Row, Sampler
from fsmq.wire import moment
from fsmq.words import many

# Columns after the name, with their widths; at 80 columns 24 are left for the name.
_COLUMNS = (
    ("READY", 8),
    ("IN FLIGHT", 9),
    ("DELAYED", 8),
    ("NEW", 6),
    ("IN/s", 7),
    ("OUT/s", 7),
    ("OLDEST", 7),
)
_LEAST_NAME = 12
# The time between looks at the keyboard and the file events.
_TICK_S = 0.1

_SORTS: tuple[tuple[str, Callable[[Row], Any]], ...] = (
    ("name", lambda row: row.queue),
    ("ready", lambda row: -row.overview.counts.ready),
    ("in flight", lambda row: -row.overview.counts.in_flight),
    ("rate", lambda row: -((row.in_rate or 0) + (row.out_rate or 0))),
    ("oldest", lambda row: -(row.age or 0)),
)


@click.command("top")
@at_option
@click.option("--interval", "-d", type=SPAN, default=2.0, help="Time between samples.  [2 s]")
@click.option("--once", is_flag=True, help="Print one sample after one interval, and exit.")
@json_option
def top(at: str | None, interval: float, once: bool, as_json: bool) -> None:
    """Watch all queues: counts of messages, puts and removals.

    IN/s counts puts, OUT/s removals of any kind, since the last sample; OLDEST is the age of the
    oldest ready message. With millions of messages, samples are taken less often, so that counting
    takes at most a fifth of the time.

    \b
    q quits   s sorts by the next column   ↑ ↓ PgUp PgDn scroll

    With --json it prints a line for each sample, until Ctrl-C.

    \b
    Examples:
      fsmq top
      fsmq top --once --interval 200ms
    """
    if interval < _TICK_S:
        raise click.UsageError("--interval must be at least 100ms.")
    if not (once or as_json or sys.stdout.isatty()):
        raise click.UsageError("This is not a terminal: give --once or --json.")
    with open_place(at) as place:
        sampler = Sampler(place, interval)
        report_delays(place)
        if once or as_json:
            _print(sampler, place.where, once, as_json)
        else:
            _watch(sampler, place.where)


def _print(sampler: Sampler, where: str, once: bool, as_json: bool) -> None:
    while True:
        rows, due = sampler.sample()
        if once:
            _pause(sampler, due)
            rows, due = sampler.sample()
        if as_json:
            now = time.time()
            queues = [
                {
                    "queue": row.queue,
                    **as_dict(row.overview, now),
                    "in_per_second": row.in_rate,
                    "out_per_second": row.out_rate,
                }
                for row in rows
            ]
            unread = {"unreadable": sampler.unread} if sampler.unread else {}
            output.line({"at": where, "time": moment(now), "queues": queues, **unread})
        else:
            for line in _page(rows, where, 80, "name", sampler.unread):
                click.echo(line)
        if once:
            return
        _pause(sampler, due)


def _pause(sampler: Sampler, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _TICK_S))
        sampler.traffic.take_in()


def _watch(sampler: Sampler, where: str) -> None:
    try:
        import curses
    except ImportError:
        raise Failure("this Python has no curses", Exit.USAGE, "use --once or --json") from None
    os.environ.setdefault("ESCDELAY", "25")
    try:
        curses.wrapper(lambda screen: _Screen(curses, screen, sampler, where).run())
    except curses.error as error:
        advice = "set TERM to the type of this terminal, or use --once"
        raise Failure(f"this terminal cannot be used: {error}", Exit.USAGE, advice) from error


class _Screen:
    """The live view."""

    def __init__(self, curses: Any, screen: Any, sampler: Sampler, where: str) -> None:
        self._curses = curses
        self._screen = screen
        self._sampler = sampler
        self._where = where
        self._sort = 0
        self._first = 0
        self._rows: list[Row] = []

    def run(self) -> None:
        """Show samples until q."""
        try:
            self._curses.curs_set(0)
        except self._curses.error:
            pass  # not every terminal can hide its cursor
        self._screen.timeout(round(1000 * _TICK_S))
        due = 0.0
        while True:
            if time.monotonic() >= due:
                self._rows, pause = self._sampler.sample()
                due = time.monotonic() + pause
                self._draw()
            key = self._screen.getch()
            if key in (ord("q"), ord("Q")):
                return
            if key != -1:
                self._take(key)
                self._draw()
            else:
                self._sampler.traffic.take_in()

    def _take(self, key: int) -> None:
        curses, (height, _) = self._curses, self._screen.getmaxyx()
        steps = {
            curses.KEY_UP: -1,
            curses.KEY_DOWN: 1,
            curses.KEY_PPAGE: 4 - height,
            curses.KEY_NPAGE: height - 4,
        }
        if key in (ord("s"), ord("S")):
            self._sort = (self._sort + 1) % len(_SORTS)
            self._first = 0
        self._first = max(0, min(self._first + steps.get(key, 0), len(self._rows) - 1))

    def _draw(self) -> None:
        name, by = _SORTS[self._sort]
        height, width = self._screen.getmaxyx()
        rows = sorted(self._rows, key=by)
        unread = self._sampler.unread
        title, total, head, *lines = _page(rows, self._where, width - 1, name, unread)
        shown = lines[self._first : self._first + max(0, height - 4)]
        self._screen.erase()
        bold, reverse = self._curses.A_BOLD, self._curses.A_REVERSE
        self._put(0, title, bold)
        self._put(1, total, 0)
        self._put(2, head.ljust(width - 1), reverse)
        for number, line in enumerate(shown, 3):
            self._put(number, line, 0)
        rest = len(lines) - self._first - len(shown)
        keys = "q quit  s sort" + (f"  ↓ {rest} more" if rest > 0 else "")
        self._put(height - 1, keys, 0)
        self._screen.refresh()

    def _put(self, line: int, text: str, how: int) -> None:
        height, width = self._screen.getmaxyx()
        if 0 <= line < height and width > 1:
            self._screen.addnstr(line, 0, text, width - 1, how)


def _page(
    rows: Sequence[Row], where: str, width: int, sort: str, unread: Sequence[str]
) -> list[str]:
    """The lines of the view: title, totals, head, then one for each queue."""
    name_width = max(_LEAST_NAME, width - sum(w + 1 for _, w in _COLUMNS))
    counts = [row.overview.counts for row in rows]
    title = f"fsmq {where}"
    right = f"by {sort}  {time.strftime('%H:%M:%S')}"
    title = title[: max(0, width - len(right) - 1)].ljust(max(0, width - len(right))) + right
    total = (
        f"{many(len(rows), 'queue')}: {_short(sum(c.ready for c in counts))} ready,"
        f" {_short(sum(c.in_flight for c in counts))} in flight,"
        f" {_short(sum(c.delayed for c in counts))} delayed,"
        f" {_short(sum(c.new for c in counts))} new"
    )
    if paused := sum(1 for row in rows if row.overview.paused):
        total += f", {paused} paused"
    if unread:
        total += f"; cannot be read: {', '.join(unread)}"
    head = "QUEUE".ljust(name_width) + "".join(f" {name:>{w}}" for name, w in _COLUMNS)
    return [title, total, head.rstrip(), *(_line(row, name_width) for row in rows)]


def _line(row: Row, name_width: int) -> str:
    name = f"{row.queue} (paused)" if row.overview.paused else row.queue
    if len(name) > name_width:
        name = name[: name_width - 1] + "…"
    counts = row.overview.counts
    numbers = (counts.ready, counts.in_flight, counts.delayed, counts.new)
    cells = [*map(_short, numbers), _rate(row.in_rate), _rate(row.out_rate), span(row.age)]
    columns = zip(cells, _COLUMNS, strict=True)
    return name.ljust(name_width) + "".join(f" {cell:>{w}}" for cell, (_, w) in columns)


def _short(number: int) -> str:
    """A number in about seven characters."""
    if number < 1_000_000:
        return f"{number:,}"
    return f"{number / 1_000_000:.1f}M" if number < 1_000_000_000 else f"{number / 1e9:.1f}G"


def _rate(rate: float | None) -> str:
    if rate is None:
        return "-"
    return f"{rate:.1f}" if rate < 100 else f"{rate:,.0f}"
