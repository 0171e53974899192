"""The newest segment of a log: append to it, sync it, and begin the next one.

An append is one write at its end. A sync is one fdatasync for all appends before it, of all
processes: so acknowledged messages are a prefix of the log. After a failed sync nothing is appended
to the segment any more: see `sealing.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext

from ...errors import Unavailable
from .chain import newest
from .checkpoint import FAILED, UNDER_WAY, Checkpoint, End, LockFile
from .disk import Disk
from .record import FIRST, Cursor, Entry, chunks, encode
from .sealing import begin, create, end_of, has_counted
from .segments import File, has_number, name_of, numbers_in
from .turns import NOWHERE, Turn

# A clock that goes back by less than this does not count as set back.
_SET_BACK_US = 2_000_000
# After this many small appends in a row zeros are written ahead of the next ones. Zeros cost
# writing, too, so large appends do not have them.
_SMALL_BYTES = 64 * 1024
_SMALL_IN_A_ROW = 8


class Newest:
    """The newest segment of one log; the caller has the lock or the turn. Methods raise OSError.

    log: its UUID.
    """

    def __init__(self, disk: Disk, log: str) -> None:
        self._disk = disk.open_segments()
        self._log = log
        with ExitStack() as opened:
            opened.callback(self._disk.tree.close)
            self._writer = LockFile(self._disk.tree, ".writer")
            opened.callback(self._writer.close)
            self._sync = Checkpoint(self._disk.tree, ".sync")
            opened.pop_all()
        self._turn: Turn | None = None
        self._file: File | None = None
        self._end: End | None = None
        self._is_in = False  # in a turn
        self._stored: End | None = None  # up to where this process knows all to be durable
        self._small_in_a_row = 0  # recent appends, in any segment

    # -- sync --------------------------------------------------------------------------------------

    def durable(self) -> End | None:
        """Up to where everything is noted to be on stable storage."""
        return self._sync.read()

    def sync(self, end: End) -> None:
        """Wait until everything up to an appended place is durable; sync it if nobody else does.

        Raises:
            Unavailable: a sync failed since the last good one; what was appended does not count.
            OSError: this sync failed.
        """
        if end != self._stored:
            with self._sync.locked():
                self._sync_locked(end)

    def _sync_locked(self, end: End) -> None:
        synced = self._sync.read()
        if synced is not None and synced.number > end.number:
            if has_counted(self._disk, synced.number, end):
                return None
        elif synced is None or synced.state != FAILED:
            if synced is not None and synced.reaches(end):
                return None
            file = self._file
            if file is None or file.number != end.number:
                raise Unavailable("the log was changed by another program")
            appended = self._turn.read() if self._turn is not None else None
            if appended is not None and appended.number == end.number:
                end = max(end, appended, key=lambda one: one.position)
            return self._sync_file(file, synced, end)
        raise Unavailable("a sync of the log failed: what was appended since does not count", 2)

    def _sync_file(self, file: File, synced: End | None, end: End, if_failed: int = FAILED) -> None:
        """Make a segment durable up to a place, under the lock, and note that or the failure."""
        if synced is not None:
            if synced.state == UNDER_WAY:
                # The process that was syncing it died. Its sync may have failed, after which the
                # kernel does not write those pages again although the next sync succeeds.
                begin = synced.position if synced.number == end.number else 0
                file.write_again(begin, end.position)
            self._sync.write(synced._replace(state=UNDER_WAY))
        try:
            self._disk.sync_data(file.fd)
        except OSError:
            if synced is not None:
                # The next sync would succeed and hide what this one has lost.
                self._sync.write(synced._replace(state=if_failed))
            raise
        self._sync.write(end)
        self._stored = end

    def _sync_in_turn(self, end: End) -> None:
        """Make durable what was appended, and note that if the turn is still ours."""
        assert self._file is not None
        self._disk.sync_data(self._file.fd)
        self._check_turn(end.number)
        noted = self._sync.read()
        if noted is None or noted.number <= end.number:  # else this process was stopped
            self._sync.write(end)
        self._stored = end

    def _has_turn(self, number: int) -> bool:
        """Whether nobody has taken the turn, nor begun a segment after this number."""
        if self._turn is None or has_number(self._disk, number + 1):
            return False
        return self._turn.is_last()

    def _check_turn(self, number: int) -> None:
        """Raise Unavailable if many hosts write, and another has taken the turn."""
        if self._is_in and not self._has_turn(number):
            raise Unavailable(f"another host writes to log {self._disk.name!r}", 1)

    # -- append ------------------------------------------------------------------------------------

    def append(
        self, batches: Sequence[Sequence[Entry]], segment_bytes: int
    ) -> tuple[list[int], End]:
        """Append batches, under the lock; the first offset of each, and where to sync up to.
        OSError.

        segment_bytes: from this size on a new segment is begun.
        """
        assert self._end is not None
        if self._end.position >= segment_bytes:
            self.roll_if_used()
        end, file = self._end, self._file
        assert file is not None
        assert file.mark is not None

        def durable() -> int:
            synced = self._sync.read()
            return synced.position if synced is not None and synced.number == end.number else 0

        time_us = self._disk.now_us()
        if 0 < end.time_us - time_us < _SET_BACK_US:
            time_us = end.time_us
        latest_us = max(end.latest_us, time_us)
        cursor = Cursor(file.mark, end.position, end.ordinal, latest_us, durable)
        firsts: list[int] = []

        def parts() -> Iterator[bytes]:
            for entries in batches:
                firsts.append(end.base + cursor.ordinal)
                yield from encode(entries, time_us, cursor)

        file.append(end.position, chunks(parts()))
        self._end = end._replace(
            ordinal=cursor.ordinal, position=cursor.position, time_us=time_us, latest_us=latest_us
        )
        if self._disk.tree.in_place and not self._is_in:
            self._write_ahead(file, cursor.position, cursor.position - end.position, segment_bytes)
        if not self._is_in:
            assert self._turn is not None
            self._turn.write(self._end)
        return firsts, self._end

    def _write_ahead(self, file: File, end: int, written: int, segment_bytes: int) -> None:
        self._small_in_a_row = self._small_in_a_row + 1 if written <= _SMALL_BYTES else 0
        if self._small_in_a_row >= _SMALL_IN_A_ROW and not file.write_ahead(
            end, written, segment_bytes
        ):
            self._small_in_a_row = 0  # the disk has no room for zeros

    def roll_if_used(self) -> None:
        """Begin a new segment, under the lock, if the newest one has messages."""
        if self._end is not None and self._end.ordinal:
            self.roll()

    def roll(self) -> None:
        """Begin a new segment, under the lock; everything before it is durable then."""
        file, end = self._file, self._end
        assert end is not None
        assert file is not None
        file.cut(end.position)
        with self._syncing():
            if self._is_in:
                self._sync_in_turn(end)
            else:
                self._sync_locked(end)
            self._begin(end.number + 1, file, lambda: end)
        file.close()

    def remove_through(self, number: int) -> int:
        """Remove all segments up to a number, under the lock, durably; how many went.

        The lowest one always goes first: so if one exists, no later one was removed.
        """
        lowest = min(numbers_in(self._disk.tree.names(".")), default=number + 1)
        while has_number(self._disk, lowest - 1):  # a listing may have missed it
            lowest -= 1
        names = map(name_of, range(lowest, number + 1))
        return sum(map(self._disk.trash_durably, names))

    # -- the next segment --------------------------------------------------------------------------

    def _seal(self, file: File | None = None, free: int = 0) -> None:
        """Begin a new segment: nothing after the good part of the newest counts any more."""
        with self._syncing():
            synced = self._sync.read()
            if file is None:
                file, free = newest(self._disk, self._log, synced)
            try:
                self._begin(free, file, lambda: self._good_end(file, synced))
            finally:
                if file is not None:
                    file.close()

    @contextmanager
    def _syncing(self) -> Iterator[None]:
        """Keep other syncs out; in a turn no other writer's sync counts."""
        with nullcontext() if self._is_in else self._sync.locked():
            yield

    def _good_end(self, file: File | None, synced: End | None) -> End:
        """Where a segment has to end; everything before that is made durable."""
        if file is None:
            return NOWHERE
        if synced is not None and synced.number == file.number and synced.state == FAILED:
            return synced
        end = end_of(file, synced, None)
        begin = synced.position if synced is not None and synced.number == end.number else 0
        file.write_again(begin, end.position)  # only another host's cache may have it
        self._disk.sync_file(file.fd)
        return end

    def _begin(self, number: int, before: File | None, where: Callable[[], End]) -> None:
        """Continue in a new segment after another one, whose end is found once the new one exists.

        Under the lock of syncs.
        """
        fd, number = create(self._disk, number, may_go_on=not self._is_in)
        try:
            try:
                end, synced = where(), self._sync.read()
                # If messages were lost, their offsets stay used.
                base = max(end.offset, synced.offset if synced is not None else 0)
                new = begin(self._disk, self._log, fd, number, before, end, base)
            except OSError:
                # Say the disk is full. Nobody follows this segment, and each try would leave one.
                self._disk.tree.unlink(name_of(number))
                raise
            self._check_turn(number)
        except BaseException:
            os.close(fd)
            raise
        if self._file is not None and self._file is not before:
            self._file.close()
        self._file = new
        self._end = self._stored = End(number, base, 0, FIRST, end.time_us)
        self._sync.write(self._end)
        assert self._turn is not None
        self._turn.write(self._end._replace(state=UNDER_WAY if self._is_in else 0))

    def _forget(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = self._end = None

    def _leave_turn(self) -> None:
        if self._turn is not None:
            self._turn.close()
        self._turn = None
