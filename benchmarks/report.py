"""The report: the table on a terminal, and in README.md between its markers."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .measure import Measure, Outcome, Plot, number
from .plot import svg

HERE = Path(__file__).resolve().parent
_README, _RESULTS = "README.md", "results.json"
_BEGIN, _END = "<!-- begin {} -->", "<!-- end {} -->"
_HEADS = ("measure", "bar", "median", "min–max", "measured", "against", "", "note")


def table(measures: Iterable[Measure]) -> str:
    """The table for a terminal; notes on lines of their own."""
    rows = [(_cells(measure), measure.note) for measure in measures]
    cells = [_HEADS[:-1], *(row for row, _ in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = [_aligned(_HEADS[:-1], widths)]
    for row, note in rows:
        lines.append(_aligned(row, widths))
        if note:
            lines.append(f"    {note}")
    return "\n".join(lines)


def machine() -> str:
    """The machine, in one line."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    system = f"{platform.system()} {platform.release().partition('-')[0]}"
    python = f"Python {platform.python_version()}"
    return f"{len(os.sched_getaffinity(0))} cores ({model}), {system}, {python}"


def store(outcomes: Mapping[str, Outcome], how: str, folder: Path = HERE) -> None:
    """Keep the outcomes of the rows that ran beside those of the others; write README and plots.

    how: the conditions of this run, for the reader.
    """
    kept = _kept(folder)
    for row, outcome in outcomes.items():
        kept[row] = {
            "how": how,
            "date": datetime.now(UTC).date().isoformat(),
            "measures": [measure.as_dict() for measure in outcome.measures],
            "plots": [plot.as_dict() for plot in outcome.plots],
        }
    (folder / _RESULTS).write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    render(folder)


def render(folder: Path = HERE) -> None:
    """Write README.md and the plots from the results that are kept."""
    from .rows import ROWS

    kept = _kept(folder)
    ordered = [kept[row] for row in ROWS if row in kept]
    measures = [Measure.from_dict(m) for outcome in ordered for m in outcome["measures"]]
    plots = [Plot.from_dict(p) for outcome in ordered for p in outcome["plots"]]
    for plot in plots:
        (folder / plot.file).write_text(svg(plot))
    text = (folder / _README).read_text()
    text = _between(text, "table", _markdown(measures, _conditions(ordered)))
    text = _between(text, "plots", "\n\n".join(f"![{p.title}]({p.file})" for p in plots))
    (folder / _README).write_text(text)


def _kept(folder: Path) -> dict[str, Any]:
    try:
        kept: dict[str, Any] = json.loads((folder / _RESULTS).read_text())
    except FileNotFoundError:
        return {}
    return kept


def _conditions(ordered: list[dict[str, Any]]) -> str:
    """How the rows were measured, each way once."""
    ways = dict.fromkeys(f"{outcome['how']}, on {outcome['date']}" for outcome in ordered)
    return "\n".join(f"- {way}" for way in ways)


def _markdown(measures: list[Measure], conditions: str) -> str:
    lines = [conditions, "", "| " + " | ".join(_HEADS) + " |", "| --- " * len(_HEADS) + "|"]
    for measure in measures:
        row = [*_cells(measure), measure.note]
        row[-2] = f"**{row[-2]}**" if row[-2] == "NOT MET" else row[-2]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    return "\n".join(lines)


def _cells(measure: Measure) -> tuple[str, ...]:
    median, samples = measure.median, measure.samples
    return (
        measure.name,
        str(measure.bar or ""),
        "–" if median is None else number(median, measure.unit),
        f"{number(min(samples), '').strip()}–{number(max(samples), '').strip()}" if samples else "",
        measure.measured,
        measure.against,
        measure.verdict,
    )


def _aligned(cells: Iterable[str], widths: list[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return "  ".join(padded).rstrip()


def _between(text: str, marker: str, content: str) -> str:
    begin, end = _BEGIN.format(marker), _END.format(marker)
    head, found, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the README has no place marked {begin} … {end}")
    return f"{head}{begin}\n{content}\n{end}{tail}"
