"""Runs mq with its counters in a file: ``python -m tests.soak.counted --counters=FILE OPTIONS…``.

FILE has the current values as JSON: bytes of bodies, open and waiting requests, bytes that were
sent ahead, unsent bytes, and connections.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from fsmq.daemons.mq import main
from fsmq.http.server import Server

_PAUSE_S = 0.02


async def _write(server: Server, file: Path) -> None:
    draft = file.with_suffix(".new")
    while True:
        admission, connections = server.service.admission, server._connections
        counters = {
            "memory": admission.memory,
            "of keys": admission._memory.total(),
            "requests": server._open.number,
            "waiting": admission._waiting.total(),
            "ahead": connections.ahead.size,
            "unsent": connections.unsent.size,
            "connections": len(connections.open),
        }
        draft.write_text(json.dumps(counters))
        os.replace(draft, file)
        await asyncio.sleep(_PAUSE_S)


def _write_counters(file: Path) -> None:
    start = Server.start
    tasks = []

    async def start_both(server: Server, *arguments: object) -> None:
        await start(server, *arguments)  # type: ignore[arg-type]
        tasks.append(asyncio.get_running_loop().create_task(_write(server, file)))

    Server.start = start_both  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    _write_counters(Path(sys.argv.pop(1).removeprefix("--counters=")))
    main(prog_name="mq")
