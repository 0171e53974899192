"""The verbs on whole logs and channels, for requests of all dialects.

Dialects check rights and make the answers. Each verb raises what that of the log raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from fsmq.spool import Channel, Spool
from fsmq.spool.inspection import named
from fsmq.spool.prepare import MAX_CLAIMS
from fsmq.spool.resources import ChannelSettings, From, LogSettings

from .logs import OpenLogs

OfChannel: TypeAlias = tuple[str, str]
"""The names of a log and of its channel."""


class LogResources:
    """The verbs on one spool's logs. All changes are durable when a verb returns."""

    def __init__(self, spool: Spool, logs: OpenLogs) -> None:
        self._spool = spool
        self._logs = logs

    # -- logs --------------------------------------------------------------------------------------

    async def create_log(self, log: str, settings: Mapping[str, Any]) -> bool:
        """Create a log; False if it existed, and is unchanged."""
        return await self._logs.run(self._spool.open_logs.create, log, settings)

    async def configure_log(
        self, log: str, change: Callable[[LogSettings], Mapping[str, Any]]
    ) -> LogSettings:
        """Change settings of a log; returns all of them."""
        return await self._logs.run(self._spool.open_logs.configure, log, change)

    async def delete_log(self, log: str) -> None:
        """Delete a log with all its messages and channels."""
        await self._logs.run(self._spool.log(log).delete)

    # -- channels ----------------------------------------------------------------------------------

    async def create_channel(self, of: OfChannel, start: From, settings: Mapping[str, Any]) -> bool:
        """Create a channel that begins at a place; False if it existed, and is unchanged."""
        opened = self._spool.log(of[0]).channel(of[1])
        return await self._logs.run(partial(opened.create, start, **settings))

    async def configure_channel(
        self, of: OfChannel, change: Callable[[ChannelSettings], Mapping[str, Any]]
    ) -> ChannelSettings:
        """Change settings of a channel; returns all of them."""

        def verb(channel: Channel) -> ChannelSettings:
            return channel.change(change)

        return await self._logs.change(of, verb, MAX_CLAIMS)

    async def delete_channel(self, of: OfChannel) -> None:
        """Delete a channel; messages that only it kept can then be removed."""
        await self._logs.change(of, Channel.delete, MAX_CLAIMS)

    async def seek(self, of: OfChannel, to: From) -> int:
        """Move a channel; returns its new position. Claims in flight become void."""
        return await self._logs.change(of, partial(Channel.seek, to=to), MAX_CLAIMS)

    async def bury(
        self, of: OfChannel, offset: int, generation: int, deliveries: int, reason: str | None
    ) -> None:
        """Move a message to the channel's dead-letter queue.

        generation, deliveries: those of the claim; 0: whatever they are now.
        """

        def verb(channel: Channel) -> None:
            channel.bury(named(offset, generation, deliveries), reason=reason)

        await self._logs.change(of, verb)
