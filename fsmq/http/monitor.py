"""Monitoring: metrics for Prometheus, and health checks."""

from __future__ import annotations

import asyncio

from aiohttp import hdrs
from aiohttp.web import Response, StreamResponse

from fsmq.spool.errors import Unavailable, as_unavailable
from fsmq.spool.inspection import Left, Report, left, limits_reached, try_to_store
from fsmq.spool.prepare import LARGE_BYTES

from .answers import json_answer
from .connection.pieces import Pieces
from .describe import JSON, Answer, Operation, array, json_object, record, text
from .guard.sight import ruled_by
from .problem_answers import keyed, problems
from .routing import needs
from .routing.bodies import split
from .routing.call import Call
from .routing.router import Router
from .service.service import Service

# A disk that has not stored a byte after this time counts as failed.
_DISK_PATIENCE_S = 5.0
_SHORT = (
    "limits that are reached, so that programs of this host list folders instead of watching them"
)
# The kinds of work of a mover; for each there has to be a live one.
WORKS = ("new", "timers")


class Monitor:
    """Handlers for metrics and for checks of the spool and its processes."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._spool = service.spool
        self._reports = service.reports
        self._trial: asyncio.Future[list[Report]] | None = None

    def add_routes(self, router: Router) -> None:
        for method in ("GET", "HEAD"):
            router.add(method, "/_metrics", self.metrics, self.METRICS, needs.anybody)
            router.add(method, "/_health/live", self.live, self.LIVE)
            router.add(method, "/_health/ready", self.ready, self.READY)

    METRICS = Operation(
        id="metrics",
        tag="System",
        summary="Metrics of all processes of this host, for Prometheus",
        answers={
            200: Answer(
                "The text format, or OpenMetrics if that is asked for",
                {"text/plain": text(), "application/openmetrics-text": text()},
            ),
            **keyed(Unavailable),
        },
    )

    async def metrics(self, call: Call) -> StreamResponse:
        identity = call.sender
        call.read()
        call.admit()
        surveys = self._service.surveys
        surveyed, behind, logs = (
            await surveys.queues(),
            await surveys.consumers(),
            await surveys.logs(),
        )
        accepted = call.request.headers.get(hdrs.ACCEPT, "")

        def page() -> tuple[bytes, str]:
            from .metrics_page import Seen, render  # large, and perhaps never needed

            now = self._spool.context.clock()
            schedules = {one.name: ruled_by(one) for one in self._spool.schedules()}
            seen = Seen(self._of_host(), surveyed, behind, logs, schedules, self._left(), now)
            return render(seen, identity, accepted)

        body, kind = await self._service.listing(page)
        pieces = body if len(body) <= LARGE_BYTES else Pieces(split(body), len(body))
        call.answer_with(len(body))
        return Response(body=pieces, headers={hdrs.CONTENT_TYPE: kind})

    LIVE = Operation(
        id="live",
        open=True,
        tag="System",
        summary="Whether the process is alive",
        answers={200: json_object("It is", {"live": {"const": True}}), **problems()},
    )

    async def live(self, call: Call) -> StreamResponse:
        call.read()
        return json_answer(200, {"live": True})

    READY = Operation(
        id="ready",
        open=True,
        tag="System",
        summary="Whether messages can be stored and will be delivered",
        answers={
            200: Answer(
                "They can",
                {
                    JSON: record(
                        {"ready": {"const": True}, "short": array(text(), description=_SHORT)},
                        required=["ready"],
                    )
                },
            ),
            **problems(Unavailable),
        },
    )

    async def ready(self, call: Call) -> StreamResponse:
        call.read()
        if self._service.stopping:
            raise Unavailable("the server is shutting down", 1)
        if self._trial is None or self._trial.done():
            # One trial for all requests, so that a disk that hangs blocks only one thread.
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
        own = self._spool.context.metrics.snapshot_quietly()
        snapshots = [own, *(one.snapshot for one in reports if one.node == self._reports.node)]
        short = limits_reached(snapshots)
        return json_answer(200, {"ready": True, "short": short} if short else {"ready": True})

    def _of_host(self) -> list[Report]:
        """The metrics of all processes of this host."""
        here = [report for report in self._others() if report.node == self._reports.node]
        snapshot = self._spool.context.metrics.snapshot_quietly()
        return [Report(self._reports.node, self._reports.process, snapshot), *here]

    def _left(self) -> Left | None:
        try:
            return left(self._spool.tree.fd)
        except OSError:
            return None  # the page is needed most when a disk fails

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
