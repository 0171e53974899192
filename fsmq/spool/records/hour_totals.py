"""What happened to the messages of each queue, hour by hour, from the history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import add
from typing import Any, NamedTuple

from ..layout.steps import giving_way
from ..layout.tree import Tree
from .history import HOUR_S, Figures, Kept, files, lines_of

# Until then after the end of an hour its last line may still be written.
_LATE_S = 120.0
_FIRST = Figures._fields.index("sent")


class Happened(NamedTuple):
    """How many messages of a queue were sent, received, deleted, redelivered and buried."""

    sent: int = 0
    received: int = 0
    deleted: int = 0
    redelivered: int = 0
    buried: int = 0

    def plus(self, other: Happened) -> Happened:
        return Happened(*map(add, self, other))


class HourTotals:
    """Adds up the history by the hour. Hours that are over are read once."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._known: dict[str, Mapping[str, Happened]] = {}

    def read(self, now: float, hours: int) -> dict[float, dict[str, Happened]]:
        """The last hours, the current one included, each with the queues that were used in it.

        Keys are the beginnings of the hours, in Unix seconds. Raises OSError.
        """
        first = (now // HOUR_S - hours + 1) * HOUR_S
        recent = [file for file in files(self._tree) if first <= file.began <= now]
        found: dict[float, dict[str, Happened]] = {}
        known = {}
        for file in recent:
            of_file = self._known.get(file.name) or self._added(file)
            if now >= file.began + HOUR_S + _LATE_S:
                known[file.name] = of_file
            hour = found.setdefault(file.began, {})
            for queue, happened in of_file.items():
                hour[queue] = hour[queue].plus(happened) if queue in hour else happened
        self._known = known
        return found

    def _added(self, file: Kept) -> dict[str, Happened]:
        """What a file says in all, of the queues to which something happened."""
        totals: dict[str, Iterable[int]] = {}
        for line, _ in giving_way(lines_of(self._tree, file, lambda queue: True)):
            for queue, figures in line.queues.items():
                happened: Sequence[Any] = figures[_FIRST:]
                if any(happened):
                    before = totals.get(queue)
                    totals[queue] = happened if before is None else [*map(add, before, happened)]
        return {queue: Happened(*happened) for queue, happened in totals.items()}
