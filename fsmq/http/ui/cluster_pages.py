"""The cluster: hosts, programs, the spool, and its health on demand."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from aiohttp.web import StreamResponse

from fsmq.spool.layout.settings import QueueSettings

from .visit import Visit

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
            "unseen": await visit.service.listing(_unseen, visit),
            "health": None,
        }
        if visit.query.get("health"):
            for queue in values["unseen"]:
                visit.identity.require_sight(queue)  # what is found names queues
            at, findings = await visit.service.looks.health()
            values["health"] = {"at": at, "findings": findings}
        return await visit.page("cluster.html", values)


def _unseen(visit: Visit) -> list[str]:
    """The queues that the visitor's key has no right on."""
    return [queue for queue in visit.spool.queues() if not visit.identity.may_see(queue)]


def _shortest(visit: Visit) -> float:
    """The shortest visibility timeout of all queues."""
    found = [QueueSettings().visibility_timeout]
    for queue in visit.spool.queues():
        with suppress(OSError):  # fsck names it
            found.append(visit.spool.context.settings.get(queue).visibility_timeout)
    return min(found)
