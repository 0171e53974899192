"""Workers of the client for threads: each has connections of its own, on its event loop.

name, claim: as in `RemoteSource`. pace: as in `WorkerOptions`. asyncio and aiohttp are imported
when a worker is made, because clients that only put and claim do not need them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..options import MAX_CONNECTIONS, Options

if TYPE_CHECKING:
    from fsmq.spool.claimed import Claim
    from fsmq.spool.worker.blocking_worker import Worker

    from ..session._async.session import AsyncSession
    from ..session._sync.session import Session
    from .source import ClaimVerb


def worker_of(
    client: Session,
    name: str,
    claim: ClaimVerb,
    handler: Callable[[Any, Claim], object],
    *pace: Any,
) -> Worker:
    from fsmq.spool.worker.blocking_worker import Worker
    from fsmq.spool.worker.handlers import WorkerOptions

    from .source import RemoteSource

    options = WorkerOptions(*pace)
    own = _own_session(client.options, options.concurrency)
    return Worker(RemoteSource(own, name, claim, owns_session=True), handler, options)


def _own_session(options: Options, concurrency: int) -> AsyncSession:
    """A session with a connection for each message in work, one to claim, and some in reserve."""
    from ..session._async.session import AsyncSession

    connections = min(MAX_CONNECTIONS, max(options.connections, concurrency + 10))
    return AsyncSession(replace(options, connections=connections))
