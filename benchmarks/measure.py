"""What a row hands back: measures with their bars, and how pairs become ratios."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self


@dataclass(frozen=True)
class Bar:
    """The limit that a median has to keep: at least or at most ``limit``."""

    kind: Literal[">=", "<="]
    limit: float
    unit: str = "×"

    def is_met(self, value: float) -> bool:
        return value >= self.limit if self.kind == ">=" else value <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.kind == '>=' else '≤'} {number(self.limit, self.unit)}"


@dataclass(frozen=True)
class Measure:
    """One line of the table.

    name: what is measured.
    samples: one value for each repetition; empty where it could not be measured.
    unit: of the samples; ``×`` is a ratio of two runs side by side.
    bar: None where nothing is promised.
    measured, against: the plain numbers behind a ratio, the subject's and the other side's.
    note: what a reader has to know; the reason where there are no samples.
    """

    name: str
    samples: list[float]
    unit: str = "×"
    bar: Bar | None = None
    measured: str = ""
    against: str = ""
    note: str = ""

    @property
    def median(self) -> float | None:
        return statistics.median(self.samples) if self.samples else None

    @property
    def verdict(self) -> str:
        if self.median is None:
            return "skipped"
        if self.bar is None:
            return ""
        return "met" if self.bar.is_met(self.median) else "NOT MET"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        bar = stored["bar"]
        return cls(**{**stored, "bar": None if bar is None else Bar(**bar)})


@dataclass(frozen=True)
class Series:
    """One line of a plot: how ``y`` grows with ``x``."""

    name: str
    points: list[tuple[float, float]]


@dataclass(frozen=True)
class Plot:
    """One picture; both axes are logarithmic."""

    file: str
    title: str
    x_label: str
    y_label: str
    series: list[Series]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        series = [Series(s["name"], [(x, y) for x, y in s["points"]]) for s in stored["series"]]
        return cls(**{**stored, "series": series})


@dataclass(frozen=True)
class Outcome:
    """All that one row found."""

    measures: list[Measure] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)


def side_by_side(
    repeat: int, contenders: Mapping[str, Callable[[], float]]
) -> dict[str, list[float]]:
    """Run all contenders in turn, ``repeat`` times over: a slow minute is slow for all of them."""
    runs: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeat):
        for name, run in contenders.items():
            runs[name].append(run())
    return runs


def ratios(subject: Sequence[float], other: Sequence[float]) -> list[float]:
    """The ratio of each pair."""
    return [a / b for a, b in zip(subject, other, strict=True)]


def rate(values: Sequence[float], what: str = "/s") -> str:
    """The median of rates, for people."""
    return f"{statistics.median(values):,.0f}{what}"


def number(value: float, unit: str) -> str:
    """A value with its unit, to three digits."""
    if unit == "/s" or value >= 1000:
        text = f"{value:,.0f}"
    elif value >= 100:
        text = f"{value:.0f}"
    elif value >= 10:
        text = f"{value:.1f}"
    else:
        text = f"{value:.2f}"
    return text + (unit if unit in ("×", "/s", "%") else f" {unit}")


def percentile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` (0 to 1) of the values do not exceed. Raises for no values."""
    if not values:
        raise ValueError("no values: nothing was measured")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
