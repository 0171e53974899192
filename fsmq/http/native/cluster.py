"""The hosts and programs on a spool, for people. Part of the native dialect."""

from __future__ import annotations

from typing import Any

from aiohttp.web import StreamResponse

from fsmq.spool.errors import Unavailable
from fsmq.spool.inspection import Health

from ...wire import moment
from ..answers import json_answer
from ..describe import (
    JSON,
    TRUE,
    Answer,
    Operation,
    array,
    integer,
    number,
    or_null,
    query,
    record,
    text,
)
from ..dialect import Handlers
from ..guard.sight import require_all
from ..problem_answers import guarded
from ..routing import needs
from ..routing.call import Call
from ..routing.router import Router
from .forms import MOMENT

HEALTH = query(
    "health",
    "examine the spool, too, as `fsmq doctor` does, not more than once a minute; the key needs a"
    " right on `*`",
    TRUE,
)
_SECONDS = or_null(number(0, 1e12, description="seconds"))
_HOST = record(
    {
        "node": text(),
        "address": text(description="where its mq answers; empty if unknown"),
        "age": number(0, 1e12, description="seconds since its last beat"),
        "clock": or_null(
            {"type": "number", "description": "seconds its clock is ahead of the filesystem's"}
        ),
        "version": or_null(text()),
        "alive": {"type": "boolean"},
    }
)
_PROGRAM = record(
    {
        "node": text(),
        "process": text(),
        "pid": or_null(integer(0)),
        "since": or_null(MOMENT),
        "memory": or_null(integer(0, description="bytes")),
        "lag": {"type": "object", "additionalProperties": number(0, 1e12)},
        "syncs": integer(0),
        "sync_p50": _SECONDS,
        "sync_p99": _SECONDS,
        "group": or_null(number(0, 1e12, description="changes in one sync, on average")),
        "races_lost": integer(0),
        "journal_lag": _SECONDS,
    },
    description="a process, with its counters since it started; `since` and `memory` are known only"
    " on this host",
)
_FOLDER = record({"files": integer(0), "bytes": integer(0), "complete": {"type": "boolean"}})
_SPOOL = record(
    {
        "filesystem": text(),
        "network": {"type": "boolean"},
        "sync": text(),
        "watch": text(enum=["events", "poll"]),
        "bytes": integer(0),
        "free_bytes": integer(0),
        "inodes": integer(0),
        "free_inodes": integer(0),
        "folders": {"type": "object", "additionalProperties": _FOLDER},
        "left_dot_names": integer(0, description="of writers that have probably died"),
    }
)
_CONNECTIONS = record(
    {
        "open": integer(0, description="of the process that answers"),
        "in_use": integer(0, description="of these, how many have a request in progress"),
    }
)
_SHARE = record(
    {
        "rank": integer(0, description="which share of the ids the process prefers"),
        "of": integer(1, description="how many there are: processes that claim"),
    }
)
_FINDING = record(
    {
        "name": text(),
        "health": text(enum=[health.value for health in Health]),
        "text": text(),
        "advice": text(description="what to do, if anything"),
    }
)

_NEED = needs.anybody.then("any right on `*`, for `health`")


class Cluster(Handlers):
    """Handlers for the hosts and programs that use the spool."""

    def add_routes(self, router: Router) -> None:
        router.add("GET", "/_cluster", self.show, self.CLUSTER, _NEED)

    CLUSTER = Operation(
        id="cluster",
        tag="System",
        summary="The hosts and programs on the spool, and its filesystem",
        parameters=(HEALTH,),
        answers={
            200: Answer(
                "What is known of them",
                {
                    JSON: record(
                        {
                            "node": text(description="the host that answers"),
                            "waiting": integer(0, description="requests that wait in the process"),
                            "connections": _CONNECTIONS,
                            "share": _SHARE,
                            "hosts": array(_HOST),
                            "programs": array(_PROGRAM),
                            "spool": _SPOOL,
                            "health": record({"at": MOMENT, "findings": array(_FINDING)}),
                        },
                        required=[
                            "node",
                            "waiting",
                            "connections",
                            "share",
                            "hosts",
                            "programs",
                            "spool",
                        ],
                    )
                },
            ),
            **guarded(Unavailable),
        },
    )

    async def show(self, call: Call) -> StreamResponse:
        identity = call.sender
        wants_health = call.read()[HEALTH] is not None
        if wants_health:
            require_all(identity)
        found = await self._service.inspector.cluster()
        for program in found["programs"]:
            program["since"] = None if program["since"] is None else moment(program["since"])
        share = self._spool.context.ready.share
        answer: dict[str, Any] = {
            **found,
            "waiting": len(self._service.receiver.waiters),
            "connections": self._service.connections(),
            "share": {"rank": share.rank, "of": share.of},
        }
        if wants_health:
            at, findings = await self._service.inspector.health()
            listed = [{**f._asdict(), "health": f.health.value} for f in findings]
            answer["health"] = {"at": moment(at), "findings": listed}
        return json_answer(200, answer)
