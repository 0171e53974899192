"""The cluster: hosts, programs, the spool, and its health on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp.web import StreamResponse

from fsmq.spool import QueueSettings

from ...guard.sight import require_all
from ..page_request import PageRequest

# A larger difference of clocks is pointed out.
_APART_S = 1.0
# The worst first.
_SEVERITIES = ("error", "warning", "note", "ok")


class ClusterPages:
    """The handler of the page of the cluster."""

    def add_pages(self, add: Callable[..., None]) -> None:
        add("GET", "cluster", self.cluster, "Hosts, programs and the spool")

    async def cluster(self, request: PageRequest) -> StreamResponse:
        found = await request.service.inspector.cluster()
        far = await request.service.listing(_shortest, request) / 10
        values: dict[str, Any] = {
            **found,
            "waiting": len(request.service.receiver.waiters),
            "connections": request.service.connections(),
            "share": request.spool.context.ready.share,
            "apart": min(_APART_S, far),
            "far_apart": far,
            "sees_all": request.identity.sees_all_queues,
            "health": None,
        }
        if request.query.get("health"):
            require_all(request.identity)
            await request.service.inspector.health()
        if request.identity.sees_all_queues and (last := request.service.inspector.last_health):
            at, findings = last
            findings = sorted(findings, key=lambda one: _SEVERITIES.index(one.health.value))
            values["health"] = {"at": at, "findings": findings}
        return await request.page("cluster.html", values)


def _shortest(request: PageRequest) -> float:
    """The shortest visibility timeout of all queues that the visitor may see."""
    settings = request.settings_of(request.spool.queues()).values()
    return min(one.visibility_timeout for one in (QueueSettings(), *settings))
