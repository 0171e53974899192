"""The end of a log: append, sync, and what a crash or a stopped writer has left.

One lock to append and one to sync. An append is one write at the end of the newest segment. A sync
is one fdatasync for all appends before it, of all processes: what is answered is a prefix of the
log. Readers see what is synced, and nothing else. Where one host writes, the locks are enough, and
processes share syncs. Where many do, each publish is in its turn from before its append until
behind its sync: see `turns.py`. Behind a sync that failed, or a writer that is in, nothing is
appended to a segment any more: see `sealing.py`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import NamedTuple

from ..errors import Unavailable
from . import turns
from .chain import newest
from .disk import Disk
from .growing import Growing, RecentSizes, ends_at
from .hints import FAILED, PATIENCE_S, UNDER_WAY, End, Hint, LockFile, read_hint
from .record import FIRST, Entry, Marks, chunks, encode
from .sealing import NOWHERE, begin, create, end_of, has_counted
from .segments import File, has_number, name_of, numbers_in, open_file

# A clock that goes back by less than this is not taken for one that was set.
_SET_BACK_US = 2_000_000
_TURNS = 20
# Where a turn keeps writers apart, the lock does not have to: not for longer than this.
_PATIENCE_WITH_TURNS_S = 5.0, 8.0


class Written(NamedTuple):
    """What is to be synced: up to ``end`` of its segment."""

    firsts: list[int]
    end: End


class LogTail:
    """The end of one log, as one process sees it. For one thread at a time, but for `durable`.

    log: its UUID. check: raises what keeps this host from writing, and tells whether other hosts
    may; both may have changed until it has the lock.
    """

    def __init__(self, disk: Disk, log: str, check: Callable[[], bool]) -> None:
        self._disk = disk.open_segments()
        self._log = log
        self._check = check
        with ExitStack() as opened:
            opened.callback(self._disk.close)
            self._writer = LockFile(self._disk.tree, ".writer")
            opened.callback(self._writer.close)
            self._sync = Hint(self._disk.tree, ".sync")
            opened.pop_all()
        self._turn: turns.Turn | None = None
        self._file: Growing | None = None
        self._end: End | None = None
        self._is_in = False  # in a turn
        self._stored: End | None = None  # up to where all is durable, as this process knows
        self._sizes = RecentSizes()
        # Whether this process has compared hints with the newest segment.
        self._said_is_known = self._sync_is_known = False

    def close(self) -> None:
        self._cut_ahead()
        self._writer.close()
        self._sync.close()
        self._forget()
        self._leave_turn()
        self._disk.close()

    def _cut_ahead(self) -> None:
        """Cut the zeros, if nobody else writes: a log at rest is as large as what it holds."""
        file, end, turn = self._file, self._end, self._turn
        with suppress(OSError, Unavailable):
            if file and end and turn and self._disk.tree.in_place and file.size > end.position:
                with self._writer.locked(0.0):
                    if turn.is_current() and turn.read() == end and file.ends_at(end.position):
                        file.cut(end.position)

    # -- what is durable -------------------------------------------------------------------------

    def durable(self) -> End | None:
        """Up to where everything is on stable media, as far as it was noted."""
        if self._disk.tree.network:
            return read_hint(self._disk.tree, ".sync")
        return self._sync.read()

    def can_read(self) -> bool:
        """Whether `durable` may be believed: this process has seen that the newest segment agrees.

        If the filesystem was lost and mounted again, it may be older than what was answered. Then
        there stands something behind it.
        """
        if not self._sync_is_known:
            synced = self.durable()
            if synced is None or has_number(self._disk, synced.number + 1):
                return False
            file = open_file(self._disk, synced.number)
            if file is None:
                return False
            try:
                self._sync_is_known = ends_at(file, synced.position)
            finally:
                file.close()
        return self._sync_is_known

    def settle(self, patience_s: float = PATIENCE_S) -> bool:
        """Make durable what writers have left that died; whether there was something."""
        before = self._sync.read()
        with self.locked(patience_s) as end:
            pass
        self.sync(end)
        return before is None or not before.reaches(end)

    def is_settled(self) -> bool:
        """Whether all that was appended is durable."""
        synced, said = self.durable(), turns.last_said(self._disk)
        return synced is not None and (said is None or (not said.state and synced.reaches(said)))

    def sync(self, end: End) -> None:
        """Wait until all up to a place that was appended is durable; sync it if nobody does.

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

    def _sync_file(
        self, file: Growing, synced: End | None, end: End, if_failed: int = FAILED
    ) -> None:
        """Make a segment durable up to a place, under the lock, and note that, or the failure."""
        if synced is not None:
            if synced.state == UNDER_WAY:
                # The process died that was syncing it. Its sync may have failed, and the kernel
                # would not write those pages again: the next sync would succeed.
                begin = synced.position if synced.number == end.number else 0
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
        self._stored = end

    # -- a turn ----------------------------------------------------------------------------------

    @contextmanager
    def locked(self, patience_s: float | None = None) -> Iterator[End]:
        """Keep other writers out; where the log ends. Where many hosts write, what was appended is
        durable when this ends.

        patience_s: how long to wait for the lock; None: where turns keep writers apart, go on
            without it when that has taken long.

        Raises OSError, Unavailable, and what the check does.
        """
        with self._alone(patience_s):
            if not self._check():
                yield self._validated()
                return
            self._is_in = True
            try:
                yield self._enter()
                self._leave()
            except BaseException:
                if self._turn is not None and self._end == self._stored is not None:
                    self._turn.write(self._stored)  # nothing was appended
                raise
            finally:
                self._is_in = False

    @contextmanager
    def _alone(self, patience_s: float | None) -> Iterator[None]:
        """Hold the lock, or have waited long enough for one who may be stopped."""
        may_go_on = patience_s is None and self._check()
        if patience_s is None:
            patience_s = random.uniform(*_PATIENCE_WITH_TURNS_S) if may_go_on else PATIENCE_S
        with ExitStack() as held:
            try:
                held.enter_context(self._writer.locked(patience_s))
            except Unavailable:
                if not may_go_on:
                    raise
            yield

    def _enter(self) -> End:
        """Where the log ends, in a turn of this process."""
        if not self._is_still_ours():
            self._forget()
            before = self._take_turn()
            if before is None or before.state or not self._adopt(before):
                self._seal()
            self._said_is_known = self._sync_is_known = True
        assert self._end is not None
        self._stored = self._end
        return self._end

    def _is_still_ours(self) -> bool:
        """Whether this process may go on in its turn, and says that it is in."""
        turn, end, file = self._turn, self._end, self._file
        if turn is None or end is None or file is None or turn.read() != end:
            return False
        turn.write(end._replace(state=UNDER_WAY))
        return self._has_turn(end.number) and file.ends_at(end.position)

    def _has_turn(self, number: int) -> bool:
        """Whether nobody has taken the turn, nor begun a segment behind that of a number."""
        if self._turn is None or has_number(self._disk, number + 1):
            return False
        return self._turn.is_last()

    def _take_turn(self) -> End | None:
        """Take the turn, and be in; where the one before it has left the log."""
        for _ in range(_TURNS):
            self._leave_turn()
            self._turn, before = turns.take(self._disk)
            self._turn.write_first((before or NOWHERE)._replace(state=UNDER_WAY))
            if self._turn.is_last():
                return before
        raise self._taken()

    def _check_turn(self, number: int) -> None:
        """Raise Unavailable if another host has taken the turn, where many write."""
        if self._is_in and not self._has_turn(number):
            raise self._taken()

    def _taken(self) -> Unavailable:
        return Unavailable(f"another host writes to log {self._disk.name!r}", 1)

    def _leave(self) -> None:
        """Make durable what was appended in the turn, and be out, unless another has taken it."""
        end, turn = self._end, self._turn
        assert end is not None
        assert turn is not None
        if end != self._stored or self._sync.read() != end:
            self._sync_in_turn(end)
        turn.write(end)

    def _sync_in_turn(self, end: End) -> None:
        """Make durable what was appended, and note that if the turn is still ours."""
        assert self._file is not None
        self._disk.sync_data(self._file.fd)
        self._check_turn(end.number)
        noted = self._sync.read()
        if noted is None or noted.number <= end.number:  # else this process was stopped just now
            self._sync.write(end)
        self._stored = end

    def _leave_turn(self) -> None:
        if self._turn is not None:
            self._turn.close()
        self._turn = None

    def _adopt(self, end: End) -> bool:
        """Go on where another writer has left the newest segment, if it is as that one says."""
        synced = self._sync.read()
        if synced is None or not synced.reaches(end) or has_number(self._disk, end.number + 1):
            return False
        file = open_file(self._disk, end.number, os.O_RDWR)
        if file is None:
            return False
        if file.line is None or file.line.log != self._log or not ends_at(file, end.position):
            file.close()
            return False
        self._file, self._end = Growing(file), end
        return True

    # -- append ----------------------------------------------------------------------------------

    def append(self, batches: Sequence[Sequence[Entry]], segment_bytes: int) -> Written:
        """Append batches, under the lock. Not durable: see `sync`. Raises OSError.

        segment_bytes: if the newest segment has so many, the next one is begun.
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

        marks = Marks(file.mark, end.position, end.ordinal, end.marked_at, end.marked, durable)
        time_us = self._disk.now_us()
        if 0 < end.time_us - time_us < _SET_BACK_US:
            time_us = end.time_us
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
        if self._disk.tree.in_place and not self._is_in:
            self._write_ahead(file, marks.position, marks.position - end.position, segment_bytes)
        if not self._is_in:
            assert self._turn is not None
            self._turn.write(self._end)
        return Written(firsts, self._end)

    def _write_ahead(self, file: Growing, end: int, written: int, segment_bytes: int) -> None:
        self._sizes.note(written)
        if self._sizes.is_small and not file.write_ahead(end, written, segment_bytes):
            self._sizes.note_full()

    def roll_if_used(self) -> None:
        """Begin a new segment, under the lock, if the newest one has messages."""
        if self._end is not None and self._end.ordinal:
            self.roll()

    def roll(self) -> None:
        """Begin a new segment, under the lock; all before it is durable then."""
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

    def remove_through(self, number: int) -> list[str]:
        """Remove all segments up to a number, under the lock, durably; the names that went.

        The lowest one always goes first: so one that is there tells that the next never went.
        """
        lowest = min(numbers_in(self._disk.tree.names(".")), default=number + 1)
        while has_number(self._disk, lowest - 1):  # a listing may have missed it
            lowest -= 1
        names = map(name_of, range(lowest, number + 1))
        return [name for name in names if self._disk.trash_durably(name)]

    # -- what there is ---------------------------------------------------------------------------

    def _validated(self) -> End:
        """The end where one host writes, whatever other processes have done, and crashes."""
        synced = self._sync.read()
        said = self._turn.read() if self._turn is not None else None
        if (
            synced is not None
            and synced.state != FAILED
            and said is not None
            and said == self._end
            and said.number == synced.number
            and self._turn is not None
            and self._turn.is_current()
            and self._file is not None
            and self._file.ends_at(said.position)
        ):
            return said
        return self._load()

    def _load(self) -> End:
        """Find the end again where one host writes, and make it durable, or seal it."""
        self._forget()
        self._leave_turn()
        self._turn = turns.shared(self._disk)
        said = self._turn.read() if self._said_is_known else None
        synced = self._sync.read()
        file, free = newest(self._disk, self._log, synced)
        if file is None or (
            synced is not None and synced.number == file.number and synced.state == FAILED
        ):
            self._seal(file, free)
        else:
            end = end_of(file, synced, said)
            if synced is not None and synced.offset > end.offset:
                self._seal(file, free)  # what was there is lost; its offsets stay used
            else:
                self._file, self._end = Growing(file), end
                if (
                    synced is None
                    or synced.number != end.number
                    or not (said is not None or synced.reaches(end))
                ):
                    self._sync_found(end)
        assert self._end is not None
        self._said_is_known = self._sync_is_known = True
        self._turn.write(self._end)
        return self._end

    def _sync_found(self, end: End) -> None:
        """Make durable what was found, before anything is appended to it, under the lock.

        What stands behind the place in the hint may have been answered before the machine stopped.
        So a sync that fails here does not say that it is lost: the next one begins anew.
        """
        with self._sync.locked():
            assert self._file is not None
            self._disk.sync_folder(self._disk.segments)
            synced = self._sync.read()
            is_noted = synced is not None and synced.number == end.number
            if synced is not None and is_noted and synced.state == FAILED:
                raise Unavailable("a sync of the log failed just now", 2)
            if not is_noted:
                self._file.write_again(0, end.position)  # its line may not be durable either
            self._sync_file(self._file, synced, end, if_failed=UNDER_WAY)

    def _seal(self, file: File | None = None, free: int = 0) -> None:
        """Begin a new segment: behind the good part of the newest nothing counts any more."""
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
        """Keep out who syncs; in a turn nobody else does who counts."""
        with nullcontext() if self._is_in else self._sync.locked():
            yield

    def _good_end(self, file: File | None, synced: End | None) -> End:
        """Where a segment is to end; all before that is durable."""
        if file is None:
            return NOWHERE
        if synced is not None and synced.number == file.number and synced.state == FAILED:
            return synced
        end = end_of(file, synced, None)
        begin = synced.position if synced is not None and synced.number == end.number else 0
        Growing(file).write_again(begin, end.position)  # another host's memory may have it alone
        self._disk.sync_file(file.fd)
        return end

    def _begin(self, number: int, before: File | None, where: Callable[[], End]) -> None:
        """Go on in a new segment behind another one, whose end is found when the new one is there.

        Under the lock of syncs.
        """
        fd, number = create(self._disk, number, may_go_on=not self._is_in)
        try:
            end, synced = where(), self._sync.read()
            # If what was there is lost, its offsets stay used.
            base = max(end.offset, synced.offset if synced is not None else 0)
            try:
                new = begin(self._disk, self._log, fd, number, before, end, base)
            except (
                OSError
            ):  # the disk is full, say: nobody follows it, and each try would leave one
                self._disk.tree.unlink(name_of(number))
                raise
            self._check_turn(number)
        except BaseException:
            os.close(fd)
            raise
        if self._file is not None and self._file is not before:
            self._file.close()
        self._file = new
        self._end = self._stored = End(number, base, 0, FIRST, end.time_us, FIRST)
        self._sync.write(self._end)
        assert self._turn is not None
        self._turn.write(self._end._replace(state=UNDER_WAY if self._is_in else 0))

    def _forget(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = self._end = None
