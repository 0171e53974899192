"""The application for coroutines that a worker process of these tests imports: see `shop`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from fsmq.tasks import AsyncTasks
from tests.tasks.shop import note

app = AsyncTasks(os.environ.get("FSMQ_TASKS_AT", "http://nowhere"), "coroutines", results="values")


@app.task
async def double(n: int) -> int:
    await asyncio.sleep(0)
    return 2 * n


@app.task(timeout=0.2, retries=0)
def stuck(pipe: str) -> None:
    note("stuck", os.getpid())
    Path(pipe).read_text()
