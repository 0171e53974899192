"""The hosts that serve the spool, and the part of the ids that this host prefers."""

from __future__ import annotations

from aiohttp.web import StreamResponse

from fsmq.spool.errors import as_unavailable
from fsmq.spool.inspection import peers

from ..routing.call import Call
from ..service.service import Service
from .answers import answer, plain

# The number of places among which Dynamiq distributes ids.
PLACES = 2**63


class Status:
    """Handlers that answer from the heartbeat files."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def servers(self, call: Call) -> StreamResponse:
        hosts = await self._service.in_thread(self._hosts)
        return plain("".join(f"Member: {host.name} {_alone(host.address)}\n" for host in hosts))

    async def partition_range(self, call: Call) -> StreamResponse:
        share, processes = self._service.spool.context.ready.share, self._service.processes
        first = share.rank - share.rank % processes
        bottom = first * PLACES // share.of
        top = (first + processes) * PLACES // share.of - 1
        return answer(200, {"bottom": str(bottom), "top": str(top)})

    def _hosts(self) -> list[peers.Host]:
        with as_unavailable("cannot list the hosts"):
            return peers.hosts(self._service.spool.tree, self._service.node)


def _alone(address: str) -> str:
    """An address without its port, as Dynamiq's servers show it."""
    host, _, port = address.rpartition(":")
    return host.strip("[]") if port.isdecimal() else address
