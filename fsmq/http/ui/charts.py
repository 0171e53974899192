"""Charts: the history of queues, as figures for a script and as sparklines in a table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fsmq.spool.errors import InvalidValue
from fsmq.spool.inspection import Figures, Moment, step_of

from .page_request import PageRequest

SPANS: Mapping[str, float] = {"15min": 900.0, "3h": 10_800.0, "24h": 86_400.0, "72h": 259_200.0}
_SPAN = "3h"
# The span for which the points of the last minutes are shown, too.
_FINE = "15min"
# The size of a sparkline, in the units of its drawing.
_WIDE, _HIGH = 60.0, 16.0


class Spark(NamedTuple):
    """The last hour of a queue: the points of its ready messages, and counts of events."""

    points: str
    most: int
    redelivered: int
    buried: int


async def charts_of(request: PageRequest, queue: str) -> dict[str, Any]:
    """The values for the charts of a queue. Raises InvalidValue, Unavailable."""
    span = request.query.get("span", _SPAN)
    if span not in SPANS:
        raise InvalidValue("span", f"expected one of: {', '.join(SPANS)}")
    now = request.now
    since = now - SPANS[span]
    step = step_of(since, now, 1)
    found = await request.service.inspector.history([queue], since, now, step)
    recent = request.service.recent.of(queue, since) if span == _FINE else []
    return {
        "span": span,
        "spans": tuple(SPANS),
        "step": step,
        "since": since,
        "until": now,
        "recent": json.dumps(recent) if recent else "",
        "moments": found[queue],
        "figures": Figures._fields,
    }


def spark(moments: Sequence[Moment], since: float, until: float) -> Spark:
    """The sparkline of a queue between two moments, in Unix seconds."""
    figures = [moment.figures for moment in moments]
    most = max((one.ready for one in figures), default=0)
    points = " ".join(
        f"{_WIDE * (moment.at - since) / (until - since):.1f},"
        f"{_HIGH - 1 - (_HIGH - 2) * (moment.figures.ready / most if most else 0):.1f}"
        for moment in moments
        if since <= moment.at <= until
    )
    redelivered = sum(one.redelivered for one in figures)
    return Spark(points, most, redelivered, sum(one.buried for one in figures))
