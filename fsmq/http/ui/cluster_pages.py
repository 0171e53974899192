"""The cluster: hosts, programs, the spool, and its health on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp.web import StreamResponse

from .visit import Visit

# Clocks apart by more are worth a word.
_APART_S = 1.0


class ClusterPages:
    """The handlers."""

    def add_pages(self, add: Callable[..., None]) -> None:
        add("GET", "cluster", self.cluster, "Hosts, programs and the spool")

    async def cluster(self, visit: Visit) -> StreamResponse:
        found = await visit.service.looks.cluster()
        values: dict[str, Any] = {
            **found,
            "waiting": len(visit.service.receiver.waiters),
            "apart": _APART_S,
            "health": None,
        }
        if visit.query.get("health"):
            for queue in await visit.service.listing(visit.spool.queues):
                visit.identity.require_sight(queue)  # what is found names queues
            at, findings = await visit.service.looks.health()
            values["health"] = {"at": at, "findings": findings}
        return await visit.page("cluster.html", values)
