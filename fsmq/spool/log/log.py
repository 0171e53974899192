"""One log of a spool, as programs use it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from ..errors import (
    FsmqError,
    InvalidValue,
    MessageTooLarge,
    NoSuchLog,
    OffsetGone,
    as_unavailable,
)
from ..layout.messages.message import NewMessage
from ..layout.settings import check_number
from .channel import Channel
from .log_places import From
from .log_settings import LogSettings
from .open_log import OpenLog
from .reader import Page
from .segment.record import Entry, LogMessage, entry
from .store import Store

MAX_BATCH_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A message to be published.

    key: channels whose ``order`` is key keep messages of one key in order.
    id: a publish of the same id within the log's ``dedupe_window`` stores nothing.
    """

    body: bytes | str
    key: str | None = None
    id: str | None = None
    content_type: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)


class LogStats(NamedTuple):
    """A log in numbers. Times are Unix seconds, None where there are no messages.

    first: the first offset that is left. next: the offset of the next message.
    """

    first: int
    next: int
    bytes: int
    segments: int
    oldest_at: float | None
    newest_at: float | None
    channels: list[str]
    settings: LogSettings
    uuid: str


class Batch(NamedTuple):
    """Messages that were read, the next offset, and how many offsets had no readable message."""

    messages: list[LogMessage]
    next: int
    lost: int


class Log(OpenLog):
    """One ordered log of a spool, with every verb durable when it returns. Safe in threads.

    All methods raise :class:`~fsmq.spool.errors.FsmqError`: InvalidValue for a bad argument,
    NoSuchLog if there is no such log, Unavailable when the disk fails or is full.
    """

    def create(self, **settings: Any) -> bool:
        """Create the log durably, with settings; False if it existed, unchanged."""
        return self._logs.create(self.name, settings)

    def delete(self) -> None:
        """Delete the log with all its messages and channels, durably."""
        self._logs.delete(self.name)

    def settings(self) -> LogSettings:
        """The settings of the log."""
        store = self._store
        with as_unavailable(f"cannot read log {self.name!r}"):
            return store.about().settings

    def configure(self, **changes: Any) -> LogSettings:
        """Change settings durably, such as ``configure(retain_for=3600)``; returns all settings."""
        return self._logs.configure(self.name, lambda _: changes)

    # -- publish ---------------------------------------------------------------------------------

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
        given = LogEntry(body, key, id, content_type, attributes or {})
        try:
            return self._published([self._entry(given)])
        except MessageTooLarge as error:
            error.index = None  # there is no other
            raise

    def publish_many(self, messages: Iterable[bytes | str | LogEntry]) -> range:
        """Publish consecutive messages, all or none; their offsets.

        Raises MessageTooLarge, LogFull, OtherWriter; InvalidValue if some of their ids were
        published before and others were not.
        """
        entries = self._entries(messages)
        if not entries:
            end = self.end()
            return range(end, end)
        first = self._published(entries)
        return range(first, first + len(entries))

    def publish_each(self, batches: Sequence[Sequence[LogEntry]]) -> list[int | FsmqError]:
        """Publish independent batches, each all or none, with one sync.

        Returns the first offset of each, or its error. Raises NoSuchLog, Unavailable.
        """
        outcomes: dict[int, int | FsmqError] = {}
        entries: dict[int, list[Entry]] = {}
        for at, batch in enumerate(batches):
            try:
                entries[at] = self._entries(batch)
            except FsmqError as error:
                outcomes[at] = error
        stored = self._published_each(list(entries.values()))
        for at, outcome in zip(entries, stored, strict=True):
            if not isinstance(outcome, int | FsmqError):
                raise outcome
            outcomes[at] = outcome
        return [outcomes[at] for at in range(len(batches))]

    def _published(self, entries: list[Entry]) -> int:
        [outcome] = self._published_each([entries])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _published_each(self, entries: list[list[Entry]]) -> list[int | Exception]:
        store = self._logs.opened(self.name)
        outcomes = store.publish_each(entries)
        if any(isinstance(outcome, NoSuchLog) for outcome in outcomes):
            again = self._store  # it was deleted, and perhaps recreated
            if again is not store:
                outcomes = again.publish_each(entries)
        for outcome, batch in zip(outcomes, entries, strict=True):
            if isinstance(outcome, int):
                self._note_published(outcome, len(batch))
        return outcomes

    def _entries(self, messages: Iterable[bytes | str | LogEntry]) -> list[Entry]:
        """The messages of a batch. Raises InvalidValue, MessageTooLarge."""
        entries: list[Entry] = []
        size = 0
        for index, message in enumerate(messages):
            given = message if isinstance(message, LogEntry) else LogEntry(message)
            try:
                entries.append(self._entry(given))
            except (InvalidValue, MessageTooLarge) as error:
                error.index = index
                raise
            size += entries[-1].size
        if size > MAX_BATCH_BYTES:
            raise MessageTooLarge(size, MAX_BATCH_BYTES)
        return entries

    def _note_published(self, first: int, number: int) -> None:
        context = self.spool.context
        context.metrics.count(("log_publish", self.name), number)
        context.journal.note_of_log("published", self.name, None, [(first, first + number)])

    def _entry(self, given: LogEntry) -> Entry:
        body, most = given.body, self.spool.context.max_message_bytes
        if isinstance(body, str):
            try:
                body = body.encode()
            except UnicodeEncodeError as error:
                raise InvalidValue("body", f"cannot be in UTF-8: {error.reason}") from None
        elif not isinstance(body, bytes):
            raise InvalidValue("body", f"must be bytes or str, not {type(body).__name__}")
        if len(body) > most:
            raise MessageTooLarge(len(body), most)
        return entry(body, given.key, given.id, given.content_type, given.attributes)

    def _taking(self, message: NewMessage) -> Callable[[], int]:
        """A function that publishes a message of a topic; its attribute ``key`` is its key.

        Raises what a publish would, before anything is stored.
        """
        if message.dedup_id is not None:
            raise InvalidValue("dedup_id", "is for fifo queues")
        attributes = {name: v for name, v in message.attributes.items() if name.lower() != "key"}
        key = next((v for name, v in message.attributes.items() if name.lower() == "key"), None)
        given = LogEntry(message.body, key, None, message.content_type, attributes)
        found = self._entry(given)
        with as_unavailable(f"cannot publish to log {self.name!r}"):
            store = self._store  # of this log, not of a later one
            store.check_open([found])

        def publish() -> int:
            [outcome] = store.publish_each([[found]])
            if isinstance(outcome, Exception):
                raise outcome
            self._note_published(outcome, 1)
            return outcome

        return publish

    # -- read ------------------------------------------------------------------------------------

    def page(self, from_: int, count: int = 1000, max_bytes: int = 64 << 20) -> Batch:
        """Up to ``count`` messages from an offset on. Changes nothing.

        Raises OffsetGone if retention has removed it.
        """
        found = self._store.page(from_, check_number("count", count, 1, 1_000_000), max_bytes)
        return Batch(found.messages, found.next, sum(end - start for start, end in found.lost))

    def batches(
        self, from_: From = "first", *, follow: bool = False, count: int = 1000
    ) -> Iterator[list[LogMessage]]:
        """Read without a channel: lists of up to ``count`` messages, none of them empty.

        from_: see `offset_of`. follow: at the end wait for more, forever.

        Raises OffsetGone if retention removes the messages to be read next.
        """
        store = self._store
        offset = self.offset_of(from_)
        if from_ == "first" or isinstance(from_, datetime):
            offset = max(offset, store.first())
        while True:
            page = self._page_from(store, offset, count, is_first=from_ == "first")
            offset = page.next
            if page.messages:
                yield page.messages
            elif not page.lost:
                if not follow:
                    return
                self.wait(offset, 1.0)

    def _page_from(self, store: Store, offset: int, count: int, *, is_first: bool) -> Page:
        try:
            return store.page(offset, count)
        except OffsetGone as error:
            if not is_first or offset:
                raise
            return store.page(error.first, count)

    def read(self, from_: From = "first", *, follow: bool = False) -> Iterator[LogMessage]:
        """Read without a channel, message by message; see `batches`."""
        for batch in self.batches(from_, follow=follow):
            yield from batch

    def stats(self) -> LogStats:
        """The log in numbers, from its names and the first and last message."""
        store = self._store
        known = store.known(True)
        with as_unavailable(f"cannot read log {self.name!r}"):
            about = store.about()
            oldest = store.reader.first_time(known.pieces[0]) if known.pieces else None
            newest = store.reader.last_time_us(known)
            return LogStats(
                first=known.first,
                next=known.end,
                bytes=store.reader.bytes_from(known.first),
                segments=len(known.pieces),
                oldest_at=oldest / 1e6 if newest and oldest else None,
                newest_at=newest / 1e6 if newest and oldest else None,
                channels=self.channels(),
                settings=about.settings,
                uuid=about.uuid,
            )

    def channel(self, name: str, *, create: bool = False) -> Channel:
        """A channel to work with. This creates nothing, unless ``create`` is given.

        Its verbs raise NoSuchChannel if there is none of this name. One that is created here begins
        at the end of the log: see `Channel.create`.
        """
        channel = Channel(self, name)
        if create:
            channel.create()
        return channel

    def channels(self) -> list[str]:
        """The names of the log's channels, sorted."""
        disk = self._store.disk
        with as_unavailable(f"cannot list the channels of log {self.name!r}"):
            return disk.tree.folders(disk.channels)
