"""Metrics: counts and measurements of one process, for logs, statsd and Prometheus.

A metric is identified by a tuple: its name, then the values of its labels, such as
``("put", "jobs")``. `METRICS` lists all of them with their labels.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

Key: TypeAlias = tuple[str, ...]
Kind: TypeAlias = Literal["counter", "gauge", "histogram"]  # in the order of a snapshot's tables
_MOST = 1e300

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_NUMBERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_SHARES = (0, 0.25, 0.5, 0.75, 0.9, 1)


class Metric(NamedTuple):
    """The description of a metric. ``bounds``: the upper ends of a histogram's buckets."""

    kind: Kind
    name: str  # as Prometheus shows it, after "fsmq_"
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()


def _counter(name: str, help: str, *labels: str) -> Metric:
    return Metric("counter", name, help, labels)


_QUEUE = "queue"
# Labels that name things which come and go.
_NAMED = ((_QUEUE,), ("log",), ("schedule",))
METRICS: Mapping[str, Metric] = {
    "put": _counter("messages_sent", "Messages stored", _QUEUE),
    "claim": _counter("messages_received", "Messages claimed by a client", _QUEUE),
    "remove": _counter("messages_deleted", "Messages removed by a client", _QUEUE),
    "deliver": _counter(
        "messages_delivered", "Messages that became ready for the first time", _QUEUE
    ),
    "redeliver": _counter("messages_redelivered", "Claims whose time ran out", _QUEUE),
    "release": _counter("messages_released", "Claims released by a client", _QUEUE),
    "renew": _counter("claims_renewed", "Claims that a client renewed", _QUEUE),
    "bury": _counter("messages_dead_lettered", "Messages moved to the dead-letter queue", _QUEUE),
    "expire": _counter("messages_expired", "Messages whose time to live was over", _QUEUE),
    "move": _counter("messages_moved", "Messages moved to another queue", _QUEUE),
    "defer": _counter("messages_deferred", "Messages hidden by a delay or a backoff", _QUEUE),
    "lost_race": _counter("races_lost", "Claims that another process won", _QUEUE),
    "purge": _counter("queues_purged", "Queues purged"),
    "delete_queue": _counter("queues_deleted", "Queues deleted"),
    "publish": _counter("publishes", "Messages published to topics"),
    "schedule": _counter("schedule_messages_sent", "Messages put by schedules", "schedule"),
    "log_publish": _counter("log_messages_published", "Messages published to logs", "log"),
    "log_claim": _counter("log_messages_claimed", "Messages that channels handed out", "log"),
    "log_done": _counter("log_messages_done", "Messages that channels finished", "log"),
    "log_lost": _counter(
        "log_messages_lost", "Messages that retention took before a channel finished them", "log"
    ),
    "log_removed": _counter("log_segments_removed", "Segments that retention removed", "log"),
    "promote": _counter("puts_recovered", "Complete messages of writers that died"),
    "torn": _counter("puts_discarded", "Unfinished messages of writers that died"),
    "journal": _counter("journal_lines", "Steps noted in the lifecycle journal"),
    "journal_dropped": _counter("journal_lines_dropped", "Steps for which the journal had no room"),
    "reap": _counter("files_reaped", "Files unlinked after a removal"),
    "fill": Metric(
        "gauge",
        "batch_fill_last",
        "Share of the requested count that the last claim got",
        (_QUEUE,),
    ),
    "batch_fill": Metric(
        "histogram",
        "batch_fill_ratio",
        "Messages claimed, by messages asked for",
        (_QUEUE,),
        _SHARES,
    ),
    "request": Metric(
        "histogram",
        "http_request_duration_seconds",
        "From the head of a request to its answer, a long poll's wait included",
        ("operation", "status"),
        _SECONDS,
    ),
    "sync": Metric(
        "histogram", "sync_duration_seconds", "One sync of a group", ("method",), _SECONDS
    ),
    "group": Metric("histogram", "sync_group_changes", "Changes in one sync", (), _NUMBERS),
    "delivery": Metric(
        "histogram",
        "delivery_latency_seconds",
        "From creation to ready, of what a mover delivers",
        (),
        _SECONDS,
    ),
    "journal_lag": Metric(
        "gauge",
        "journal_lag_seconds",
        "Age of the oldest step that no closed segment of the journal has",
    ),
    "ui_streams": Metric("gauge", "ui_streams", "Pages of the dashboard that are open and live"),
    "unwatched": Metric(
        "gauge",
        "unwatched_folders",
        "Folders that are listed now and then, since a limit keeps them from being watched",
        ("limit",),
    ),
    "lag": Metric("gauge", "mover_lag_seconds", "How late the mover is", ("work",)),
}


class Metrics:
    """The metrics of one process. Safe in threads; an entry costs less than a microsecond."""

    def __init__(self) -> None:
        self.changed = False
        self._lock = threading.Lock()
        self._counts: Counter[Key] = Counter()
        self._gauges: dict[Key, float] = {}
        self._histograms: dict[Key, list[float]] = {}  # a number for each bucket, then the sum

    def count(self, key: Key, number: int = 1) -> None:
        """Add to a counter."""
        if number:
            with self._lock:
                self._counts[key] += number
                self.changed = True

    def set(self, key: Key, value: float) -> None:
        """Set a gauge."""
        with self._lock:
            if self._gauges.get(key) != value:
                self._gauges[key] = value
                self.changed = True

    def observe(self, key: Key, value: float, times: int = 1) -> None:
        """Add a value to a histogram, once or several times."""
        bounds = METRICS[key[0]].bounds
        with self._lock:
            cells = self._histograms.get(key)
            if cells is None:
                # The last bucket is for values above all bounds.
                cells = self._histograms[key] = [0] * (len(bounds) + 2)
            cells[bisect_left(bounds, value)] += times
            cells[-1] += value * times
            self.changed = True

    def value(self, key: Key) -> int:
        """A counter's value."""
        return self._counts[key]

    def totals(self) -> dict[str, int]:
        """All counters, without their labels."""
        totals: Counter[str] = Counter()
        for key, number in list(self._counts.items()):
            totals[key[0]] += number
        return dict(totals)

    def snapshot(self) -> Snapshot:
        """All values as they are now; resets ``changed``."""
        self.changed = False
        return self.snapshot_quietly()

    def snapshot_quietly(self) -> Snapshot:
        """All values as they are now; leaves ``changed`` as it is."""
        with self._lock:
            return Snapshot(
                dict(self._counts),
                dict(self._gauges),
                {key: list(cells) for key, cells in self._histograms.items()},
            )

    def prune(self, exists: Callable[[str, str], bool]) -> None:
        """Forget metrics of what is gone: names that come and go must not fill the memory.

        exists: called with "queue", "log" or "schedule", and a name.
        """
        label = {w: m.labels[0] for w, m in METRICS.items() if m.labels in _NAMED}
        tables = (self._counts, self._gauges, self._histograms)
        known = {(label[k[0]], k[1]) for t in tables for k in list(t) if k[0] in label}
        gone = {one for one in known if not exists(*one)}
        with self._lock:
            for table in tables:
                for key in [k for k in table if k[0] in label and (label[k[0]], k[1]) in gone]:
                    del table[key]


class Snapshot(NamedTuple):
    """The values of one process at one time, or the sums of several."""

    counts: dict[Key, int]
    gauges: dict[Key, float]
    histograms: dict[Key, list[float]]

    def as_json(self) -> dict[str, list[Any]]:
        return {
            name: [[*key, value] for key, value in table.items()]
            for name, table in self._asdict().items()
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Snapshot:
        """A snapshot from what :meth:`as_json` made. Raises ValueError for anything else."""
        tables = zip(get_args(Kind), cls._fields, strict=True)
        return cls(*(_table(kind, found.get(name)) for kind, name in tables))

    @classmethod
    def sum(cls, snapshots: Iterable[Snapshot]) -> Snapshot:
        """The sum of several: counters and histograms are added, a gauge is the largest."""
        counts: Counter[Key] = Counter()
        gauges: dict[Key, float] = {}
        histograms: dict[Key, list[float]] = {}
        for one in snapshots:
            counts.update(one.counts)
            for key, value in one.gauges.items():
                gauges[key] = max(value, gauges.get(key, value))
            for key, cells in one.histograms.items():
                known = histograms.get(key, [0] * len(cells))
                histograms[key] = [a + b for a, b in zip(known, cells, strict=True)]
        return cls(dict(counts), gauges, histograms)


def limits_reached(snapshots: Iterable[Snapshot]) -> list[str]:
    """The limits that keep any process from watching folders."""
    found = Snapshot.sum(snapshots).gauges.items()
    return sorted(key[1] for key, folders in found if key[0] == "unwatched" and folders)


def _table(kind: Kind, rows: object) -> dict[Key, Any]:
    """The values of one kind, without those of unknown metrics."""
    if not isinstance(rows, list):
        raise ValueError(f"a report has a list for each {kind}")
    table: dict[Key, Any] = {}
    for row in rows:
        match row:
            case [str(what), *labels, value] if all(isinstance(label, str) for label in labels):
                metric = METRICS.get(what)
                if metric and metric.kind == kind and len(labels) == len(metric.labels):
                    "".join(
                        labels
                    ).encode()  # raises for a lone surrogate, which nobody could encode
                    table[what, *labels] = _value(metric, value)
            case _:
                raise ValueError("a row of a report is a metric, its labels and a value")
    return table


def _value(metric: Metric, value: Any) -> Any:
    numbers = value if metric.kind == "histogram" and isinstance(value, list) else [value]
    wanted = len(metric.bounds) + 2 if metric.kind == "histogram" else 1
    # NaN fails the comparison, and so does a number too large for a float.
    is_number = all(type(one) in (int, float) and abs(one) < _MOST for one in numbers)
    if not is_number or len(numbers) != wanted:
        raise ValueError(f"{metric.name} has no such value")
    return value
