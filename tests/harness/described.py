"""What the routes of the native dialect describe, for tests and for tables of the docs."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from functools import cache
from threading import Thread

from fsmq.http.native.dialect import NativeDialect
from fsmq.http.routing.router import Route
from fsmq.http.service.service import Service
from fsmq.spool import Spool


@cache
def native_routes() -> Sequence[Route]:
    """Every route; those of ``HEAD`` are that of ``GET`` once more."""
    found: list[Route] = []

    async def look() -> None:
        with tempfile.TemporaryDirectory() as folder, Spool(f"{folder}/mq", sync="none") as spool:
            found.extend(NativeDialect(Service(spool)).router.routes())

    # A test may have a loop of its own.
    thread = Thread(target=lambda: asyncio.run(look()))
    thread.start()
    thread.join()
    return found
