"""Workers of the client for coroutines: they share its connections.

name, claim: as of `RemoteSource`. pace: as of `WorkerOptions`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fsmq.spool.layout.messages.message import Message
from fsmq.spool.log._async.channel_message import AsyncChannelMessage
from fsmq.spool.worker.async_worker import AsyncWorker
from fsmq.spool.worker.handlers import Claim, WorkerOptions, on_loop

from ..session._async.session import AsyncSession
from .channel_source import RemoteChannel
from .source import ClaimVerb, RemoteSource


def queue_worker(
    client: AsyncSession,
    name: str,
    claim: ClaimVerb,
    handler: Callable[[Message, Claim], Awaitable[object]],
    *pace: Any,
) -> AsyncWorker:
    source = RemoteSource(client, name, claim)
    return AsyncWorker(source, on_loop(handler), WorkerOptions(*pace))


def channel_worker(
    client: AsyncSession,
    log: str,
    name: str,
    handler: Callable[[AsyncChannelMessage, Claim], Awaitable[object]],
    *pace: Any,
) -> AsyncWorker:
    source = RemoteChannel(client, log, name)
    return AsyncWorker(source, on_loop(handler), WorkerOptions(*pace))
