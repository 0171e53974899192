"""The end of a log that grows on one host: append, sync, and what a crash has left.

One lock to append and one to sync. An append is one write at the end of the last segment. A sync is
one fdatasync for all appends before it, of all processes: what is answered is a prefix of the log.
Readers see what is synced, and nothing else. Behind a sync that failed nothing counts: the next
append goes to a new segment, whose name is the offset at which the good part ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import NamedTuple

from ..errors import Unavailable
from ..layout.files import write_all
from ..layout.uuids import uuid7
from .disk import Disk
from .growing import Growing, RecentSizes, cut_zeros, ends_at
from .hints import FAILED, PATIENCE_S, UNDER_WAY, End, Hint
from .record import LINE_BYTES, Entry, Marks, chunks, encode, first_line, parse_line
from .segments import File, Piece, arrange, name_of, open_file
from .stretch import Tail, messages_of, start_of, walk


class Written(NamedTuple):
    """What is to be synced: up to ``end`` of the segment of this base."""

    firsts: list[int]
    end: End


class HostTail:
    """The end of one log, as one process of its host sees it. For one thread at a time, but for
    `durable`.

    time_before: the time of the last message before an offset, in µs. check: raises what keeps this
    host from writing, which may have changed until it has the lock.
    """

    def __init__(
        self, disk: Disk, time_before: Callable[[list[Piece]], int], check: Callable[[], None]
    ) -> None:
        self._disk = disk
        self._time_before = time_before
        self._check = check
        self._writer = Hint(disk.tree, f"{disk.segments}/.writer")
        try:
            self._sync = Hint(disk.tree, f"{disk.segments}/.sync")
        except BaseException:
            self._writer.close()
            raise
        self._file: Growing | None = None
        self._end: End | None = None
        self._sizes = RecentSizes()
        self._writer_is_known = False
        self._sync_is_known = False

    def close(self) -> None:
        self._cut_ahead()
        self._writer.close()
        self._sync.close()
        self._forget()

    def _cut_ahead(self) -> None:
        """Cut the zeros, if nobody else writes: a log at rest is as large as what it holds."""
        file, end = self._file, self._end
        with suppress(OSError, Unavailable):
            if file is not None and end is not None and file.size > end.position:
                with self._writer.locked(0.0):
                    if self._writer.read() == end and file.ends_at(end.position):
                        file.cut(end.position)

    def is_current(self) -> bool:
        """Whether the log is the one that was opened: it was not deleted."""
        return self._writer.is_current()

    # -- what is durable -------------------------------------------------------------------------

    def durable(self) -> End | None:
        """Up to where everything is on stable media, as far as it was noted."""
        return self._sync.read()

    def appended(self) -> End | None:
        """Up to where there was a whole append, as far as it was noted."""
        return self._writer.read()

    def can_read(self) -> bool:
        """Whether `durable` may be believed: this process has seen that the last segment agrees.

        If the filesystem was lost and mounted again, it may be older than what was answered. Then
        there stands something behind it.
        """
        if not self._sync_is_known:
            synced = self._sync.read()
            pieces = arrange(self._disk.tree.names(self._disk.segments))
            if synced is None or not pieces or pieces[-1].name != name_of(synced.base):
                return False
            file = open_file(self._disk.tree, self._disk.segments, pieces[-1].name)
            if file is None:
                return False
            with closing(file):
                self._sync_is_known = ends_at(file, synced.position)
        return self._sync_is_known

    def settle(self, patience_s: float = PATIENCE_S) -> bool:
        """Make durable what writers have left that died; whether there was something."""
        with self.locked(patience_s) as end:
            pass
        synced = self._sync.read()
        if synced is not None and synced.reaches(end):
            return False
        self.sync(end)
        return True

    def is_settled(self) -> bool:
        """Whether all that was appended is durable."""
        synced, appended = self._sync.read(), self._writer.read()
        return synced is not None and (appended is None or synced.reaches(appended))

    def sync(self, end: End) -> None:
        """Wait until all up to a place that was appended is durable; sync it if nobody does.

        Raises:
            Unavailable: a sync failed since the last good one; what was appended does not count.
            OSError: this sync failed.
        """
        with self._sync.locked():
            self._sync_locked(end)

    def _sync_locked(self, end: End) -> None:
        synced = self._sync.read()
        has_failed = synced is not None and synced.state == FAILED
        if synced is not None and not has_failed and synced.reaches(end):
            return
        if synced is not None and (has_failed or synced.base > end.base):
            raise Unavailable("a sync of the log failed: what was appended since does not count", 2)
        appended = self._writer.read()
        if appended is not None and appended.base == end.base:
            end = max(end, appended, key=lambda one: one.position)
        file = self._file
        if file is None or self._end is None or self._end.base != end.base:
            raise Unavailable("the log was changed by another program")
        self._sync_file(file, synced, end)

    def _sync_file(
        self, file: Growing, synced: End | None, end: End, if_failed: int = FAILED
    ) -> None:
        """Make a segment durable up to a place, under the lock, and note that, or the failure."""
        if synced is not None:
            if synced.state == UNDER_WAY:
                # The process died that was syncing it. Its sync may have failed, and the kernel
                # would not write those pages again: the next sync would succeed.
                begin = synced.position if synced.base == end.base else 0
                file.write_again(begin, end.position)
            self._sync.write(synced._replace(state=UNDER_WAY))
        try:
            self._disk.sync_data(file.fd)
        except OSError:
            if synced is not None:
                # The next sync would succeed, and tell nobody what this one has lost.
                self._sync.write(synced._replace(state=if_failed))
            raise
        self._sync.write(end)

    # -- append ----------------------------------------------------------------------------------

    @contextmanager
    def locked(self, patience_s: float = PATIENCE_S) -> Iterator[End]:
        """Keep other writers of this host out; where the log ends.

        Raises OSError, Unavailable, and what the check does.
        """
        with self._writer.locked(patience_s):
            self._check()
            yield self._validated()

    def append(self, batches: Sequence[Sequence[Entry]], segment_bytes: int) -> Written:
        """Append batches, under the lock. Not durable: see `sync`. Raises OSError.

        segment_bytes: if the last segment has so many, the next one is begun.
        """
        assert self._end is not None
        if self._end.position >= segment_bytes and self._end.ordinal:
            self.roll()
        end, file = self._end, self._file
        assert file is not None
        assert file.line is not None

        def durable() -> int:
            synced = self._sync.read()
            return synced.position if synced is not None and synced.base == end.base else 0

        marks = Marks(
            *(file.line.uuid, end.position, end.ordinal, end.marked_at, end.marked, durable)
        )
        time_us = max(self._disk.now_us(), end.time_us)
        firsts: list[int] = []

        def parts() -> Iterator[bytes]:
            for entries in batches:
                firsts.append(end.base + marks.ordinal)
                yield from encode(entries, time_us, marks)

        file.append(end.position, chunks(parts()))
        self._end = end._replace(
            ordinal=marks.ordinal,
            position=marks.position,
            time_us=time_us,
            marked_at=marks.marked_at,
            marked=marks.marked,
        )
        if self._disk.tree.in_place:
            self._write_ahead(file, marks.position, marks.position - end.position, segment_bytes)
        self._writer.write(self._end)
        return Written(firsts, self._end)

    def _write_ahead(self, file: Growing, end: int, written: int, segment_bytes: int) -> None:
        self._sizes.note(written)
        if self._sizes.is_small and not file.write_ahead(end, written, segment_bytes):
            self._sizes.note_full()

    def roll(self) -> End:
        """Begin a new segment, under the lock; all before it is durable then."""
        assert self._end is not None
        assert self._file is not None
        self._file.cut(self._end.position)
        with self._sync.locked():
            self._sync_locked(self._end)
            new = self._create(self._end.offset, self._end.time_us)
            self._sync.write(new)
        self._writer.write(new)
        return new

    def roll_if_used(self) -> None:
        """Begin a new segment, under the lock, if the last one has messages."""
        if self._end is not None and self._end.ordinal:
            self.roll()

    def reload(self) -> None:
        """Look at the segments anew, under the lock: other programs have written some."""
        self._load(None, None)

    def seal(self) -> bool:
        """Give the last segment a name that has its end, under the lock; False if it is empty.

        An empty one that is the first is removed: there is nothing that its name has to remember.
        """
        end, tree = self._end, self._disk.tree
        assert end is not None
        assert self._file is not None
        self._file.cut(end.position)
        self.sync(end)
        path = f"{self._disk.segments}/{name_of(end.base)}"
        if end.ordinal or not end.base:
            self._writer.erase()  # no process shall go on in the file that it has open
        if end.ordinal:
            # The name without an end stays for a while: it must not be free for a late writer.
            tree.link(path, f"{self._disk.segments}/{name_of(end.base, end.offset)}")
        elif not end.base:
            tree.unlink(path)
        else:
            return False
        self._disk.sync_folder(self._disk.segments)
        self._forget()
        return True

    # -- what there is ---------------------------------------------------------------------------

    def _validated(self) -> End:
        """The end, whatever other processes have done, and crashes."""
        synced, appended = self._sync.read(), self._writer.read()
        if synced is not None and synced.state == FAILED:
            self._fence(synced, appended)
            synced, appended = self._sync.read(), self._writer.read()
        if (
            appended is not None
            and appended == self._end
            and self._file is not None
            and self._file.ends_at(appended.position)
            and (appended.ordinal or self._is_named(self._file))
        ):
            return appended
        return self._load(synced, appended)

    def _is_named(self, file: File) -> bool:
        """Whether a segment has its name still: one without messages may have been replaced."""
        found = self._disk.tree.stat(f"{self._disk.segments}/{file.name}")
        return found is not None and found.st_ino == file.inode

    def _load(self, synced: End | None, appended: End | None) -> End:
        self._forget()
        pieces = arrange(self._disk.tree.names(self._disk.segments))
        last = pieces[-1] if pieces else None
        end: End | None = None
        offset = 0
        if last is not None:
            offset = last.start if last.end is None else last.end
            if last.end is None:
                end = self._open_last(last, pieces, synced, appended)
                offset = end.offset
        if synced is not None and synced.offset > offset:
            end, offset = None, synced.offset  # what was there is lost; its offsets stay used
        if end is None or self._file is None or self._file.line is None:
            self._forget()
            time_us = end.time_us if end is not None else self._time_before(pieces)
            end = self._create(offset, time_us)
        if (
            synced is None
            or synced.base != end.base
            or not (self._writer_is_known or synced.reaches(end))
        ):
            self._sync_first(end, synced is not None)
        self._end = end
        self._writer_is_known = self._sync_is_known = True
        self._writer.write(end)
        return end

    def _sync_first(self, end: End, is_noted: bool) -> None:
        """Make durable what was found, before anything is appended to it, under the lock.

        What stands behind the place in the hint may have been answered before the machine stopped.
        So a sync that fails here does not say that it is lost: the next one begins anew.
        """
        with self._sync.locked():
            assert self._file is not None
            self._disk.sync_folder(self._disk.segments)
            synced = self._sync.read() if is_noted else None
            if synced is not None and synced.state == FAILED:
                raise Unavailable("a sync of the log failed just now", 2)
            self._sync_file(self._file, synced, end, if_failed=UNDER_WAY)

    def _open_last(
        self, last: Piece, pieces: list[Piece], synced: End | None, appended: End | None
    ) -> End:
        """Open the last segment, and cut what a crash has torn."""
        opened = open_file(self._disk.tree, self._disk.segments, last.name, os.O_RDWR)
        if opened is None:
            raise Unavailable(f"the segment {last.name} was removed just now")
        file = Growing(opened)
        if file.line is None or file.line.messages is not None:
            # It takes no more: a group of the mode for many hosts, or its first line is damaged.
            count = messages_of(file)
            file.close()
            return End(last.base, count, 0, self._time_before(pieces))
        size = file.size
        is_known = self._writer_is_known and appended is not None and appended.base == last.base
        begin = next(
            (
                Tail(one.position, one.ordinal, one.time_us, one.marked_at, one.marked)
                for one in (appended if is_known else None, synced)
                if one is not None and one.base == last.base and one.position <= size
            ),
            start_of(file),
        )
        tail = begin
        if begin.position < size and not (is_known and file.ends_at(begin.position)):
            tail = walk(file, begin, size, doubtful=not is_known)
            file.cut_torn(tail.position)
        self._file = file
        time_us = tail.time_us or self._time_before(pieces[:-1])
        return End(*(last.base, tail.ordinal, tail.position, time_us, tail.marked_at, tail.marked))

    def _fence(self, synced: End, appended: End | None) -> None:
        """Begin a new segment where the good part ends, so that nothing behind it counts."""
        with self._sync.locked():
            self._forget()
            if appended is not None and appended.base == synced.base:
                with suppress(OSError):  # the disk fails, and they do no harm
                    name = name_of(appended.base)
                    cut_zeros(self._disk.tree, self._disk.segments, name, appended.position)
            end = self._create(synced.offset, synced.time_us, replace=not synced.ordinal)
            self._sync.write(end)
        self._writer.write(end)

    def _create(self, base: int, time_us: int, *, replace: bool = False) -> End:
        """A new last segment, durably."""
        disk, uuid = self._disk, uuid7()
        draft = f"{disk.segments}/.{uuid}"
        fd = disk.tree.create_with(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            write_all(fd, line := first_line(uuid))
            disk.sync_file(fd)
            disk.tree.rename(draft, f"{disk.segments}/{name_of(base)}", replace=replace)
            disk.sync_folder(disk.segments)
        except BaseException:
            os.close(fd)
            with suppress(OSError):
                disk.tree.unlink(draft)
            raise
        self._forget()
        self._file = Growing(File(fd, name_of(base), parse_line(line), os.fstat(fd).st_ino))
        self._end = End(base, 0, LINE_BYTES, time_us, LINE_BYTES, 0)
        return self._end

    def _forget(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = self._end = None
