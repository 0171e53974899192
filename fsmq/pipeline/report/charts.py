"""The charts of a report: SVG whose colours the page chooses, so that they fit light and dark."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from fsmq.pipeline.report.figures import Figures
from fsmq.words import duration, head, number

# Placeholder colours; the page defines each for light and for dark.
_SERIES = [f"#0{n}0{n}ff" for n in range(1, 9)]
_BLUE, _ORANGE, _GREEN, _RED, _PURPLE, _, _YELLOW, _GREY = _SERIES
_VARIABLES = {"#010101": "ink", "#020202": "faint"} | {c: f"c{n}" for n, c in enumerate(_SERIES, 1)}
_STYLE = {
    "svg.fonttype": "none",  # text stays text: it can be searched, and the page chooses its font
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), "#010101"),
    **dict.fromkeys(("axes.edgecolor", "grid.color"), "#020202"),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "axes.spines.left"), False),
    **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
    "legend.frameon": False,
}
_NICE_S = (0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 36_000, 86_400, 864_000, 8_640_000)
_LEAST_S = 0.0005
_FULL, _HALF = (10.4, 3.0), (5.1, 3.0)


def draw(figures: Figures) -> dict[str, str]:
    """Each chart as an SVG element, by name."""
    charts: dict[str, str] = {}
    steps = figures.steps.rename(columns=head)
    redelivered = 100 * steps[[head("redelivered")]].div(steps[head("received")].clip(1), axis=0)
    for name, size, unit, frame, colors in (
        ("depth", _FULL, "messages", figures.depth, _SERIES),
        ("redelivered", _HALF, "% of deliveries", redelivered, [_ORANGE]),
        ("ends", _HALF, "messages", steps[[head("expired"), head("purged")]], [_YELLOW, _GREY]),
        ("buried", _FULL, "messages", steps[[head("buried")]], [_RED]),
    ):
        with _chart(charts, name, size) as axes:
            _over_time(axes, frame, colors, unit, areas=True)
    with _chart(charts, "throughput", _FULL) as axes:
        rates = steps[[head("sent"), head("deleted")]] / figures.interval_min
        _over_time(axes, rates, (_BLUE, _GREEN), "messages a minute")
    for what in ("wait_s", "processing_s"):
        with _chart(charts, what, _HALF) as axes:
            frame = getattr(figures, what).clip(lower=_LEAST_S)
            _over_time(axes, frame, (_BLUE, _ORANGE, _RED), "")
            _spans(axes.yaxis, frame.stack())
        with _chart(charts, f"slowest_{what}", _HALF) as axes:
            _slowest(axes, figures, what)
    return charts


@contextmanager
def _chart(charts: dict[str, str], name: str, size: tuple[float, float]) -> Iterator[Axes]:
    """Add inline SVG: without a prologue, with unique ids, and the page's colours and fonts."""
    text = io.StringIO()
    with mpl.rc_context(_STYLE | {"svg.hashsalt": name}):
        figure = Figure(size, layout="constrained")
        axes = figure.add_subplot()
        yield axes
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=7)  # above the chart
        figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
    svg = re.sub(r"^.*?(?=<svg)|<metadata>.*?</metadata>", "", text.getvalue(), flags=re.DOTALL)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r'font-family: [^;]*;| (width|height)="[\d.]+pt"', "", svg)
    for color, variable in _VARIABLES.items():
        svg = svg.replace(color, f"var(--{variable})")
    charts[name] = svg


def _over_time(
    axes: Axes, frame: Any, colors: Sequence[str], unit: str, *, areas: bool = False
) -> None:
    if areas and len(frame.columns):
        axes.stackplot(frame.index, frame.T, labels=frame.columns, colors=colors, step="mid")
    for name, color in zip(frame.columns, () if areas else colors, strict=not areas):
        # With dots, because a single interval between two gaps has no line.
        axes.plot(frame[name], color=color, label=name, marker="o", markersize=1.8)
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    axes.set_xlim(frame.index[0], frame.index[-1])
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    locator = AutoDateLocator(minticks=3, maxticks=8)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, show_offset=False))


def _slowest(axes: Axes, figures: Figures, what: str) -> None:
    """The ten slowest queues: from their p50 to their p95."""
    queues = sorted((q for q in figures.queues if q[what]), key=lambda q: q[what][1])[-10:]
    p50, p95 = ([max(queue[what][n], _LEAST_S) for queue in queues] for n in (0, 1))
    places = range(len(queues))
    axes.hlines(places, p50, p95, color=_PURPLE, linewidth=7, alpha=0.35, capstyle="round")
    axes.plot(p50, places, "o", color=_BLUE, label="p50")
    axes.plot(p95, places, "o", color=_ORANGE, label="p95")
    axes.set_yticks(places, [f"{queue['queue']:.22}" for queue in queues])
    _spans(axes.xaxis, [*p50, *p95])


def _spans(axis: Any, values: Any) -> None:
    """Make an axis one of time spans, from milliseconds to weeks."""
    low, high = min(values, default=0.01) * 0.6, max(values, default=10.0) * 2.2
    axis.axes.set(**{f"{axis.axis_name}scale": "log", f"{axis.axis_name}lim": (low, high)})
    axis.set_major_locator(FixedLocator([nice for nice in _NICE_S if low <= nice <= high]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
