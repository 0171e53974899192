"""Workers of the client for coroutines: they share its connections.

name, claim: as in `RemoteSource`. pace: as in `WorkerOptions`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fsmq.spool.claimed import Claim
from fsmq.spool.worker.async_worker import AsyncWorker
from fsmq.spool.worker.handlers import WorkerOptions, on_loop

from ..session._async.session import AsyncSession
from .source import ClaimVerb, RemoteSource


def worker_of(
    client: AsyncSession,
    name: str,
    claim: ClaimVerb,
    handler: Callable[[Any, Claim], Awaitable[object]],
    *pace: Any,
) -> AsyncWorker:
    source = RemoteSource(client, name, claim)
    return AsyncWorker(source, on_loop(handler), WorkerOptions(*pace))
