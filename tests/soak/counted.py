"""mq with its own figures in a file: ``python -m tests.soak.weighed --weights=FILE OPTIONS…``.

FILE holds what it counts as held, as JSON, a moment old at most: bytes of bodies, open requests,
waiting ones, bytes that were sent ahead, bytes that wait for clients, and connections.
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


async def _weigh(server: Server, file: Path) -> None:
    new = file.with_suffix(".new")
    while True:
        admission, connections = server.service.admission, server._connections
        figures = {
            "memory": admission.memory,
            "of keys": admission._memory.total(),
            "requests": server._open.number,
            "waiting": admission._waiting.total(),
            "ahead": connections.ahead.size,
            "unsent": connections.unsent.size,
            "connections": len(connections.open),
        }
        new.write_text(json.dumps(figures))
        os.replace(new, file)
        await asyncio.sleep(_PAUSE_S)


def _weigh_all(file: Path) -> None:
    start = Server.start
    tasks = []

    async def start_both(server: Server, *of: object) -> None:
        await start(server, *of)  # type: ignore[arg-type]
        tasks.append(asyncio.get_running_loop().create_task(_weigh(server, file)))

    Server.start = start_both  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    _weigh_all(Path(sys.argv.pop(1).removeprefix("--weights=")))
    main(prog_name="mq")
