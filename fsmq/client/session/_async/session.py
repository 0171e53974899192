"""Sessions with a server, for coroutines: what a client, its queues and its workers share."""

from __future__ import annotations

from typing import Self, TypeVar

from ...errors import ConnectionFailed
from ...exchange import Answer, Pause, Verb
from ...options import Options
from ...verbs.queue_verbs import Verbs
from ..async_connections import AsyncConnections

T = TypeVar("T")


class AsyncSession:
    """Runs verbs on a server."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.verbs = Verbs(options)
        self._connections = AsyncConnections(options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; a later request opens one again."""
        await self._connections.close()

    async def run(self, verb: Verb[T]) -> T:
        """Drive a verb to its result."""
        answer: Answer | None = None
        failed: ConnectionFailed | None = None
        while True:
            try:
                asked = verb.send(answer) if failed is None else verb.throw(failed)
            except StopIteration as end:
                result: T = end.value
                return result
            answer = failed = None
            if isinstance(asked, Pause):
                await self._connections.pause(asked.seconds)
                continue
            try:
                answer = await self._connections.send(asked)
            except ConnectionFailed as error:
                failed = error
