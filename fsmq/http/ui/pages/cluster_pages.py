"""The cluster: hosts, programs, the spool, and its health on demand."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from aiohttp.web import StreamResponse

from fsmq.spool.layout.settings import QueueSettings

from ...guard.sight import require_all
from ..visit import Visit

# Clocks apart by more are worth a word.
_APART_S = 1.0


class ClusterPages:
    """The handlers."""

    def add_pages(self, add: Callable[..., None]) -> None:
        add("GET", "cluster", self.cluster, "Hosts, programs and the spool")

    async def cluster(self, visit: Visit) -> StreamResponse:
        found = await visit.service.looks.cluster()
        far = await visit.service.listing(_shortest, visit) / 10
        values: dict[str, Any] = {
            **found,
            "waiting": len(visit.service.receiver.waiters),
            "connections": visit.service.connections(),
            "share": visit.spool.context.ready.share,
            "apart": min(_APART_S, far),
            "far_apart": far,
            "sees_all": visit.identity.sees_all_queues,
            "health": None,
        }
        if visit.query.get("health"):
            require_all(visit.identity)
            at, findings = await visit.service.looks.health()
            values["health"] = {"at": at, "findings": findings}
        return await visit.page("cluster.html", values)


def _shortest(visit: Visit) -> float:
    """The shortest visibility timeout of all queues that the visitor may see."""
    found = [QueueSettings().visibility_timeout]
    for queue in visit.identity.visible(visit.spool.queues()):
        with suppress(OSError):  # fsck names it
            found.append(visit.spool.context.settings.get(queue).visibility_timeout)
    return min(found)
