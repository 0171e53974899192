"""History: how many messages each queue had, and how many came and went, minute by minute.

One process of each host appends a line a minute to `history/<node>-<hour>.jsonl`; docs/format.md
specifies the format. Nothing depends on it, and it is never synced.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ..durability.locks import Lock, lock
from ..layout.files import write_all
from ..layout.steps import giving_way
from ..layout.tree import STRAY, Tree
from .metrics import Snapshot

HISTORY = "history"
EVERY_S = 60.0
# The default period, and the largest step.
HISTORY_S = 3 * 3600.0
MAX_STEP_S = 86_400.0
HOUR_S = 3600.0
# The longest period in steps of a minute, longer steps, and the most moments in an answer.
_MINUTES_S = 6 * HOUR_S
_STEP_S = 600.0
_MAX_MOMENTS = 100_000
_VERSION = 1
_MAX_FILE_BYTES = 64 * 1024 * 1024
# The counted events, and the metric of each.
_HAPPENED = ("sent", "received", "deleted", "redelivered", "buried")
_COUNTERS = ("put", "claim", "remove", "redeliver", "bury")
_file = re.compile(r"(?P<node>[A-Za-z0-9_.-]+)-(?P<hour>[0-9]{8}T[0-9]{2})\.jsonl")
_CLOCK = "%Y%m%dT%H"


class Figures(NamedTuple):
    """One queue at one moment, and what happened to it since the moment before.

    oldest: seconds that the oldest message has waited; None if none waits.
    """

    new: int = 0
    ready: int = 0
    in_flight: int = 0
    delayed: int = 0
    oldest: float | None = None
    sent: int = 0
    received: int = 0
    deleted: int = 0
    redelivered: int = 0
    buried: int = 0

    @classmethod
    def from_json(cls, found: Any) -> Figures:
        """Raises ValueError if these are no figures."""
        if not isinstance(found, list) or len(found) < len(cls._fields):
            raise ValueError("are no figures of a queue")
        figures = cls(*found[: len(cls._fields)])
        counts = figures._replace(oldest=0)
        if not all(type(number) is int and 0 <= number < 1 << 53 for number in counts):
            raise ValueError("has a number that is none")
        if figures.oldest is not None and type(figures.oldest) not in (int, float):
            raise ValueError("has an age that is none")
        return figures

    @property
    def happened(self) -> dict[str, int]:
        """The events since the moment before."""
        return {name: getattr(self, name) for name in _HAPPENED}

    def then(self, later: Figures) -> Figures:
        """Both combined: the later counts, and all events."""
        more = later.happened
        return later._replace(**{name: n + more[name] for name, n in self.happened.items()})


class Moment(NamedTuple):
    """The figures of a queue in a step, which begins at a time in Unix seconds."""

    at: float
    figures: Figures


class Line(NamedTuple):
    """The record of one host. ``is_whole``: queues that are missing in it are empty."""

    at_ms: int
    queues: dict[str, Figures]
    is_whole: bool = False


class Counters:
    """The growth of processes' counters since the last look, by queue."""

    def __init__(self) -> None:
        self._last: dict[str, Mapping[Any, int]] | None = None

    def growth(self, processes: Mapping[str, Snapshot]) -> dict[str, list[int]]:
        """For each queue the growth of each counter; nothing at the first look."""
        grown: Counter[tuple[str, str]] = Counter()
        for process, snapshot in processes.items() if self._last is not None else ():
            before = (self._last or {}).get(process, {})
            for key, number in snapshot.counts.items():
                if key[0] in _COUNTERS and len(key) == 2:
                    # Less than before: the process was restarted, and counts from 0.
                    last = before.get(key, 0)
                    grown[key[0], key[1]] += number - last if number >= last else number
        known = {process: snapshot.counts for process, snapshot in processes.items()}
        self._last = {**(self._last or {}), **known}
        queues = {queue for (_, queue), number in grown.items() if number}
        return {queue: [grown[counter, queue] for counter in _COUNTERS] for queue in queues}


class Recorder:
    """Writes the lines of one host, if no other process does so. Use it in one thread at a time."""

    def __init__(self, tree: Tree, node: str) -> None:
        self._tree = tree
        self._node = node
        self._counters = Counters()
        self._hour = ""
        self._last: dict[str, Figures] = {}
        self._held: Lock | None = None

    def close(self) -> None:
        """Let another process write."""
        if self._held is not None:
            self._held.unlock()
            self._held = None

    def record(
        self,
        now: float,
        waiting: Mapping[str, tuple[tuple[int, int, int, int], float | None]],
        processes: Mapping[str, Snapshot],
    ) -> bool:
        """Append a line; False if another process writes. Raises OSError.

        waiting: for each queue the counts by state, and when its oldest message was created.
        processes: the counters of this host's processes, by their names.
        """
        grown = self._counters.growth(processes)
        if not self._is_ours():
            return False
        hour = datetime.fromtimestamp(now, UTC).strftime(_CLOCK)
        is_first = hour != self._hour
        if is_first:
            self._last = {}
        changed = {}
        for queue, (counts, oldest) in waiting.items():
            new, ready, in_flight, delayed = counts
            age = None if oldest is None else round(max(0.0, now - oldest), 1)
            happened = grown.get(queue, [0] * len(_COUNTERS))
            figures = Figures(new, ready, in_flight, delayed, age, *happened)
            if any(happened) or figures != self._last.get(queue, Figures()):
                changed[queue] = figures
            self._last[queue] = figures
        for queue in self._last.keys() - waiting.keys():
            del self._last[queue]
            changed[queue] = Figures()  # it was deleted
        self._append(hour, Line(round(now * 1000), changed, is_first))
        self._hour = hour
        return True

    def _is_ours(self) -> bool:
        if self._held is None:
            path = f"{HISTORY}/.{self._node}"
            try:
                self._held = lock(self._tree, path, os.O_CREAT)
            except FileNotFoundError:
                self._make_folder()
                self._held = lock(self._tree, path, os.O_CREAT)
        return self._held is not None

    def _make_folder(self) -> None:
        try:
            self._tree.make_entry(HISTORY)
        except FileExistsError:
            pass  # another host was quicker

    def _append(self, hour: str, line: Line) -> None:
        path = f"{HISTORY}/{self._node}-{hour}.jsonl"
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        try:
            fd = self._tree.create(path, flags)
        except FileNotFoundError:
            self._make_folder()  # somebody removed it
            fd = self._tree.create(path, flags)
        try:
            size = os.fstat(fd).st_size
            # An unfinished line of a killed process must not spoil this one.
            is_cut = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
            write_all(fd, (b"\n" if is_cut else b"") + written(line))
        finally:
            os.close(fd)


def written(line: Line, step_s: float | None = None) -> bytes:
    """A line as in a file; ``step_s``: for a step of this many seconds."""
    content: dict[str, Any] = {"v": _VERSION, "at": line.at_ms}
    if step_s is not None:
        content["step"] = round(step_s)
    if line.is_whole:
        content["whole"] = True
    content["queues"] = {queue: list(figures) for queue, figures in line.queues.items()}
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


# -- reading ---------------------------------------------------------------------------------------


class Kept(NamedTuple):
    """A file of the history."""

    began: float  # Unix seconds of its hour
    node: str
    name: str

    @property
    def path(self) -> str:
        return f"{HISTORY}/{self.name}"


def files(tree: Tree) -> list[Kept]:
    """The files of all hosts, the oldest first. Raises OSError."""
    found = []
    for name in tree.names(HISTORY):
        match = _file.fullmatch(name)
        if match is not None:
            try:
                began = datetime.strptime(match["hour"], _CLOCK).replace(tzinfo=UTC).timestamp()
            except ValueError:
                continue
            found.append(Kept(began, match["node"], name))
    return sorted(found)


def lines(tree: Tree, file: Kept, wanted: Callable[[str], bool] = lambda queue: True) -> list[Line]:
    """The lines of a file, with the queues that are wanted. Raises OSError."""
    return [line for line, _ in giving_way(lines_of(tree, file, wanted))]


def lines_of(tree: Tree, file: Kept, wanted: Callable[[str], bool]) -> Iterator[tuple[Line, bool]]:
    """Each line, and whether it is that of a thinned step."""
    try:
        fd = tree.open(file.path)
    except OSError as error:
        if error.errno in (*STRAY, errno.EACCES):
            return  # it has expired, or is another user's
        raise
    with open(fd, "rb") as opened:
        content = opened.read(_MAX_FILE_BYTES)
    for text in content.splitlines():
        try:
            found = json.loads(text)
            queues = {
                queue: Figures.from_json(figures)
                for queue, figures in found["queues"].items()
                if wanted(queue)
            }
            at_ms = int(found["at"])
            yield Line(at_ms, queues, found.get("whole") is True), "step" in found
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
            continue  # an unfinished line, or one of a later version


def read_history(
    tree: Tree, queues: Collection[str], since: float, until: float, step_s: float
) -> dict[str, list[Moment]]:
    """The figures of some queues from one time to another, in steps; by queue.

    A moment is the beginning of a step, in Unix seconds, a multiple of ``step_s``. Steps without
    any record are left out. Raises OSError.
    """
    wanted = frozenset(queues)
    result: dict[str, list[Moment]] = {queue: [] for queue in queues}
    now: dict[str, Figures] = {}
    step: tuple[float, dict[str, Figures]] | None = None
    first = since // step_s * step_s
    for line in _merged(tree, since - HOUR_S, until, wanted.__contains__):
        at = line.at_ms / 1000
        begin = at // step_s * step_s
        if step is not None and step[0] != begin:
            _end_step(result, step, now, first)
            step = None
        if step is None:
            step = (begin, {})
        if line.is_whole:
            now = {}
        for queue, figures in line.queues.items():
            now[queue] = figures
            before = step[1].get(queue)
            step[1][queue] = figures if before is None else before.then(figures)
    if step is not None:
        _end_step(result, step, now, first)
    return result


def _end_step(
    result: dict[str, list[Moment]],
    step: tuple[float, dict[str, Figures]],
    now: Mapping[str, Figures],
    first: float,
) -> None:
    begin, changed = step
    if begin < first:
        return
    for queue, points in result.items():
        figures = changed.get(queue, Figures())
        depth = now.get(queue, Figures())
        points.append(Moment(begin, depth._replace(**figures.happened)))


def _merged(
    tree: Tree, since: float, until: float, wanted: Callable[[str], bool]
) -> Iterator[Line]:
    """The lines of all hosts, hour by hour, in order."""
    of_hour: dict[float, list[Kept]] = {}
    for file in files(tree):
        if since - HOUR_S < file.began < until:
            of_hour.setdefault(file.began, []).append(file)
    for kept in of_hour.values():
        found = [line for file in kept for line in lines(tree, file, wanted)]
        yield from (
            line
            for line in sorted(found, key=lambda line: line.at_ms)
            if since * 1000 <= line.at_ms < until * 1000
        )


def step_of(since: float, until: float, queues: int, step_s: float | None = None) -> float:
    """The step for a history, so that it has at most 100,000 moments in all."""
    step = step_s or (EVERY_S if until - since <= _MINUTES_S else _STEP_S)
    while queues * (until - since) / step > _MAX_MOMENTS:
        step *= 2
    return step
