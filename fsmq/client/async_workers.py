"""Workers of the client for coroutines: they share its connections.

name, claim: as of `RemoteSource`. pace: as of `WorkerOptions`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from fsmq.spool.layout.messages.message import Message
from fsmq.spool.log._async.channel_message import AsyncChannelMessage
from fsmq.spool.worker.async_worker import AsyncWorker
from fsmq.spool.worker.handlers import Claim, WorkerOptions, on_loop

from .channel_source import RemoteChannel
from .source import ClaimVerb, RemoteSource

if TYPE_CHECKING:
    from ._async.client import AsyncClient
    from ._async.log import AsyncClientChannel


def queue_worker(
    client: AsyncClient,
    name: str,
    claim: ClaimVerb,
    handler: Callable[[Message, Claim], Awaitable[object]],
    *pace: Any,
) -> AsyncWorker:
    source = RemoteSource(client, name, claim)
    return AsyncWorker(source, on_loop(handler), WorkerOptions(*pace))


def channel_worker(
    channel: AsyncClientChannel,
    handler: Callable[[AsyncChannelMessage, Claim], Awaitable[object]],
    *pace: Any,
) -> AsyncWorker:
    source = RemoteChannel(channel.log.client, channel.log.name, channel.name)
    return AsyncWorker(source, on_loop(handler), WorkerOptions(*pace))
