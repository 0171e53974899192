"""The charts of a report: SVG whose colours the page chooses, so that they fit light and dark."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from fsmq.pipeline.report.figures import Figures, Queue
from fsmq.pipeline.report.words import number, share, span

# Drawn in these, which no one would choose; the page says what each is in light and in dark.
_INK, _FAINT, _GROUND = "#010101", "#020202", "#030303"
_SERIES = [f"#0{n}0{n}ff" for n in range(1, 9)]
_VARIABLES = {_INK: "ink", _FAINT: "faint", _GROUND: "ground"} | {
    color: f"c{n}" for n, color in enumerate(_SERIES, 1)
}
BLUE, ORANGE, GREEN, RED, PURPLE, TEAL, YELLOW, GREY = _SERIES
_NICE_S = (0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 36_000, 86_400, 864_000, 8_640_000)
_STYLE = {
    "svg.fonttype": "none",  # text stays text: it can be searched, and the page chooses its font
    "font.family": "sans-serif",
    "font.size": 11,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _FAINT,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "xtick.color": _INK,
    "ytick.color": _INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.major.pad": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": _FAINT,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 11,
    "lines.linewidth": 1.9,
    "lines.solid_joinstyle": "round",
}
_WIDE = (10.4, 3.0)
_SLOWEST = 10


def throughput(figures: Figures) -> str:
    """Messages that came and that were done, per minute."""
    with _chart("throughput", _WIDE) as (figure, axes):
        per_minute = [
            [value / figures.interval_min for value in figures.sums[name]]
            for name in ("accepted", "removed")
        ]
        axes.fill_between(_times(figures), per_minute[0], color=BLUE, alpha=0.15, linewidth=0)
        axes.plot(_times(figures), per_minute[0], color=BLUE, label="came in")
        axes.plot(_times(figures), per_minute[1], color=GREEN, label="done", linewidth=1.5)
        _over_time(axes, figures, "messages a minute")
        _legend(axes, 2)
    return figure.svg


def depth(figures: Figures) -> str:
    """How many messages each queue held."""
    with _chart("depth", _WIDE) as (figure, axes):
        names = list(figures.depth)
        if names:
            axes.stackplot(
                _times(figures),
                [figures.depth[name] for name in names],
                labels=names,
                colors=_SERIES,
                alpha=0.8,
                step="mid" if len(figures.times) < 4 else None,
            )
            _legend(axes, len(names))
        _over_time(axes, figures, "messages there")
    return figure.svg


def latency(figures: Figures, what: str) -> str:
    """The wait, or the processing, that 50, 95 and 99 of a hundred messages did not exceed."""
    with _chart(what, (5.1, 3.1)) as (figure, axes):
        found = figures.wait if what == "wait" else figures.processing
        for place, color, label in ((2, RED, "99 %"), (1, ORANGE, "95 %"), (0, BLUE, "half")):
            values = [three[place] for three in found]
            _line(axes, figures, values, color, label)
        _over_time(axes, figures, "")
        _spans(axes, "y", [v for three in found for v in three if v is not None])
        _legend(axes, 3)
    return figure.svg


def repeats(figures: Figures) -> str:
    """Which share of the claims was not a message's first."""
    with _chart("repeats", (5.1, 2.7)) as (figure, axes):
        claimed, repeated = figures.sums["claimed"], figures.sums["repeated"]
        shares = [r / c if c else 0.0 for r, c in zip(repeated, claimed, strict=True)]
        _bars(axes, figures, [(shares, ORANGE, None)])
        _over_time(axes, figures, "")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: share(value)))
    return figure.svg


def ends(figures: Figures) -> str:
    """Messages that left undone and are gone: expired, purged."""
    with _chart("ends", (5.1, 2.7)) as (figure, axes):
        series = [
            (figures.sums["expired"], YELLOW, "expired"),
            (figures.sums["purged"], GREY, "purged"),
        ]
        _bars(axes, figures, series)
        _over_time(axes, figures, "")
        _legend(axes, 2)
    return figure.svg


def dead_letters(figures: Figures) -> str:
    """Messages that were put aside."""
    with _chart("dead-letters", (10.4, 1.7)) as (figure, axes):
        _bars(axes, figures, [(figures.sums["buried"], RED, None)])
        _over_time(axes, figures, "came in")
    return figure.svg


def slowest(figures: Figures, what: str) -> str:
    """The slowest queues: from the time of half of their messages to that of 95 of a hundred."""
    queues = [queue for queue in figures.queues if _three(queue, what)[1] is not None]
    queues = sorted(queues, key=lambda queue: _three(queue, what)[1] or 0.0)[-_SLOWEST:]
    with _chart(f"slowest-{what}", (5.1, 0.9 + 0.33 * max(1, len(queues)))) as (figure, axes):
        middle = [max(_three(queue, what)[0] or 0.0, 0.0005) for queue in queues]
        most = [max(_three(queue, what)[1] or 0.0, 0.0005) for queue in queues]
        places = range(len(queues))
        axes.hlines(places, middle, most, color=PURPLE, linewidth=7, alpha=0.35, capstyle="round")
        axes.plot(middle, places, "o", color=BLUE, markersize=6, label="half")
        axes.plot(most, places, "o", color=ORANGE, markersize=6, label="95 %")
        axes.set_yticks(places, [_shortened(queue.name) for queue in queues])
        axes.set_ylim(-0.7, len(queues) - 0.3)
        axes.grid(axis="x")
        axes.grid(visible=False, axis="y")
        _spans(axes, "x", middle + most)
        _legend(axes, 2)
    return figure.svg


class _Drawn:
    svg = ""


@contextmanager
def _chart(name: str, size: tuple[float, float]) -> Iterator[tuple[_Drawn, Axes]]:
    drawn = _Drawn()
    with mpl.rc_context(_STYLE | {"svg.hashsalt": name}):
        figure = Figure(size, layout="constrained")
        yield drawn, figure.add_subplot()
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
    drawn.svg = _for_page(text.getvalue(), name)


def _for_page(svg: str, name: str) -> str:
    """Inline SVG: no prologue, ids of its own, colours and fonts from the page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r"font-family: [^;]*;", "", svg)
    svg = re.sub(r'(<svg [^>]*?) width="[^"]*"', r"\1", re.sub(r' height="\d[^"]*pt"', "", svg))
    for color, variable in _VARIABLES.items():
        svg = svg.replace(color, f"var(--{variable})")
    return svg


def _times(figures: Figures) -> Any:
    return date2num([time.replace(tzinfo=None) for time in figures.times])


def _over_time(axes: Axes, figures: Figures, label: str) -> None:
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.margins(x=0.01)
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=bool(label)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    locator = AutoDateLocator(minticks=3, maxticks=8)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, show_offset=False))


def _legend(axes: Axes, columns: int) -> None:
    """Above the chart, where nothing is drawn."""
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=columns,
        borderaxespad=0.2,
        handlelength=1.2,
        columnspacing=1.4,
    )


def _line(
    axes: Axes, figures: Figures, values: Sequence[float | None], color: str, label: str
) -> None:
    gaps = [float("nan") if value is None else max(value, 0.0005) for value in values]
    # A lone interval between two gaps has no line, so it gets a dot.
    axes.plot(_times(figures), gaps, color=color, label=label, marker="o", markersize=1.8)


def _bars(
    axes: Axes, figures: Figures, series: Sequence[tuple[Sequence[float], str, str | None]]
) -> None:
    below = [0.0] * len(figures.times)
    width = figures.interval_min / 1440
    for values, color, label in series:
        axes.bar(_times(figures), values, width, below, color=color, label=label, align="edge")
        below = [under + value for under, value in zip(below, values, strict=True)]


def _spans(axes: Axes, which: str, values: Sequence[float]) -> None:
    """Let an axis be one of times, from milliseconds to weeks."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = (min(values), max(values)) if values else (0.01, 10.0)
    low, high = max(low, 0.0005) * 0.6, max(high, 0.001) * 2.2
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    (axes.set_xlim if which == "x" else axes.set_ylim)(low, high)
    axis.set_major_locator(FixedLocator([nice for nice in _NICE_S if low <= nice <= high]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: span(value)))


def _three(queue: Queue, what: str) -> tuple[float | None, ...]:
    return queue.wait if what == "wait" else queue.processing


def _shortened(name: str) -> str:
    return name if len(name) <= 22 else f"{name[:21]}…"
