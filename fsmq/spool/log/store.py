"""One log as one process sees it: publishing, and what can be read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from ..errors import (
    FsmqError,
    LogFull,
    MessageTooLarge,
    NoSuchLog,
    OtherWriter,
    Unavailable,
    is_full,
    unavailable,
)
from ..layout import documents
from ..layout.documents import version_of, version_to_keep
from ..records.peers import host_name
from .dedupe import Ids
from .group_commit import Batch, GroupCommit
from .log_document import Document
from .log_settings import LogSettings
from .reader import PAGE_BYTES, Known, Page, Reader, piece_of
from .segment.blocks import Blocks
from .segment.chain import chain, without_gone
from .segment.checkpoint import PATIENCE_S, End
from .segment.disk import LOG_FILE, Disk
from .segment.record import Entry, Piece
from .segment.record_scan import scan_records
from .segment.segments import open_file
from .segment.tail import LogTail

_MAX_FILE_BYTES = 64 * 1024
_SHORT_S = 1.0


class Opened:
    """The end of a log, opened by the first ``with``, and kept open for the next ones.

    open: opens it. then: called afterwards. Raises what they raise.
    """

    __slots__ = ("_lock", "_open", "_tail", "_then", "_users", "used_at")

    def __init__(self, open: Callable[[], LogTail], then: Callable[[], None]) -> None:
        self._open = open
        self._then = then
        self._lock = threading.Lock()
        self._tail: LogTail | None = None
        self._users = 0
        self.used_at = time.monotonic()

    def __enter__(self) -> LogTail:
        self.used_at = time.monotonic()
        with self._lock:
            is_new = self._tail is None
            tail = self._tail = self._tail or self._open()
            self._users += 1
        try:
            if is_new:
                self._then()
        except BaseException:
            self.__exit__()
            raise
        return tail

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._users -= 1

    def close(self) -> None:
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def close_if_free(self) -> bool:
        """Close it unless a thread uses it; whether it is closed."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if not self._users:
                self.close()
            return not self._users
        finally:
            self._lock.release()


class Store:
    """One log. Safe in threads. Its files are opened when used, and closed when the log is idle.

    opened: called after they were opened. Raises NoSuchLog, OSError.
    """

    def __init__(
        self, disk: Disk, blocks: Blocks, opened: Callable[[Store], None] = lambda store: None
    ) -> None:
        self.disk = disk
        self._version: tuple[int, ...] = ()
        self._leading = threading.Lock()
        self._group_commit = GroupCommit(self._leading, self._run)
        self._looking = threading.Lock()
        self._pieces: list[Piece] = []
        self._ids: Ids | None = None
        self.document = self.read_document()
        self.uuid = self.document.uuid
        self.reader = Reader(disk, self.uuid, blocks, self._known_now)
        self.tail = Opened(self._open, lambda: opened(self))

    def close(self) -> None:
        """Close its files, and forget what was read."""
        self.reader.close()
        self.tail.close()

    def close_if_free(self) -> bool:
        """The same, unless a thread uses them; whether they are closed."""
        if not self.tail.close_if_free():
            return False
        self.reader.close()
        return True

    def _open(self) -> LogTail:
        tail = LogTail(self.disk, self.uuid, self._check_writer)
        try:
            self.about_ours()  # raises unless its folder is that of our log
        except BaseException:
            tail.close()
            raise
        return tail

    def is_current(self) -> bool:
        """Whether the log of this name is still the one that was opened."""
        try:
            return self.about().uuid == self.uuid
        except NoSuchLog:
            return False

    # -- settings --------------------------------------------------------------------------------

    def about(self) -> Document:
        """``log.json`` as it is now; the last valid version if it does not parse."""
        found = self.disk.tree.look(f"{self.disk.folder}/{LOG_FILE}")
        if found is None:
            raise NoSuchLog(self.disk.name)
        if version_of(found) != self._version:
            version = version_to_keep(found)
            with suppress(ValueError):
                self.document = self.read_document()
            self._version = version
        return self.document

    def about_ours(self) -> Document:
        """The same for the log that was opened. Raises NoSuchLog if it was deleted."""
        document = self.about()
        if document.uuid != self.uuid:
            raise NoSuchLog(self.disk.name)
        return document

    def read_document(self) -> Document:
        """The same, read again. Raises ValueError if it does not parse."""
        try:
            return Document.parse(
                documents.read(self.disk.tree, f"{self.disk.folder}/{LOG_FILE}", _MAX_FILE_BYTES)
            )
        except FileNotFoundError:
            raise NoSuchLog(self.disk.name) from None

    def _may_write(self, document: Document) -> bool:
        """Whether this host may write: with a single writing host, no other may."""
        is_ours = not self.disk.tree.network or document.host in ("", host_name())
        return is_ours or document.settings.writers == "hosts"

    # -- publish ---------------------------------------------------------------------------------

    def publish(self, entries: Sequence[Entry]) -> int:
        """Store consecutive messages durably; the offset of the first.

        Threads that publish at the same moment share one append and one sync.

        Raises NoSuchLog, OtherWriter, LogFull, InvalidValue, Unavailable.
        """
        [outcome] = self.publish_each([entries])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def publish_each(self, batches: Iterable[Sequence[Entry]]) -> list[int | Exception]:
        """The same for many batches, each all or none: the first offset of each, or its error."""
        return self._group_commit.publish_each(batches)

    def _run(self, group: list[Batch]) -> None:
        try:
            self._publish(group)
        except OSError as error:
            raise unavailable(error, f"cannot publish to log {self.disk.name!r}") from error

    def check_open(self, entries: Sequence[Entry] = ()) -> LogSettings:
        """Raise what a publish would raise: NoSuchLog, LogFull, OtherWriter, MessageTooLarge.
        Raises OSError."""
        if self.disk.tree.stat(self.disk.refuses) is not None:
            self.about_ours()  # raises unless the mark is of our log
            raise LogFull(self.disk.name)
        settings = self._writable().settings
        _check_sizes(entries, settings.max_message_bytes)
        return settings

    def _writable(self) -> Document:
        document = self.about_ours()
        if not self._may_write(document):
            raise OtherWriter(self.disk.name, document.host)
        return document

    def _publish(self, group: list[Batch]) -> None:
        settings = self.check_open()
        for batch in group:
            try:
                _check_sizes(batch.entries, settings.max_message_bytes)
            except MessageTooLarge as error:
                batch.error = error
        with self.tail as tail:
            with tail.locked() as end:
                new = self._new_ones(group, settings, tail, end)
                if new:
                    batches = [one.entries for one in new]
                    firsts, end = tail.append(batches, settings.segment_bytes)
                    for batch, first in zip(new, firsts, strict=True):
                        batch.first = first
            tail.sync(end)
        if self._ids is not None:
            for batch in new:
                self._ids.add_own(batch.first, batch.entries, end.time_us)

    def _new_ones(
        self, group: list[Batch], settings: LogSettings, tail: LogTail, end: End
    ) -> list[Batch]:
        """The batches of a group that are not yet in the log; the others get their offsets."""
        group = [batch for batch in group if batch.error is None]
        if not any(entry.id for batch in group for entry in batch.entries):
            return group
        now_us = self.disk.now_us()
        # Read before the durable ones: some can become durable in between.
        unsynced = self._unsynced_ids(tail, end, settings.dedupe_window)
        ids = self._durable_ids(end, settings.dedupe_window, now_us)
        new: list[Batch] = []
        given: set[str] = set()
        for batch in group:
            try:
                first = ids.first_of(batch.entries, unsynced, now_us)
                own = {entry.id for entry in batch.entries if entry.id}
                if first is None and own & given:
                    raise Unavailable("another publish of the same id is under way")
                given |= own
            except FsmqError as error:
                batch.error = error
                continue
            if first is None:
                new.append(batch)
            else:
                batch.first = first
        return new

    def _durable_ids(self, end: End, window_s: float, now_us: int) -> Ids:
        """The ids of messages that are durable."""
        ids = self._ids
        if ids is None or ids.window_s != window_s or not ids.knows(now_us):
            ids = self._ids = Ids(window_s)
        if ids.seen < end.offset:
            for page in self.reader.since(ids.since(now_us), ids.seen):
                ids.add(page.messages)
                ids.seen = page.next
        ids.forget(now_us)
        return ids

    def _unsynced_ids(self, tail: LogTail, end: End, window_s: float) -> Ids:
        """The ids of appended messages that nobody has synced: they may never count."""
        ids = Ids(window_s)
        if self._ids is not None and self._ids.seen >= end.offset:
            return ids
        synced = tail.durable()
        if synced is None or synced.number != end.number or synced.position >= end.position:
            return ids
        file = open_file(self.disk, end.number, base=end.base)
        if file is not None:
            with file:
                ids.add(
                    scan_records(
                        file,
                        synced.position,
                        synced.offset,
                        end.position,
                        end.position,
                        end.offset,
                    ).messages
                )
        return ids

    def _check_writer(self) -> bool:
        """Whether other hosts may write, too. Raises NoSuchLog, OtherWriter."""
        return self._many_write(self._writable())

    # -- what there is ---------------------------------------------------------------------------

    def known(self, fresh: bool = False) -> Known:
        """What can be read now. Raises NoSuchLog, Unavailable."""
        try:
            return self._known_now(fresh)
        except OSError as error:
            raise unavailable(error, f"cannot read log {self.disk.name!r}") from error

    def first(self) -> int:
        """The first offset that is left; the end if there are no messages."""
        return self.known(True).first

    def end(self) -> int:
        """The offset that the next message gets."""
        return self.known().end

    def _known_now(self, fresh: bool) -> Known:
        end = self._synced(self.about_ours())  # not under the lock: it can wait for a publisher
        with self._looking:
            before = self._pieces
            last = before[-1] if before else None
            if end is not None and (last is None or end.number > last.number):
                self._pieces = chain(self.disk, self.uuid, piece_of(end), before)
            elif end and last and end.number == last.number and end.position > last.limit:
                self._pieces = [*before[:-1], piece_of(end)]
            if fresh:
                self._pieces = without_gone(self.disk, self.uuid, self._pieces)
            if self._pieces and before and self._pieces[0] != before[0]:
                self.reader.forget_before(self._pieces[0].number)
            return Known(self._pieces)

    def _synced(self, document: Document) -> End | None:
        """Up to where the log is durable; None if nothing was ever written."""
        with self.tail as tail:
            synced, many = tail.durable(), self._many_write(document)
            if not self._may_write(document):
                return synced
            if synced is None:
                self.settle()
            elif not tail.can_read() or (many and tail.is_overtaken(synced)):
                # Only briefly: beside a stopped writer, or on a full disk, the rest can be read.
                try:
                    self.settle(_SHORT_S)
                except (Unavailable, OSError) as error:
                    if isinstance(error, OSError) and not (many and is_full(error)):
                        raise
            else:
                return synced
            found = tail.durable()
            tail.late = found if found == synced else None
            return found

    def _many_write(self, document: Document) -> bool:
        return document.settings.writers == "hosts" or self.disk.tree.network

    def settle(self, patience_s: float = PATIENCE_S) -> None:
        """Make durable what dead writers have left. Raises Unavailable, OSError."""
        if not self._may_write(self.about_ours()):
            return
        if not self._leading.acquire(timeout=patience_s):
            raise Unavailable(f"log {self.disk.name!r} waits for another writer")
        try:
            with self.tail as tail:
                tail.settle(patience_s)
        finally:
            self._leading.release()

    def is_settled(self) -> bool:
        """Whether all that was appended is durable."""
        with self.tail as tail:
            return not self._may_write(self.about_ours()) or tail.is_settled()

    @contextmanager
    def writing(self) -> Iterator[LogTail]:
        """Keep all publishers out."""
        with self._leading, self.tail as tail, tail.locked(PATIENCE_S):
            yield tail

    def page(self, offset: int, count: int, max_bytes: int = PAGE_BYTES) -> Page:
        """Messages from an offset on. Raises OffsetGone, NoSuchLog, Unavailable."""
        try:
            return self.reader.page(offset, count, max_bytes)
        except OSError as error:
            raise unavailable(error, f"cannot read log {self.disk.name!r}") from error


def _check_sizes(entries: Sequence[Entry], limit: int | None) -> None:
    """Raise MessageTooLarge for the first message that is too large."""
    if limit is None:
        return
    for index, (_, body, _) in enumerate(entries):
        if len(body) > limit:
            error = MessageTooLarge(len(body), limit)
            error.index = index
            raise error
