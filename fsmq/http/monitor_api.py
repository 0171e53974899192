"""What the pages for monitoring answer; docs/metrics.md says what it means."""

from __future__ import annotations

from fsmq.spool.errors import Unavailable

from .describe import JSON, Answer, Operation, record, text
from .problem_answers import guarded, problems

METRICS = Operation(
    id="metrics",
    tag="System",
    summary="Metrics of all processes of this host, for Prometheus",
    answers={
        200: Answer(
            "The text format, or OpenMetrics where that is asked for",
            {"text/plain": text(), "application/openmetrics-text": text()},
        ),
        **guarded(Unavailable),
    },
)
LIVE = Operation(
    id="live",
    tag="System",
    summary="Whether the process answers",
    answers={200: Answer("It does", {JSON: record({"live": {"const": True}})}), **problems()},
)
READY = Operation(
    id="ready",
    tag="System",
    summary="Whether messages can be stored and will be delivered",
    answers={
        200: Answer("They can", {JSON: record({"ready": {"const": True}})}),
        **problems(Unavailable),
    },
)
