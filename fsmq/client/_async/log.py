"""Logs of a server, and their channels, for coroutines."""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

from fsmq.spool._async.consumed import AsyncConsumed
from fsmq.spool.arguments import Delay, seconds_of
from fsmq.spool.claimed import Claim
from fsmq.spool.errors import OffsetGone
from fsmq.spool.layout.names import check_queue
from fsmq.spool.log._async.channel_base import AsyncChannelBase
from fsmq.spool.log._async.channel_message import AsyncChannelMessage
from fsmq.spool.log.channel import ChannelState
from fsmq.spool.log.delivered import Given, in_claims
from fsmq.spool.log.log import Batch, LogEntry, LogStats
from fsmq.spool.log.log_places import From
from fsmq.spool.log.log_settings import ChannelSettings, LogSettings
from fsmq.spool.log.ranges import Range
from fsmq.spool.log.segment.record import LogMessage
from fsmq.spool.verbs.remove_if import Acked

from ..session._async.session import AsyncSession
from ..verbs.channel_verbs import ChannelVerbs, ClaimsOfWorker
from ..verbs.log_verbs import LogVerbs
from ..workers.async_workers import worker_of

if TYPE_CHECKING:
    from fsmq.spool.worker.async_worker import AsyncWorker

_FOLLOW_S = 20.0


class AsyncClientLog:
    """One ordered log of a server, for coroutines; every verb is durable when it returns.

    docs/client.md says what a retry of each verb finds after a lost answer.
    """

    def __init__(self, client: AsyncSession, name: str) -> None:
        self.client = client
        self.name = name
        self._run = client.run
        self._verbs = LogVerbs(client.verbs, name)

    def __repr__(self) -> str:
        return f"<AsyncClientLog {self.name!r} of {self.client.options.origin}>"

    async def create(self, **settings: Any) -> bool:
        """Create the log durably, with settings; False if it existed, unchanged."""
        return await self._run(self._verbs.create(settings))

    async def delete(self) -> None:
        """Delete the log with all its messages and channels, durably."""
        await self._run(self._verbs.delete())

    async def settings(self) -> LogSettings:
        """The settings of the log."""
        return (await self.stats()).settings

    async def configure(self, **changes: Any) -> LogSettings:
        """Change settings durably, such as ``configure(retain_for=3600)``; returns all settings."""
        return await self._run(self._verbs.configure(changes))

    async def publish(
        self,
        body: bytes | str,
        *,
        key: str | None = None,
        id: str | None = None,
        content_type: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> int:
        """Publish one message; returns its offset. A ``str`` is encoded in UTF-8.

        An ``id`` that was published within ``dedupe_window`` seconds returns the earlier offset.

        Raises MessageTooLarge, LogFull, OtherWriter.
        """
        entry = LogEntry(body, key, id, content_type, attributes or {})
        return await self._run(self._verbs.publish(entry))

    async def publish_many(self, messages: Iterable[bytes | str | LogEntry]) -> range:
        """Publish consecutive messages, all or none; their offsets.

        Raises MessageTooLarge, LogFull, OtherWriter; InvalidValue if some of their ids were
        published before and others were not.
        """
        return await self._run(self._verbs.publish_many(messages))

    async def first(self) -> int:
        """The offset of the first message that has not been removed."""
        return (await self.stats()).first

    async def end(self) -> int:
        """The offset of the next message. All messages before it are durable."""
        return (await self.stats()).next

    async def offset_of(self, place: From) -> int:
        """The offset of a place.

        place: an offset; a datetime with a time zone: that of the first message that is not older;
            "first": the first that is left; "last": the end.
        """
        return await self._run(self._verbs.offset_of(place))

    async def page(self, from_: int, count: int = 1000, max_bytes: int = 64 << 20) -> Batch:
        """Up to ``count`` messages from an offset on. Changes nothing.

        Raises OffsetGone if retention has removed it.
        """
        return await self._run(self._verbs.page(from_, count, max_bytes))

    async def batches(
        self, from_: From = "first", *, follow: bool = False, count: int = 1000
    ) -> AsyncIterator[list[LogMessage]]:
        """Read without a channel: lists of up to ``count`` messages, none of them empty.

        from_: see `offset_of`. follow: at the end wait for more, forever.

        Raises OffsetGone if retention removes the messages to be read next.
        """
        offset = await self.offset_of(from_)
        if isinstance(from_, datetime):
            offset = max(offset, await self.first())
        wait = _FOLLOW_S if follow else 0.0
        is_first = from_ == "first"
        while True:
            try:
                page = await self._run(self._verbs.page(offset, count, 64 << 20, wait))
            except OffsetGone as error:
                if not is_first:
                    raise
                offset, is_first = error.first, False
                continue
            is_first = False
            offset = page.next
            if page.messages:
                yield page.messages
            elif not page.lost and not follow:
                return

    async def read(
        self, from_: From = "first", *, follow: bool = False
    ) -> AsyncIterator[LogMessage]:
        """Read without a channel, message by message; see `batches`."""
        async for batch in self.batches(from_, follow=follow):
            for message in batch:
                yield message

    async def wait(self, offset: int, seconds: float) -> bool:
        """Wait until the log has a message at an offset, ``seconds`` at most; whether it has."""
        return await self._run(self._verbs.wait(offset, seconds))

    async def stats(self) -> LogStats:
        """The log in numbers, from its names and the first and last message."""
        return await self._run(self._verbs.stats())

    @overload
    def channel(self, name: str, *, create: Literal[False] = False) -> AsyncClientChannel: ...
    @overload
    def channel(
        self, name: str, *, create: Literal[True]
    ) -> Coroutine[Any, Any, AsyncClientChannel]: ...
    def channel(
        self, name: str, *, create: bool = False
    ) -> AsyncClientChannel | Coroutine[Any, Any, AsyncClientChannel]:
        """A channel to work with. This creates nothing, unless ``create`` is given.

        Its verbs raise NoSuchChannel if there is none of this name. One that is created here begins
        at the end of the log: see `Channel.create`.
        """
        channel = AsyncClientChannel(self, check_queue(name, "channel"))
        return _created(channel) if create else channel

    async def channels(self) -> list[str]:
        """The names of the log's channels, sorted."""
        return (await self.stats()).channels


class AsyncClientChannel(AsyncChannelBase, AsyncConsumed[AsyncChannelMessage, "AsyncWorker"]):
    """One channel of a log of a server. After a lost answer a claim ends at its deadline."""

    def __init__(self, of: AsyncClientLog, name: str) -> None:
        self.log = of
        self.name = name
        self._run = of.client.run
        self._verbs = ChannelVerbs(of.client.verbs, of.name, name)

    def __repr__(self) -> str:
        return f"<AsyncClientChannel {self.name!r} of {self.log!r}>"

    async def create(self, from_: From = "last", **settings: Any) -> bool:
        """Create the channel durably; False if it existed, unchanged.

        from_: where it begins: "first", "last", an offset, or a datetime with a time zone.
        """
        return await self._run(self._verbs.create(from_, settings))

    async def delete(self) -> None:
        """Delete the channel durably. Retention then no longer keeps messages for it."""
        await self._run(self._verbs.delete())

    async def settings(self) -> ChannelSettings:
        """The settings of the channel."""
        return (await self.state()).settings

    async def configure(self, **changes: Any) -> ChannelSettings:
        """Change settings durably, such as ``configure(max_deliveries=5)``; returns all of them."""
        return await self._run(self._verbs.configure(changes))

    async def claim(
        self, count: int = 1, visibility: float | None = None, wait: float = 0.0
    ) -> list[AsyncChannelMessage]:
        """Claim up to ``count`` messages, in the order of their offsets; [] if there are none.

        visibility: seconds until an unfinished message comes back; None: the channel's setting.
        wait: seconds to wait for a first message.
        """
        claims = await self._run(self._verbs.claim(count, visibility, wait))
        return [AsyncChannelMessage(self, *claim) for claim in claims]

    async def ack_each(
        self, messages: Iterable[Given], claims: Sequence[str | None] | None = None
    ) -> list[Acked]:
        """Acknowledge messages; returns the outcome for each.

        claims: for each message the name of its claim; by default its own.

        An outcome is "removed": it is done, perhaps before; "missing": it was not handed out; or
        "ended": its claim is void.
        """
        return await self._run(self._verbs.ack_each(in_claims(messages, claims)))

    async def done_ranges(self, ranges: Iterable[Range], generation: int | None = None) -> int:
        """Acknowledge half-open ranges of offsets, such as ``[(0, 9)]``; otherwise as ``ack``."""
        return await self._run(self._verbs.done_ranges(ranges, generation))

    async def done_through(self, last: Given) -> int:
        """Acknowledge all messages that were handed out up to this one; otherwise as ``ack``."""
        return await self._run(self._verbs.done_through(last))

    async def renew(
        self, *messages: Given, visibility: float | None = None, claim: str | None = None
    ) -> float:
        """Hold messages for ``visibility`` seconds from now; returns the deadline in Unix seconds.

        claim: as for `ack`. Raises NotInFlight, ClaimVoid.
        """
        return await self._run(self._verbs.renew(in_claims(messages, claim), visibility))

    async def release(
        self,
        *messages: Given,
        delay: Delay = 0.0,
        claim: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Let messages be handed out again, after ``delay``; durably.

        claim: as for `ack`. reason: why their consumer failed, for those whose deliveries are used
        up: kept in the ``dead_letter``, at most 1024 bytes in UTF-8.

        Raises NotInFlight, ClaimVoid.
        """
        given = in_claims(messages, claim)
        await self._run(self._verbs.release(given, seconds_of(delay), reason))

    async def bury(
        self, *messages: Given, reason: str | None = None, claim: str | None = None
    ) -> None:
        """Move messages to the dead-letter queue: they are durable there before they are done here.

        In the order of their offsets: if one cannot be stored, the ones before it have moved.

        reason: kept in their ``dead_letter``; at most 1024 bytes in UTF-8.
        claim: as for `ack`.

        Raises NotInFlight, ClaimVoid; InvalidValue if the channel has no such queue.
        """
        await self._run(self._verbs.bury(in_claims(messages, claim), reason))

    async def seek(self, to: From) -> int:
        """Move the channel to an offset or a time, durably; returns the new position.

        Claims in flight are void: a later ack raises ClaimVoid.
        """
        return await self._run(self._verbs.seek(to))

    async def state(self) -> ChannelState:
        """Where the channel is, and how far it lags."""
        return await self._run(self._verbs.state())

    def _worker(
        self, handler: Callable[[AsyncChannelMessage, Claim], Awaitable[object]], *pace: Any
    ) -> AsyncWorker:
        claim = ClaimsOfWorker(self.log.name, self.name, partial(AsyncChannelMessage, self))
        return worker_of(self.log.client, f"{self.log.name}/{self.name}", claim, handler, *pace)


async def _created(channel: AsyncClientChannel) -> AsyncClientChannel:
    await channel.create()
    return channel
