"""Workers of the client for threads: each has connections of its own, on its event loop.

name, claim: as of `RemoteSource`. pace: as of `WorkerOptions`. What they need is imported when one
is made: asyncio and aiohttp, which who only puts and claims can do without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .options import MAX_CONNECTIONS, Options

if TYPE_CHECKING:
    from fsmq.spool import ChannelMessage
    from fsmq.spool.layout.messages.message import Message
    from fsmq.spool.worker.blocking_worker import Worker
    from fsmq.spool.worker.handlers import Claim

    from ._async.client import AsyncClient
    from ._sync.client import Client
    from ._sync.log import ClientChannel
    from .source import ClaimVerb


def queue_worker(
    client: Client,
    name: str,
    claim: ClaimVerb,
    handler: Callable[[Message, Claim], object],
    *pace: Any,
) -> Worker:
    from fsmq.spool.worker.blocking_worker import Worker
    from fsmq.spool.worker.handlers import WorkerOptions

    from .source import RemoteSource

    options = WorkerOptions(*pace)
    own = _own_client(client.options, options.concurrency)
    return Worker(RemoteSource(own, name, claim, owns_client=True), handler, options)


def channel_worker(
    channel: ClientChannel, handler: Callable[[ChannelMessage, Claim], object], *pace: Any
) -> Worker:
    from fsmq.spool.worker.blocking_worker import Worker
    from fsmq.spool.worker.handlers import WorkerOptions

    from .channel_source import RemoteChannel

    options = WorkerOptions(*pace)
    log = channel.log
    own = _own_client(log.client.options, options.concurrency)
    source = RemoteChannel(own, log.name, channel.name, owns_client=True)
    return Worker(source, handler, options)


def _own_client(options: Options, concurrency: int) -> AsyncClient:
    """With a connection for each message in work, one that claims, and some in reserve."""
    from ._async.client import AsyncClient

    connections = min(MAX_CONNECTIONS, max(options.connections, concurrency + 10))
    return AsyncClient(**vars(replace(options, connections=connections)))
