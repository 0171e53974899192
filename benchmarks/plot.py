"""Plots as SVG, written by hand: two logarithmic axes and a few lines need no library."""

from __future__ import annotations

import math
from html import escape

from .measure import Plot, Series

_WIDTH, _HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 36, 48, 56
# Told apart by people who do not see red and green as different, and on dark and light pages.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
_DASHES = ("", "6 4", "2 3", "8 3 2 3")
_SHORT = ((1e6, "M"), (1e3, "k"))


class _Axis:
    """Maps values to pixels; whole powers of ten at both ends."""

    def __init__(self, values: list[float], start: float, end: float) -> None:
        self.low = math.floor(math.log10(min(values)) + 1e-9)
        self.high = max(math.ceil(math.log10(max(values)) - 1e-9), self.low + 1)
        self._start = start
        self._per_decade = (end - start) / (self.high - self.low)

    def at(self, value: float) -> float:
        return self._start + (math.log10(value) - self.low) * self._per_decade

    def ticks(self) -> list[float]:
        return [10.0**power for power in range(self.low, self.high + 1)]


def svg(plot: Plot) -> str:
    """Draw a plot. Raises ValueError where it has no points, or a value that is not positive."""
    points = [point for series in plot.series for point in series.points]
    if not points:
        raise ValueError(f"{plot.title}: nothing to draw")
    x_axis = _Axis([x for x, _ in points], _LEFT, _WIDTH - _RIGHT)
    y_axis = _Axis([y for _, y in points], _HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        f' width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" font-size="12" role="img">',
        f"<title>{escape(plot.title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="24" font-size="15" font-weight="bold">{escape(plot.title)}</text>',
        *_grid(x_axis, y_axis),
        *_labels(plot),
    ]
    for index, series in enumerate(plot.series):
        parts += _line(series, index, x_axis, y_axis, points)
    parts += _legend(plot)
    return "\n".join([*parts, "</svg>", ""])


def _grid(x_axis: _Axis, y_axis: _Axis) -> list[str]:
    left, right, top, bottom = _LEFT, _WIDTH - _RIGHT, _TOP, _HEIGHT - _BOTTOM
    parts = []
    for value in x_axis.ticks():
        x = x_axis.at(value)
        parts.append(f'<path d="M{x:.1f} {top}V{bottom}" stroke="#dddddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{_n(value)}</text>')
    for value in y_axis.ticks():
        y = y_axis.at(value)
        parts.append(f'<path d="M{left} {y:.1f}H{right}" stroke="#dddddd"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{_n(value)}</text>')
    parts.append(f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="#333333"/>')
    return parts


def _labels(plot: Plot) -> list[str]:
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    centre = (_LEFT + _WIDTH - _RIGHT) / 2
    return [
        f'<text x="{centre}" y="{_HEIGHT - 14}" text-anchor="middle">{escape(plot.x_label)}</text>',
        f'<text x="20" y="{middle}" text-anchor="middle" transform="rotate(-90 20 {middle})">'
        f"{escape(plot.y_label)}</text>",
    ]


def _line(
    series: Series,
    index: int,
    x_axis: _Axis,
    y_axis: _Axis,
    everything: list[tuple[float, float]],
) -> list[str]:
    colour, dash = _style(index)
    path = "L".join(f"{x_axis.at(x):.1f} {y_axis.at(y):.1f}" for x, y in series.points)
    parts = [f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>']
    for x, y in series.points:
        across, down = x_axis.at(x), y_axis.at(y)
        # The highest value stands above its point and the others below: they never meet.
        is_highest = y >= max(other for at, other in everything if at == x)
        parts.append(f'<circle cx="{across:.1f}" cy="{down:.1f}" r="3.5" fill="{colour}"/>')
        parts.append(
            f'<text x="{across:.1f}" y="{down + (-8 if is_highest else 16):.1f}" font-size="10"'
            f' text-anchor="middle" fill="{colour}">{y:,.0f}</text>'
        )
    return parts


def _legend(plot: Plot) -> list[str]:
    parts = []
    for index, series in enumerate(plot.series):
        colour, dash = _style(index)
        x, y = _WIDTH - _RIGHT - 190, 14 + 16 * index
        parts.append(f'<path d="M{x} {y}h24" stroke="{colour}" stroke-width="2"{dash}/>')
        parts.append(f'<text x="{x + 30}" y="{y + 4}">{escape(series.name)}</text>')
    return parts


def _style(index: int) -> tuple[str, str]:
    dash = _DASHES[index % len(_DASHES)]
    attribute = f' stroke-dasharray="{dash}"' if dash else ""
    return _COLOURS[index % len(_COLOURS)], attribute


def _n(value: float) -> str:
    for factor, letter in _SHORT:
        if value >= factor:
            return f"{value / factor:g}{letter}"
    return f"{value:g}"
