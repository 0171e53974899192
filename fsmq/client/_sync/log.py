# Made from ../_async/log.py by `make sync`: change that one.
"""Logs of a server, and their channels."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from fsmq.spool._sync.consumed import Consumed
from fsmq.spool.arguments import Delay, seconds_of
from fsmq.spool.claimed import Claim
from fsmq.spool.errors import OffsetGone
from fsmq.spool.layout.names import check_queue
from fsmq.spool.log._sync.channel_base import ChannelBase
from fsmq.spool.log._sync.channel_message import ChannelMessage
from fsmq.spool.log.channel import ChannelState
from fsmq.spool.log.delivered import Given, in_claims
from fsmq.spool.log.log import Batch, LogEntry, LogStats
from fsmq.spool.log.log_places import From
from fsmq.spool.log.log_settings import ChannelSettings, LogSettings
from fsmq.spool.log.ranges import Range
from fsmq.spool.log.segment.record import LogMessage
from fsmq.spool.verbs.remove_if import Acked

from ..session._sync.session import Session
from ..verbs.channel_verbs import ChannelVerbs, ClaimsOfWorker
from ..verbs.log_verbs import LogVerbs
from ..workers.workers import worker_of

if TYPE_CHECKING:
    from fsmq.spool.worker.blocking_worker import Worker

_FOLLOW_S = 20.0


class ClientLog:
    """One ordered log of a server; every verb is durable when it returns.

    docs/client.md says what a retry of each verb finds after a lost answer.
    """

    def __init__(self, client: Session, name: str) -> None:
        self.client = client
        self.name = name
        self._run = client.run
        self._verbs = LogVerbs(client.verbs, name)

    def __repr__(self) -> str:
        return f"<ClientLog {self.name!r} of {self.client.options.origin}>"

    def create(self, **settings: Any) -> bool:
        """Create the log durably, with settings; False if it existed, unchanged."""
        return self._run(self._verbs.create(settings))

    def delete(self) -> None:
        """Delete the log with all its messages and channels, durably."""
        self._run(self._verbs.delete())

    def settings(self) -> LogSettings:
        """The settings of the log."""
        return self.stats().settings

    def configure(self, **changes: Any) -> LogSettings:
        """Change settings durably, such as ``configure(retain_for=3600)``; returns all settings."""
        return self._run(self._verbs.configure(changes))

    def publish(
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
        return self._run(self._verbs.publish(entry))

    def publish_many(self, messages: Iterable[bytes | str | LogEntry]) -> range:
        """Publish consecutive messages, all or none; their offsets.

        Raises MessageTooLarge, LogFull, OtherWriter; InvalidValue if some of their ids were
        published before and others were not.
        """
        return self._run(self._verbs.publish_many(messages))

    def first(self) -> int:
        """The offset of the first message that has not been removed."""
        return self.stats().first

    def end(self) -> int:
        """The offset of the next message. All messages before it are durable."""
        return self.stats().next

    def offset_of(self, place: From) -> int:
        """The offset of a place.

        place: an offset; a datetime with a time zone: that of the first message that is not older;
            "first": the first that is left; "last": the end.
        """
        return self._run(self._verbs.offset_of(place))

    def page(self, from_: int, count: int = 1000, max_bytes: int = 64 << 20) -> Batch:
        """Up to ``count`` messages from an offset on. Changes nothing.

        Raises OffsetGone if retention has removed it.
        """
        return self._run(self._verbs.page(from_, count, max_bytes))

    def batches(
        self, from_: From = "first", *, follow: bool = False, count: int = 1000
    ) -> Iterator[list[LogMessage]]:
        """Read without a channel: lists of up to ``count`` messages, none of them empty.

        from_: see `offset_of`. follow: at the end wait for more, forever.

        Raises OffsetGone if retention removes the messages to be read next.
        """
        offset = self.offset_of(from_)
        if isinstance(from_, datetime):
            offset = max(offset, self.first())
        wait = _FOLLOW_S if follow else 0.0
        is_first = from_ == "first"
        while True:
            try:
                page = self._run(self._verbs.page(offset, count, 64 << 20, wait))
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

    def read(self, from_: From = "first", *, follow: bool = False) -> Iterator[LogMessage]:
        """Read without a channel, message by message; see `batches`."""
        for batch in self.batches(from_, follow=follow):
            yield from batch

    def wait(self, offset: int, seconds: float) -> bool:
        """Wait until the log has a message at an offset, ``seconds`` at most; whether it has."""
        return self._run(self._verbs.wait(offset, seconds))

    def stats(self) -> LogStats:
        """The log in numbers, from its names and the first and last message."""
        return self._run(self._verbs.stats())

    def channel(self, name: str, *, create: bool = False) -> ClientChannel:
        """A channel to work with. This creates nothing, unless ``create`` is given.

        Its verbs raise NoSuchChannel if there is none of this name. One that is created here begins
        at the end of the log: see `Channel.create`.
        """
        channel = ClientChannel(self, check_queue(name, "channel"))
        return _created(channel) if create else channel

    def channels(self) -> list[str]:
        """The names of the log's channels, sorted."""
        return self.stats().channels


class ClientChannel(ChannelBase, Consumed[ChannelMessage, "Worker"]):
    """One channel of a log of a server. After a lost answer a claim ends at its deadline."""

    def __init__(self, of: ClientLog, name: str) -> None:
        self.log = of
        self.name = name
        self._run = of.client.run
        self._verbs = ChannelVerbs(of.client.verbs, of.name, name)

    def __repr__(self) -> str:
        return f"<ClientChannel {self.name!r} of {self.log!r}>"

    def create(self, from_: From = "last", **settings: Any) -> bool:
        """Create the channel durably; False if it existed, unchanged.

        from_: where it begins: "first", "last", an offset, or a datetime with a time zone.
        """
        return self._run(self._verbs.create(from_, settings))

    def delete(self) -> None:
        """Delete the channel durably. Retention then no longer keeps messages for it."""
        self._run(self._verbs.delete())

    def settings(self) -> ChannelSettings:
        """The settings of the channel."""
        return self.state().settings

    def configure(self, **changes: Any) -> ChannelSettings:
        """Change settings durably, such as ``configure(max_deliveries=5)``; returns all of them."""
        return self._run(self._verbs.configure(changes))

    def claim(
        self, count: int = 1, visibility: float | None = None, wait: float = 0.0
    ) -> list[ChannelMessage]:
        """Claim up to ``count`` messages, in the order of their offsets; [] if there are none.

        visibility: seconds until an unfinished message comes back; None: the channel's setting.
        wait: seconds to wait for a first message.
        """
        claims = self._run(self._verbs.claim(count, visibility, wait))
        return [ChannelMessage(self, *claim) for claim in claims]

    def ack_each(
        self, messages: Iterable[Given], claims: Sequence[str | None] | None = None
    ) -> list[Acked]:
        """Acknowledge messages; returns the outcome for each.

        claims: for each message the name of its claim; by default its own.

        An outcome is "removed": it is done, perhaps before; "missing": it was not handed out; or
        "ended": its claim is void.
        """
        return self._run(self._verbs.ack_each(in_claims(messages, claims)))

    def done_ranges(self, ranges: Iterable[Range], generation: int | None = None) -> int:
        """Acknowledge half-open ranges of offsets, such as ``[(0, 9)]``; otherwise as ``ack``."""
        return self._run(self._verbs.done_ranges(ranges, generation))

    def done_through(self, last: Given) -> int:
        """Acknowledge all messages that were handed out up to this one; otherwise as ``ack``."""
        return self._run(self._verbs.done_through(last))

    def renew(
        self, *messages: Given, visibility: float | None = None, claim: str | None = None
    ) -> float:
        """Hold messages for ``visibility`` seconds from now; returns the deadline in Unix seconds.

        claim: as for `ack`. Raises NotInFlight, ClaimVoid.
        """
        return self._run(self._verbs.renew(in_claims(messages, claim), visibility))

    def release(
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
        self._run(self._verbs.release(given, seconds_of(delay), reason))

    def bury(self, *messages: Given, reason: str | None = None, claim: str | None = None) -> None:
        """Move messages to the dead-letter queue: they are durable there before they are done here.

        In the order of their offsets: if one cannot be stored, the ones before it have moved.

        reason: kept in their ``dead_letter``; at most 1024 bytes in UTF-8.
        claim: as for `ack`.

        Raises NotInFlight, ClaimVoid; InvalidValue if the channel has no such queue.
        """
        self._run(self._verbs.bury(in_claims(messages, claim), reason))

    def seek(self, to: From) -> int:
        """Move the channel to an offset or a time, durably; returns the new position.

        Claims in flight are void: a later ack raises ClaimVoid.
        """
        return self._run(self._verbs.seek(to))

    def state(self) -> ChannelState:
        """Where the channel is, and how far it lags."""
        return self._run(self._verbs.state())

    def _worker(self, handler: Callable[[ChannelMessage, Claim], object], *pace: Any) -> Worker:
        claim = ClaimsOfWorker(self.log.name, self.name, partial(ChannelMessage, self))
        return worker_of(self.log.client, f"{self.log.name}/{self.name}", claim, handler, *pace)


def _created(channel: ClientChannel) -> ClientChannel:
    channel.create()
    return channel
