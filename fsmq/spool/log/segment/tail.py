"""The end of a log: who may append, and what a crash or a stopped writer has left.

There is one lock to append and one to sync. Readers see only what is synced. If one host writes,
the locks are enough, and processes share syncs. If many do, each publish is within a turn from
before its append until after its sync: see `turns.py`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from ...errors import Unavailable
from . import turns
from .chain import newest
from .checkpoint import FAILED, PATIENCE_S, UNDER_WAY, End
from .disk import Disk
from .newest import Newest
from .sealing import end_of
from .segments import close_on_error, has_number, open_file

# Where turns keep writers apart, the lock need not: it is waited for only this long.
_PATIENCE_WITH_TURNS_S = 5.0, 8.0


class LogTail(Newest):
    """The end of one log, as one process sees it. For one thread at a time, except `durable`.

    log: its UUID. check: raises if this host may not write, and returns whether other hosts may;
    called again under the lock, as both can change.
    """

    def __init__(self, disk: Disk, log: str, check: Callable[[], bool]) -> None:
        super().__init__(disk, log)
        self._check = check
        self.late: End | None = None  # an end that could not be set right
        # Whether this process has compared checkpoints with the newest segment.
        self._told_is_known = self._sync_is_known = False

    def close(self) -> None:
        self._cut_ahead()
        self._writer.close()
        self._sync.close()
        self._forget()
        self._leave_turn()
        self._disk.tree.close()

    def _cut_ahead(self) -> None:
        """Cut the zeros, if nobody else writes: an idle log should not take extra space."""
        file, end, turn = self._file, self._end, self._turn
        with suppress(OSError, Unavailable):
            if file and end and turn and self._disk.tree.in_place and file.size > end.position:
                with self._writer.locked(0.0):
                    if turn.is_current() and turn.read() == end and file.ends_at(end.position):
                        file.cut(end.position)

    # -- what is durable ---------------------------------------------------------------------------

    def can_read(self) -> bool:
        """Whether `durable` can be trusted: this process has seen that the newest segment agrees.

        After a lost and remounted filesystem it can be older than the last acknowledged append.
        Then the segment has data after it.
        """
        if not self._sync_is_known:
            synced = self.durable()
            if synced is None or has_number(self._disk, synced.number + 1):
                return False
            file = open_file(self._disk, synced.number)
            if file is None:
                return False
            with file:
                self._sync_is_known = file.ends_at(synced.position)
        return self._sync_is_known

    def is_overtaken(self, end: End) -> bool:
        """Whether a later segment than that of an end exists, or did, if many hosts write.

        Then a stopped writer may have written its old end late: whoever has written since has begun
        a segment. Segments go from the lowest on, so that of the end went before a later one.
        """
        if end == self.late:
            return False
        return has_number(self._disk, end.number + 1) or not has_number(self._disk, end.number)

    def settle(self, patience_s: float = PATIENCE_S) -> None:
        """Make durable what dead writers have left."""
        with self.locked(patience_s) as end:
            pass
        self.sync(end)

    def is_settled(self) -> bool:
        """Whether all that was appended is durable."""
        synced, hinted = self.durable(), turns.last_end(self._disk)
        return synced is not None and (
            hinted is None or (not hinted.state and synced.reaches(hinted))
        )

    # -- a turn ------------------------------------------------------------------------------------

    @contextmanager
    def locked(self, patience_s: float | None = None) -> Iterator[End]:
        """Keep other writers out; yields where the log ends. If many hosts write, appends are
        durable at the end of the context.

        patience_s: how long to wait for the lock; None: continue without it after some time, if
            turns keep writers apart.

        Raises OSError, Unavailable, and what the check does.
        """
        is_held = self._hold(patience_s)
        try:
            if self._check() or not is_held or self._is_another_in():
                with self._turn_of_ours(is_held) as end:
                    yield end
            else:
                yield self._validated()
        finally:
            if is_held:
                self._writer.unlock()

    def _hold(self, patience_s: float | None) -> bool:
        """Take the lock; False if another process, maybe stopped, has had it for long, and turns
        keep writers apart. Raises Unavailable."""
        if patience_s is not None:
            self._writer.lock(patience_s)
            return True
        short_s = random.uniform(*_PATIENCE_WITH_TURNS_S)
        try:
            self._writer.lock(short_s)
        except Unavailable:
            if self._check():
                return False
            self._writer.lock(PATIENCE_S - short_s)
        return True

    @contextmanager
    def _turn_of_ours(self, is_held: bool) -> Iterator[End]:
        self._is_in = True
        try:
            yield self._enter(is_held)
            assert self._end is not None
            assert self._turn is not None
            if self._end != self._stored:
                self._sync_in_turn(self._end)
            self._turn.write(self._end)
        except BaseException:
            if self._turn is not None and self._end == self._stored is not None:
                self._turn.write(self._stored)  # nothing was appended
            raise
        finally:
            self._is_in = False

    def _enter(self, is_held: bool) -> End:
        """Enter a turn of this process; returns where the log ends."""
        before, is_ours = None, self._is_still_ours()
        if not is_ours:
            self._forget()
            before = self._take_turn()
        # If a host becomes the only writer, that is noted first, and then its writers look who is
        # in. So they see this process, or it sees the note.
        if not self._check() and not is_held:
            raise Unavailable(f"one host alone writes to log {self._disk.name!r} now", 1)
        if not is_ours and (before is None or before.state or not self._adopt(before)):
            self._seal()
        self._told_is_known = self._sync_is_known = True
        assert self._end is not None
        if self._sync.read() != self._end:
            self._sync.write(self._end)  # a stopped writer has written its old end late
        self._stored = self._end
        return self._end

    def _take_turn(self) -> End | None:
        """Take a new turn; returns the end in the one before it. Raises OSError, Unavailable."""
        for _ in range(turns.TRIES):
            # A turn that could not be written is reused: otherwise each try would leave one.
            if self._turn is None or self._turn.read() is not None or not self._turn.is_last():
                self._leave_turn()
                self._turn = turns.create(self._disk)
            is_last, hinted = turns.begin(self._disk, self._turn)
            if is_last:
                return hinted
        raise turns.taken(self._disk)

    def _is_still_ours(self) -> bool:
        """Whether this process may continue in its turn; if so, it notes that it is in."""
        turn, end, file = self._turn, self._end, self._file
        if turn is None or end is None or file is None or turn.read() != end:
            return False
        turn.write(end._replace(state=UNDER_WAY))
        return self._has_turn(end.number) and file.ends_at(end.position)

    def _adopt(self, end: End) -> bool:
        """Continue where another writer left the newest segment, if that is as its turn says."""
        synced = self._sync.read()
        if synced is None or not synced.reaches(end) or has_number(self._disk, end.number + 1):
            return False
        file = open_file(self._disk, end.number, os.O_RDWR)
        if file is None:
            return False
        with close_on_error(file):
            if file.line and file.line.log == self._log and file.ends_at(end.position):
                self._file, self._end = file, end
                return True
        file.close()
        return False

    # -- one host ----------------------------------------------------------------------------------

    def _is_another_in(self) -> bool:
        """Whether a writer of another host is still in its turn: it may be stopped."""
        if self._turn is None or not self._turn.is_current():
            self._forget()
            self._leave_turn()
            self._turn = turns.shared(self._disk)
        hinted = self._turn.read()
        return hinted is not None and bool(hinted.state)

    def _validated(self) -> End:
        """The end if one host writes, checked against other processes' appends and crashes."""
        assert self._turn is not None
        synced, hinted = self._sync.read(), self._turn.read()
        if (
            synced is not None
            and synced.state != FAILED
            and hinted is not None
            and hinted.number == synced.number
            and self._file is not None
            and self._file.number == hinted.number
            and self._file.ends_at(hinted.position)
        ):
            self._end = hinted
            return hinted
        return self._load()

    def _load(self) -> End:
        """Find the end again if one host writes, and make it durable, or seal the segment."""
        self._forget()
        assert self._turn is not None
        hinted = self._turn.read() if self._told_is_known else None
        synced = self._sync.read()
        file, free = newest(self._disk, self._log, synced)
        if file is None or (
            synced is not None and synced.number == file.number and synced.state == FAILED
        ):
            self._seal(file, free)
        else:
            with close_on_error(file):
                end = end_of(file, synced, hinted)
            if synced is not None and synced.offset > end.offset:
                self._seal(file, free)  # messages were lost; their offsets stay used
            else:
                self._file, self._end = file, end
                if (
                    synced is None
                    or synced.number != end.number
                    or not (hinted is not None or synced.reaches(end))
                ):
                    self._sync_found(end)
        assert self._end is not None
        self._told_is_known = self._sync_is_known = True
        self._turn.write(self._end)
        return self._end

    def _sync_found(self, end: End) -> None:
        """Make durable what was found, before anything is appended to it, under the lock.

        What follows the place in the checkpoint may have been acknowledged before the machine
        stopped. So a failed sync here does not mark it as lost: the next one tries again.
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
