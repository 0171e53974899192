"""Monitoring: the Prometheus page, and whether this server is fit to serve."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from aiohttp import hdrs
from aiohttp.web import Response, StreamResponse
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder

from fsmq._version import __version__
from fsmq.spool.errors import Unavailable, as_unavailable
from fsmq.spool.layout.steps import LARGE_BYTES
from fsmq.spool.probe.room import Left, left
from fsmq.spool.probe.scratch import try_to_store
from fsmq.spool.records.metrics import METRICS, Key, Snapshot
from fsmq.spool.records.reports import Report
from fsmq.spool.views.counts import Overview

from .answers import json_answer
from .connection.pieces import Pieces
from .describe import Answer, Operation, json_object, text
from .guard import access
from .problem_answers import keyed, problems
from .routing.bodies import split
from .routing.call import Call
from .routing.router import Router
from .service.log_survey import LogOverview, families
from .service.service import Service
from .service.surveys import ByConsumer

# A disk that has not taken a byte after so long counts as one that refuses.
_DISK_PATIENCE_S = 5.0
# What a mover may serve; each has to be served by one that lives.
WORKS = ("new", "timers")


class Monitor:
    """What is known about the spool and the processes that serve it."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._spool = service.spool
        self._reports = service.reports
        self._trial: asyncio.Future[list[Report]] | None = None

    def add_routes(self, router: Router) -> None:
        for method in ("GET", "HEAD"):
            router.add(method, "/_metrics", self.metrics, self.METRICS)
            router.add(method, "/_health/live", self.live, self.LIVE)
            router.add(method, "/_health/ready", self.ready, self.READY)

    METRICS = Operation(
        id="metrics",
        tag="System",
        summary="Metrics of all processes of this host, for Prometheus",
        answers={
            200: Answer(
                "The text format, or OpenMetrics where that is asked for",
                {"text/plain": text(), "application/openmetrics-text": text()},
            ),
            **keyed(Unavailable),
        },
    )

    async def metrics(self, call: Call) -> StreamResponse:
        identity = call.identify_bearer()
        identity.visible(())  # raises where a key is needed
        call.read()
        call.admit()
        surveys = self._service.surveys
        surveyed, behind, logs = (
            await surveys.queues(),
            await surveys.consumers(),
            await surveys.logs(),
        )
        encode, kind = choose_encoder(call.request.headers.get(hdrs.ACCEPT, ""))

        def page() -> bytes:
            now = self._spool.context.clock()
            seen = _Seen(_by_process(self._of_host()), surveyed, behind, logs, self._left(), now)
            return encode(_Page(seen, identity.may_see))

        body = await self._service.listing(page)
        pieces = body if len(body) <= LARGE_BYTES else Pieces(split(body), len(body))
        call.answer_with(len(body))
        return Response(body=pieces, headers={hdrs.CONTENT_TYPE: kind})

    LIVE = Operation(
        id="live",
        tag="System",
        summary="Whether the process is alive",
        answers={200: json_object("It is", {"live": {"const": True}}), **problems()},
    )

    async def live(self, call: Call) -> StreamResponse:
        call.read()
        return json_answer(200, {"live": True})

    READY = Operation(
        id="ready",
        tag="System",
        summary="Whether messages can be stored and will be delivered",
        answers={
            200: json_object("They can", {"ready": {"const": True}}),
            **problems(Unavailable),
        },
    )

    async def ready(self, call: Call) -> StreamResponse:
        call.read()
        if self._service.stopping:
            raise Unavailable("the server is shutting down", 1)
        if self._trial is None or self._trial.done():
            # One for all who ask: on a disk that hangs, threads must not hang in ever more of them.
            self._trial = asyncio.ensure_future(self._service.in_thread(self._try_disk))
        try:
            async with asyncio.timeout(_DISK_PATIENCE_S):
                reports = await asyncio.shield(self._trial)
        except TimeoutError:
            self._trial.add_done_callback(_seen)
            raise Unavailable("the disk does not answer", 5) from None
        seen = {key[1] for report in reports for key in report.snapshot.gauges if key[0] == "lag"}
        missing = [work for work in WORKS if work not in seen]
        if missing:
            what = " and ".join(missing)
            raise Unavailable(f"no mq-mover serves {what}: start one", 5)
        return json_answer(200, {"ready": True})

    def _of_host(self) -> list[Report]:
        """What all processes of this host count."""
        here = [report for report in self._others() if report.node == self._reports.node]
        snapshot = self._spool.context.metrics.snapshot_quietly()
        return [Report(self._reports.node, self._reports.process, snapshot), *here]

    def _left(self) -> Left | None:
        try:
            return left(self._spool.tree.fd)
        except OSError:
            return None  # the page is wanted most where a disk refuses

    def _others(self) -> list[Report]:
        with as_unavailable("cannot read what other processes report"):
            self._reports.write(self._spool.context.metrics)
            return self._reports.read()

    def _try_disk(self) -> list[Report]:
        with as_unavailable("cannot store a message"):
            try_to_store(self._spool.tree)
        return self._others()


def _seen(trial: asyncio.Future[list[Report]]) -> None:
    """Retrieve the result of an abandoned check, so that asyncio does not log it."""
    if not trial.cancelled():
        trial.exception()


def _by_process(reports: list[Report]) -> dict[str, Snapshot]:
    named: dict[str, list[Snapshot]] = {}
    for report in reports:
        named.setdefault(report.process, []).append(report.snapshot)
    return {process: Snapshot.sum(snapshots) for process, snapshots in sorted(named.items())}


class _Seen(NamedTuple):
    """What a page is made of."""

    processes: dict[str, Snapshot]
    surveyed: dict[str, Overview]
    behind: ByConsumer
    logs: dict[str, LogOverview]
    left: Left | None
    now: float


class _Page:
    """The metrics as a registry of the official library, which writes them."""

    def __init__(self, seen: _Seen, may_see: Callable[[str], bool]) -> None:
        """``may_see`` says which queues it may name."""
        self._processes, self._surveyed, self._behind, self._logs, self._left, self._now = seen
        self._may_see = may_see

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
        yield from families(self._logs, self._may_see)
        for what in METRICS:
            yield self._family(what)

    def _filesystem(self) -> Iterator[Metric]:
        if self._left is None:
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
            if not metric.labels:
                # A counter of what has not happened yet is 0: a rule about it must find one.
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

    def _values(self, what: str, table: str) -> Iterator[tuple[str, Key, Any]]:
        for process, snapshot in self._processes.items():
            for key, value in getattr(snapshot, table).items():
                labels = METRICS[what].labels
                if key[0] != what or len(key) != len(labels) + 1:
                    continue
                of = access.log(key[-1]) if labels == ("log",) else key[-1]
                if labels not in (("queue",), ("log",)) or self._may_see(of):
                    yield process, key, value


def _buckets(bounds: tuple[float, ...], cells: list[float]) -> list[tuple[str, float]]:
    """Upper bounds and how many values are not above them, as Prometheus counts."""
    total = 0.0
    result = []
    for bound, number in zip((*bounds, float("inf")), cells[:-1], strict=True):
        total += number
        result.append(("+Inf" if bound == float("inf") else str(float(bound)), total))
    return result
