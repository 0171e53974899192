"""Helpers for tests of the library and of both clients with the same code."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from fsmq import AsyncClient, Queue

Work = Callable[..., Coroutine[Any, Any, None]]
WAIT_S = 20.0


async def done(result: Any) -> Any:
    """The result of a method, awaited if necessary."""
    return await result if inspect.isawaitable(result) else result


@asynccontextmanager
async def inside(context: Any) -> AsyncIterator[Any]:
    """Enter a context manager, async or not."""
    if hasattr(context, "__aenter__"):
        async with context as entered:
            yield entered
    else:
        with context as entered:
            yield entered


def place_of(queue: Any) -> Any:
    """The spool or the client of a queue."""
    return queue.spool if isinstance(queue, Queue) else queue.client


def worker_of(place: Any, source: Any, work: Work, **options: Any) -> Any:
    """A worker whose handler awaits ``work``: on the loop of the async client, or in a thread."""

    def in_thread(message: Any, claim: Any) -> None:
        asyncio.run(work(message, claim))

    return source.worker(work if isinstance(place, AsyncClient) else in_thread, **options)


async def run(place: Any, worker: Any) -> None:
    """Run a worker to its end, without signal handlers."""
    if isinstance(place, AsyncClient):
        await worker.run(signals=False)
    else:
        await asyncio.to_thread(worker.run, signals=False)
