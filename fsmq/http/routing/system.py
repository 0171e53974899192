"""Routes about the server itself: their paths begin with ``/_``, as no queue's name does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from aiohttp.web import Response, StreamResponse

from ..describe import JSON, Answer, Operation
from ..problem_answers import problems
from ..running.runner import Runner
from .call import Call
from .openapi import document
from .router import Router


class System:
    """Handlers that describe the server, with the routes of these routers."""

    def __init__(self, routers: Sequence[Router], runner: Runner) -> None:
        self._routers = routers
        self._runner = runner
        self._openapi = b""

    def add_routes(self, router: Router) -> None:
        router.add("GET", "/_openapi.json", self.openapi, self.OPENAPI)

    def document(self) -> dict[str, Any]:
        """The OpenAPI document of all routes that are served."""
        return document(route for router in self._routers for route in router.routes())

    OPENAPI = Operation(
        id="openapi",
        open=True,
        tag="System",
        summary="The OpenAPI document of this server",
        answers={200: Answer("The OpenAPI document", {JSON: {"type": "object"}}), **problems()},
    )

    async def openapi(self, call: Call) -> StreamResponse:
        call.read()
        if not self._openapi:
            # Made at the first request, when all dialects have added their routes.
            self._openapi = await self._runner.in_thread(self._written)
        return Response(body=self._openapi, content_type=JSON)

    def _written(self) -> bytes:
        return json.dumps(self.document()).encode() + b"\n"
