"""The page of metrics, made by the official Prometheus library.

Only this module imports that library, and it is itself imported for the first page: a server whose
metrics nobody reads saves a megabyte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder

from fsmq._version import __version__
from fsmq.spool.inspection import METRICS, Left, MetricKey, Overview, Report, Snapshot

from .guard import access
from .guard.access import Identity
from .service.monitoring.log_survey import OF_CHANNEL, OF_LOG, LogOverview
from .service.monitoring.surveys import ByConsumer


class Seen(NamedTuple):
    """The data of a page.

    reports: the metrics of this host's processes. schedules: the name whose rights govern each.
    """

    reports: list[Report]
    surveyed: dict[str, Overview]
    behind: ByConsumer
    logs: dict[str, LogOverview]
    schedules: Mapping[str, str]
    left: Left | None
    now: float


def render(seen: Seen, identity: Identity, accepted: str) -> tuple[bytes, str]:
    """The page for an identity, in the format of an Accept header, and its media type."""
    encode, kind = choose_encoder(accepted)
    return encode(_Page(seen, identity)), kind


class _Page:
    """The metrics as a registry of the Prometheus library.

    What is counted for all queues together, and the room on the disk, reveals what others do: only
    who may see all queues gets it.
    """

    def __init__(self, seen: Seen, identity: Identity) -> None:
        reports, self._surveyed, self._behind, self._logs, *_ = seen
        self._schedules, self._left, self._now = seen.schedules, seen.left, seen.now
        self._processes = _by_process(reports)
        self._may_see, self._sees_all = identity.may_see, identity.sees_all_queues

    def collect(self) -> Iterator[Metric]:
        build = GaugeMetricFamily("fsmq_build_info", "The version that runs", labels=["version"])
        build.add_metric([__version__], 1)
        yield build
        up = GaugeMetricFamily("fsmq_process_up", "Processes of this host", labels=["process"])
        for process in self._processes:
            up.add_metric([process], 1)
        yield up
        yield from self._filesystem()
        yield from self._queues()
        yield from self._consumers()
        yield from _families(self._logs, self._may_see)
        for what in METRICS:
            yield self._family(what)

    def _filesystem(self) -> Iterator[Metric]:
        if self._left is None or not self._sees_all:
            return
        of = self._left
        for name, value, help in (
            ("size_bytes", of.bytes, "Size of the filesystem of the spool"),
            ("free_bytes", of.free_bytes, "Bytes that are free for messages"),
            ("inodes", of.inodes, "Inodes of the filesystem; 0 where it has no fixed number"),
            ("free_inodes", of.free_inodes, "Inodes that are free: each message takes one"),
        ):
            yield GaugeMetricFamily(f"fsmq_filesystem_{name}", help, value=value)

    def _queues(self) -> Iterator[Metric]:
        counts = GaugeMetricFamily(
            "fsmq_queue_messages", "Messages of a queue by state", labels=["queue", "state"]
        )
        oldest = GaugeMetricFamily(
            "fsmq_queue_oldest_message_age_seconds",
            "Age of the oldest message that can be claimed",
            labels=["queue"],
        )
        paused = GaugeMetricFamily(
            "fsmq_queue_paused", "Whether nothing is claimed from a queue", labels=["queue"]
        )
        for queue, found in sorted(self._surveyed.items()):
            if not self._may_see(queue):
                continue
            for state, number in found.counts._asdict().items():
                counts.add_metric([queue, state], number)
            age = 0.0 if found.oldest is None else self._now - found.oldest
            oldest.add_metric([queue], max(0.0, age))
            paused.add_metric([queue], found.paused is not None)
        yield counts
        yield oldest
        yield paused

    def _consumers(self) -> Iterator[Metric]:
        labels = ["consumer", "queue"]
        messages = GaugeMetricFamily(
            "fsmq_consumer_messages_behind",
            "Messages that wait in a queue that a consumer reads",
            labels=labels,
        )
        size = GaugeMetricFamily(
            "fsmq_consumer_bytes_behind", "Bytes of the files of these messages", labels=labels
        )
        oldest = GaugeMetricFamily(
            "fsmq_consumer_oldest_message_age_seconds",
            "Age of the oldest of these messages",
            labels=labels,
        )
        for consumer, queues in self._behind.items():
            for queue, found in queues.items():
                if self._may_see(queue):
                    age = 0.0 if found.oldest is None else self._now - found.oldest
                    messages.add_metric([consumer, queue], found.messages)
                    size.add_metric([consumer, queue], found.bytes)
                    oldest.add_metric([consumer, queue], max(0.0, age))
        yield messages
        yield size
        yield oldest

    def _family(self, what: str) -> Metric:
        metric = METRICS[what]
        name, labels = f"fsmq_{metric.name}", [*metric.labels, "process"]
        if metric.kind == "counter":
            counter = CounterMetricFamily(name, metric.help, labels=labels)
            if not metric.labels and self._sees_all:
                # 0 for what has not happened yet, so that alerting rules find the series.
                for process, snapshot in self._processes.items():
                    counter.add_metric([process], snapshot.counts.get((what,), 0))
                return counter
            for process, key, number in self._values(what, "counts"):
                counter.add_metric([*key[1:], process], number)
            return counter
        if metric.kind == "gauge":
            gauge = GaugeMetricFamily(name, metric.help, labels=labels)
            for process, key, value in self._values(what, "gauges"):
                gauge.add_metric([*key[1:], process], value)
            return gauge
        histogram = HistogramMetricFamily(name, metric.help, labels=labels)
        for process, key, cells in self._values(what, "histograms"):
            histogram.add_metric(
                [*key[1:], process], _buckets(metric.bounds, cells), sum_value=cells[-1]
            )
        return histogram

    def _values(self, what: str, table: str) -> Iterator[tuple[str, MetricKey, Any]]:
        for process, snapshot in self._processes.items():
            for key, value in getattr(snapshot, table).items():
                labels = METRICS[what].labels
                if key[0] != what or len(key) != len(labels) + 1:
                    continue
                if self._is_visible(labels, key[-1]):
                    yield process, key, value

    def _is_visible(self, labels: tuple[str, ...], value: str) -> bool:
        """Whether a series may be shown whose last label has this value."""
        match labels:
            case ("queue",):
                return self._may_see(value)
            case ("log",):
                return self._may_see(access.log(value))
            case ("schedule",):
                return self._may_see(self._schedules.get(value, access.schedule(value)))
        return self._sees_all


def _buckets(bounds: tuple[float, ...], cells: list[float]) -> list[tuple[str, float]]:
    """Upper bounds and how many values are not above each, as Prometheus counts."""
    total = 0.0
    result = []
    for bound, number in zip((*bounds, float("inf")), cells[:-1], strict=True):
        total += number
        result.append(("+Inf" if bound == float("inf") else str(float(bound)), total))
    return result


def _families(
    logs: dict[str, LogOverview], may_see: Callable[[str], bool]
) -> Iterator[GaugeMetricFamily]:
    """The metrics of logs and channels that may be shown."""
    for name, (about, of_log) in OF_LOG.items():
        family = GaugeMetricFamily(f"fsmq_log_{name}", about, labels=["log"])
        for log, found in logs.items():
            if may_see(access.log(log)):
                family.add_metric([log], of_log(found.stats))
        yield family
    for name, (about, of_channel) in OF_CHANNEL.items():
        family = GaugeMetricFamily(f"fsmq_channel_{name}", about, labels=["channel", "log"])
        for log, found in logs.items():
            for channel, state in found.channels.items():
                if may_see(access.channel(log, channel)):
                    family.add_metric([channel, log], of_channel(state))
        yield family


def _by_process(reports: list[Report]) -> dict[str, Snapshot]:
    named: dict[str, list[Snapshot]] = {}
    for report in reports:
        named.setdefault(report.process, []).append(report.snapshot)
    return {process: Snapshot.sum(snapshots) for process, snapshots in sorted(named.items())}
