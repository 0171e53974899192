"""The admin port, on which EmoDB's clients and Dropwizard's tools check the server's health.

After a failed request the Java client sends ``HEAD /healthcheck``, and nothing else until it gets
200. It sends no key, so the answers reveal nothing but whether the server is healthy.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from dataclasses import replace

from aiohttp import web
from aiohttp.web import BaseRequest, Response, StreamResponse

from fsmq.spool.on_disk import DELAY, NEW, QUEUES

from ..connection.listener import Listener
from ..connection.serving import ProblemServer
from ..routing.call import split_target
from ..service.service import Service

_BACKLOG = 128
_CONNECTIONS = 128


class Admin:
    """Serves ``/healthcheck`` and ``/ping`` on a socket of its own."""

    def __init__(self, service: Service) -> None:
        self._service = service
        limits = service.admission.limits
        # Health checks are rare; most file descriptors are for the clients of queues.
        limits = replace(limits, connections=min(limits.connections, _CONNECTIONS))
        self._server = ProblemServer(self._answer, limits)
        self._runner = web.ServerRunner(self._server, shutdown_timeout=1.0)
        self._listener: Listener | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def start(self, listening: socket.socket) -> None:
        await self._runner.setup()
        self._keeper = asyncio.create_task(self._server.open_connections.enforce_timeouts())
        self._listener = Listener(listening, self._server)
        self._listener.start(_BACKLOG)

    async def stop(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        if self._keeper is not None:
            self._keeper.cancel()
        await self._runner.cleanup()

    async def _answer(self, request: BaseRequest) -> StreamResponse:
        path = split_target(request.path)[0]
        if path not in ("/healthcheck", "/ping"):
            return Response(status=404, text="there are /healthcheck and /ping\n")
        if request.method not in ("GET", "HEAD"):
            return Response(status=405, headers={"Allow": "GET,HEAD"})
        if path == "/ping":
            return Response(text="pong")
        checks = await self._service.in_thread(self._checks)
        well = all(check["healthy"] for check in checks.values())
        body = json.dumps(checks).encode()
        return Response(status=200 if well else 500, body=body, content_type="application/json")

    def _checks(self) -> dict[str, dict[str, object]]:
        if self._service.stopping:
            return {"server": {"healthy": False, "message": "it is shutting down"}}
        tree = self._service.spool.tree
        try:
            for folder in (NEW, QUEUES, DELAY):
                os.stat(tree.folder(folder), dir_fd=tree.fd)
        except OSError as error:
            return {"spool": {"healthy": False, "message": error.strerror or "is not there"}}
        return {"spool": {"healthy": True}}
