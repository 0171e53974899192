"""One log as one process sees it: publish, and what there is to read."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from ..errors import FsmqError, LogFull, NoSuchLog, OtherWriter, Unavailable, unavailable
from ..layout import documents
from ..records.peers import host_name
from .blocks import Blocks
from .dedupe import Ids
from .disk import LOG_FILE, REFUSES, Disk
from .hints import PATIENCE_S, End
from .joint import Batch, Joint
from .linking import LinkedTail
from .log_document import Document
from .log_settings import LogSettings
from .reader import Known, Page, Reader, known_at
from .record import Entry
from .segments import Piece, arrange, name_of, open_file
from .stretch import read_stretch
from .tail import HostTail

_MAX_FILE_BYTES = 64 * 1024
_SHORT_S = 1.0


class Store:
    """One log. Safe in threads; close it when the log is idle, and open another.

    Raises NoSuchLog, OSError.
    """

    def __init__(self, disk: Disk, blocks: Blocks) -> None:
        self.disk = disk
        self.used_at = time.monotonic()
        self._version: tuple[int, ...] = ()
        self.reader = Reader(disk, blocks, self._known_now)
        self._leading = threading.Lock()
        self._joint = Joint(self._leading, self._run)
        self._looking = threading.Lock()
        self._pieces: list[Piece] = []
        self._ids: Ids | None = None
        self.document = self.read_document()
        self._host: HostTail | None = None
        self._hosts: LinkedTail | None = None
        self._followed: LinkedTail | None = None
        self.inode = self._inode()

    def close(self) -> None:
        if self._host is not None:
            self._host.close()
            self._host = None

    def close_if_free(self) -> bool:
        """Close it unless a thread is at work on it; whether it was closed."""
        if not self._leading.acquire(blocking=False):
            return False
        try:
            if not self._looking.acquire(blocking=False):
                return False
            try:
                self.close()
            finally:
                self._looking.release()
        finally:
            self._leading.release()
        return True

    def _inode(self) -> int:
        found = self.disk.tree.look(self.disk.segments)
        if found is None:
            raise NoSuchLog(self.disk.name)
        return found.st_ino

    def is_current(self) -> bool:
        """Whether the folder of this name is still the log that was opened."""
        found = self.disk.tree.look(self.disk.segments)
        return found is not None and found.st_ino == self.inode

    # -- settings --------------------------------------------------------------------------------

    @property
    def settings(self) -> LogSettings:
        """The settings in force now. Raises NoSuchLog, OSError."""
        return self.about().settings

    def about(self) -> Document:
        """What ``log.json`` says now; the last valid version where it does not parse."""
        found = self.disk.tree.look(f"{self.disk.folder}/{LOG_FILE}")
        if found is None:
            raise NoSuchLog(self.disk.name)
        version = (found.st_mtime_ns, found.st_ino, found.st_size)
        if version != self._version:
            with suppress(ValueError):
                self.document = self.read_document()
            self._version = version
        return self.document

    def read_document(self) -> Document:
        """The same, read anew. Raises ValueError where it does not parse."""
        try:
            return Document.parse(
                documents.read(self.disk.tree, f"{self.disk.folder}/{LOG_FILE}", _MAX_FILE_BYTES)
            )
        except FileNotFoundError:
            raise NoSuchLog(self.disk.name) from None

    def is_ours(self, document: Document) -> bool:
        """Whether this host may append, where only one may."""
        return not self.disk.tree.network or document.host in ("", host_name())

    # -- publish ---------------------------------------------------------------------------------

    def publish(self, entries: Sequence[Entry]) -> int:
        """Store messages behind one another, durably; the offset of the first.

        Threads that publish at the same moment share one append and one sync.

        Raises NoSuchLog, OtherWriter, LogFull, InvalidValue, Unavailable.
        """
        return self._joint.publish(entries)

    def publish_each(self, batches: Iterable[Sequence[Entry]]) -> list[int | Exception]:
        """The same for many, each all or none: the first offset of each, or why it is not there."""
        joined = self._joint.join(batches)
        return [one.first if one.error is None else one.error for one in joined]

    def _run(self, group: list[Batch]) -> None:
        try:
            self._publish(group)
        except OSError as error:
            raise unavailable(error, f"cannot publish to log {self.disk.name!r}") from error
        finally:
            self.used_at = time.monotonic()

    def check_open(self) -> Document:
        """Raise what a publish from here would: NoSuchLog, LogFull, OtherWriter. Raises OSError."""
        document = self.about()
        if not self.is_current():
            raise NoSuchLog(self.disk.name)
        if self.disk.tree.stat(f"{self.disk.folder}/{REFUSES}") is not None:
            raise LogFull(self.disk.name)
        if document.settings.writers != "hosts" and not self.is_ours(document):
            raise OtherWriter(self.disk.name, document.host)
        return document

    def _publish(self, group: list[Batch]) -> None:
        document = self.check_open()
        if document.settings.writers == "hosts":
            self._publish_linked(group, document.settings)
            return
        tail = self._tail()
        with tail.locked() as end:
            new = self._new_ones(group, document.settings, end.offset)
            if new:
                written = tail.append([one.entries for one in new], document.settings.segment_bytes)
                end = written.end
                for batch, first in zip(new, written.firsts, strict=True):
                    batch.first = first
        tail.sync(end)
        if self._ids is not None:
            for batch in new:
                self._ids.add_own(batch.first, batch.entries, end.time_us)

    def _publish_linked(self, group: list[Batch], settings: LogSettings) -> None:
        if self._hosts is None:
            self._hosts = LinkedTail(self.disk, self._time_before)
        chosen: list[Batch] = []

        def choose(end: int) -> list[Sequence[Entry]]:
            chosen[:] = self._new_ones(group, settings, end)
            return [batch.entries for batch in chosen]

        firsts = self._hosts.publish(choose)
        for batch, first in zip(chosen, firsts, strict=True):
            batch.first = first

    def _new_ones(self, group: list[Batch], settings: LogSettings, end: int) -> list[Batch]:
        """Those of a group that are not in the log already; the others get their offsets."""
        group = [batch for batch in group if batch.error is None]
        if not any(entry.id for batch in group for entry in batch.entries):
            return group
        ids = self._ids_until(end, settings.dedupe_window)
        new: list[Batch] = []
        given: set[str] = set()
        for batch in group:
            try:
                first = ids.first_of(batch.entries)
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

    def _ids_until(self, end: int, window_s: float) -> Ids:
        """The ids of the log's last messages, up to its end."""
        now_us = self.disk.now_us()
        if self._ids is None or self._ids.window_s != window_s:
            self._ids = Ids(window_s)
        ids = self._ids
        begin = now_us - int(window_s * 1e6)
        if ids.seen is None:
            ids.seen = self.reader.offset_at(begin)
        while ids.seen < end and ids.seen < (known := self.end()):
            page = self.reader.page(max(ids.seen, self.first()), 10_000)
            ids.add(page.messages)
            ids.seen = max(page.next, ids.seen)
            if page.next >= known:
                break
        if ids.seen < end and self._host is not None:
            self._add_unsynced(ids, end)
        ids.forget_before(begin)
        return ids

    def _add_unsynced(self, ids: Ids, end: int) -> None:
        """Add what others have appended, and nobody has synced yet."""
        assert self._host is not None
        synced, appended = self._host.durable(), self._host.appended()
        if synced is None or appended is None or synced.base != appended.base:
            return
        file = open_file(self.disk.tree, self.disk.segments, name_of(appended.base))
        if file is None:
            return
        try:
            found = read_stretch(
                *(file, synced.position, synced.offset),
                *(appended.position, appended.position, appended.offset),
            )
        finally:
            file.close()
        ids.add(message for message in found.messages if message.offset >= (ids.seen or 0))
        ids.seen = max(ids.seen or 0, found.offset)

    def _tail(self) -> HostTail:
        if self._host is None:
            self._host = HostTail(self.disk, self._time_before, self._check_host)
        return self._host

    def _check_host(self) -> None:
        """Raise NoSuchLog, or Unavailable if many hosts write by now: no segment may grow then."""
        if self._host is not None and not self._host.is_current():
            raise NoSuchLog(self.disk.name)
        if self.about().settings.writers != "host":
            raise Unavailable("the setting writers was changed just now")

    def _time_before(self, pieces: list[Piece]) -> int:
        """The time of the last message of closed pieces."""
        if not pieces or pieces[-1].end is None:
            return 0
        known = Known(pieces)
        return Reader(self.disk, Blocks(0), lambda _: known).last_time_us(known)

    # -- what there is ---------------------------------------------------------------------------

    def known(self, fresh: bool = False) -> Known:
        """What there is to read now. Raises NoSuchLog, Unavailable."""
        try:
            return self._known_now(fresh)
        except OSError as error:
            raise unavailable(error, f"cannot read log {self.disk.name!r}") from error

    def first(self) -> int:
        """The first offset that is left; where the log ends if it has no messages."""
        return self.known(True).first

    def end(self) -> int:
        """The offset that the next message gets."""
        return self.known().end

    def _known_now(self, fresh: bool) -> Known:
        self.used_at = time.monotonic()
        document = self.about()
        if document.settings.writers == "hosts":
            with self._looking:
                if self._followed is None:
                    self._followed = LinkedTail(self.disk, self._time_before)
                if fresh:
                    self._followed.pieces = []
                self._followed.end()
                return Known(list(self._followed.pieces))
        end = self._synced(document)  # not under the lock: it may wait for a publisher
        if end is None:
            return Known([])
        with self._looking:
            if fresh or not self._pieces or self._pieces[-1].start != end.base:
                names = self.disk.tree.names(self.disk.segments)
                if not names and not self.is_current():
                    raise NoSuchLog(self.disk.name)
                pieces = [piece for piece in arrange(names) if piece.start < end.base]
                if pieces:
                    pieces[-1] = pieces[-1]._replace(end=pieces[-1].end or end.base)
                self._pieces = [*pieces, Piece(end.base, None, end.base, name_of(end.base))]
            return known_at(self._pieces, end)

    def _synced(self, document: Document) -> End | None:
        """Up to where the log is durable; None where it is empty and nobody has written."""
        tail = self._tail()
        synced = tail.durable()
        if not self.is_ours(document):
            return synced
        if synced is None:
            self.settle()
            synced = tail.durable()
        elif not tail.can_read():
            # Not at any price: if a writer is stopped, what is known to be durable can be read.
            with suppress(Unavailable):
                self.settle(_SHORT_S)
            synced = tail.durable()
        return synced

    def settle(self, patience_s: float = PATIENCE_S) -> bool:
        """Make durable what writers have left that died; whether there was something.

        Raises Unavailable, OSError.
        """
        document = self.about()
        if document.settings.writers == "hosts" or not self.is_ours(document):
            return False
        if not self._leading.acquire(timeout=patience_s):
            raise Unavailable(f"log {self.disk.name!r} waits for another writer")
        try:
            return self._tail().settle(patience_s)
        finally:
            self._leading.release()

    def is_settled(self) -> bool:
        """Whether all that was appended is durable."""
        document = self.about()
        if document.settings.writers == "hosts" or not self.is_ours(document):
            return True
        return self._tail().is_settled()

    def take_over(self) -> None:
        """Go on behind what many hosts have written, where one host writes from now on."""
        if self.about().settings.writers == "hosts":
            return
        with self._leading:
            tail = self._tail()
            with tail.locked():
                tail.reload()

    @contextmanager
    def writing(self) -> Iterator[HostTail | None]:
        """Keep out all who publish on this host; None where many hosts do."""
        with self._leading:
            if self.about().settings.writers == "hosts":
                yield None
                return
            tail = self._tail()
            with tail.locked():
                yield tail

    def page(self, offset: int, count: int, max_bytes: int | None = None) -> Page:
        """Messages from an offset on. Raises OffsetGone, NoSuchLog, Unavailable."""
        try:
            if max_bytes is None:
                return self.reader.page(offset, count)
            return self.reader.page(offset, count, max_bytes)
        except OSError as error:
            raise unavailable(error, f"cannot read log {self.disk.name!r}") from error
