"""The end of a log that grows on many hosts: nothing is appended, and no lock is needed.

A group of messages is written to a dot-name and synced. Then it is linked to the name that is the
offset at which the log ends. Of all who try that, on any number of hosts, one succeeds. The others
take the end of that group, and try there. Whether the end that they know is still the end nobody
asks before that: the link tells it.

A name that was merged away is free again, so a writer that slept could link to it. Groups are
merged when the merger has seen them for ten minutes. So a writer that has needed less than one
minute, by a clock that nobody sets, from a moment at which nothing had the name yet to the end of
its link, has not. One that has needed more lists the folder, and begins again if its name does not
count. Such a moment is that of a listing, or the beginning of a link of one's own to the name
before; and it is one for all names behind that name, since none can be there without it.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from ..errors import Unavailable
from ..layout.files import write_all
from ..layout.uuids import uuid7
from .disk import Disk
from .record import HEAD, LINE_BYTES, Entry, Marks, chunks, encode, first_line, parse_line
from .segments import File, Piece, arrange, find, name_of, open_file

# A merger waits this long before it frees names, a writer trusts its view for this long.
MERGE_AFTER_S = 600.0
TRUST_S = 60.0
# Names of groups that are never merged.
KEPT_NAMES = 1000
_BLIND_TRIES = 2  # links to where the end was, before it is looked for
_MOST_NEW = 5000  # groups that were followed, before the folder is listed again
_boottime = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def since_boot() -> float:
    """Seconds of a clock that nobody sets, and that goes on while the machine sleeps."""
    return time.clock_gettime(_boottime)


class Group(NamedTuple):
    """What the name of a group's offset leads to."""

    base: int
    messages: int
    time_us: int
    inode: int


class Stale(Exception):
    """The group that was looked at is gone: another name has its messages."""


class LinkedTail:
    """The end of one log, as one of many processes sees it. For one thread at a time.

    time_before: the time of the last message before the end, in µs.
    """

    def __init__(self, disk: Disk, time_before: Callable[[list[Piece]], int]) -> None:
        self._disk = disk
        self._time_before = time_before
        self._seen_at = float("-inf")  # nothing had the name of the end then
        self._time_us = 0
        self.pieces: list[Piece] = []
        self._listed = 0  # how many pieces the last listing had
        self.inode = 0

    # -- where the log ends ----------------------------------------------------------------------

    def end(self) -> int:
        """Where the log ends; all before it is durable. Raises OSError, Unavailable."""
        before = self.pieces[-1].end if self.pieces else None
        if not self.pieces or self._has_changed() or len(self.pieces) > self._listed + _MOST_NEW:
            self.pieces = []
        end = self._refreshed()
        if end != before:
            self._disk.sync_folder(self._disk.segments)
        return end

    def _has_changed(self) -> bool:
        """Whether the end may be behind what was merged meanwhile."""
        self._disk.tree.refresh(self._disk.segments)
        path = f"{self._disk.segments}/{self.pieces[-1].name}"
        return self._disk.tree.stat(path) is None

    def _list(self) -> None:
        self._disk.tree.refresh(self._disk.segments)
        seen_at = since_boot()
        pieces = arrange(self._disk.tree.names(self._disk.segments))
        if pieces and pieces[-1].end is None:
            last = pieces[-1]
            group = self._look(last.base)
            pieces[-1] = last._replace(end=last.base + group.messages)
            self._time_us = group.time_us
        else:
            self._time_us = self._time_before(pieces)
        self.pieces, self._seen_at, self._listed = pieces, seen_at, len(pieces)

    def _follow(self) -> int:
        """Take the groups behind the last one that is known."""
        end = self.pieces[-1].end if self.pieces else 0
        assert end is not None
        while True:
            seen_at = since_boot()
            group = self._open(end)
            if group is None:
                if since_boot() - self._seen_at > TRUST_S:
                    raise Stale  # it may have been there, and merged away
                self._seen_at = seen_at
                return end
            end = self._take(group)

    def _open(self, base: int) -> Group | None:
        """The group of a name; None if nothing has it. Raises Stale if one host writes there."""
        file = open_file(self._disk.tree, self._disk.segments, name_of(base))
        if file is None:
            return None
        try:
            group = _read(file)
        finally:
            file.close()
        if group is None:
            raise Stale  # one host has written here, for a while
        return group

    def _take(self, group: Group) -> int:
        end = group.base + group.messages
        self.pieces.append(Piece(group.base, end, group.base, name_of(group.base)))
        self._time_us = group.time_us
        return end

    def _look(self, base: int) -> Group:
        file = open_file(self._disk.tree, self._disk.segments, name_of(base))
        if file is None:
            raise Stale
        try:
            group = _read(file)
        finally:
            file.close()
        if group is None:
            raise Unavailable(f"log {self._disk.name!r} is written by one host now")
        return group

    # -- publish ---------------------------------------------------------------------------------

    def publish(self, choose: Callable[[int], list[Sequence[Entry]]]) -> list[int]:
        """Store batches behind one another, durably; the first offset of each.

        choose: returns the batches; called with the end of the log before each try, since what
            others have published there may be what is to be published.

        Raises Unavailable, OSError.
        """
        draft = f"{self._disk.segments}/.{uuid7()}"
        self.inode = 0  # of the draft
        written: list[Sequence[Entry]] = []
        time_us = -1
        starts = [0]
        tries = 0
        try:
            while True:
                # A loser knows the winner's group, and mostly nobody is further yet. One that was
                # behind by more than that reads all there is, without a link for each.
                base = self._expected() if tries < _BLIND_TRIES else self._refreshed()
                tries += 1
                batches = choose(base)
                if not batches:
                    return []
                if batches != written or time_us < self._time_us:
                    written, time_us = batches, max(self._disk.now_us(), self._time_us)
                    starts = self._write(draft, batches, time_us)
                if self._link(draft, base, time_us, starts[-1]):
                    return [base + start for start in starts[:-1]]
        finally:
            with suppress(OSError):
                self._disk.tree.unlink(draft)

    def _expected(self) -> int:
        """Where the log ended when this tail saw it last."""
        end = self.pieces[-1].end if self.pieces else None
        if end is None or since_boot() - self._seen_at > TRUST_S / 2:
            return self._refreshed()
        return end

    def _refreshed(self) -> int:
        """Where the log ends, as far as one can know."""
        while True:
            try:
                if not self.pieces or since_boot() - self._seen_at > TRUST_S / 2:
                    self._list()
                return self._follow()
            except Stale:
                self.pieces = []
            except OSError as error:
                if error.errno != errno.ESTALE:
                    raise
                self.pieces = []  # another host has merged what was being read

    def _write(self, draft: str, batches: Sequence[Sequence[Entry]], time_us: int) -> list[int]:
        """Write the group, durably; where each batch begins in it, and at last how many it has."""
        uuid = draft.rpartition("/.")[2]
        line = first_line(uuid, sum(map(len, batches)))
        known = parse_line(line)
        assert known is not None
        marks = Marks(known.uuid, LINE_BYTES, 0, LINE_BYTES, 0)
        parts, starts = [line], []
        for entries in batches:
            starts.append(marks.ordinal)
            parts.extend(encode(entries, time_us, marks))
        tree = self._disk.tree
        if self.inode:
            tree.unlink(draft)  # of the last try
        fd = tree.create(draft)
        try:
            for chunk in chunks(parts):
                write_all(fd, chunk)
            self._disk.sync_file(fd)
            self.inode = os.fstat(fd).st_ino
        finally:
            os.close(fd)
        return [*starts, marks.ordinal]

    def _link(self, draft: str, base: int, time_us: int, count: int) -> bool:
        """Try for the name that is the end of the log; whether it is ours, durably."""
        tree, path = self._disk.tree, f"{self._disk.segments}/{name_of(base)}"
        begun_at = since_boot()
        try:
            tree.link(draft, path)
        except FileExistsError:
            # The answer to a link that succeeded may have been lost, and the call made twice.
            if not self._is_winner(base):
                return False
        if since_boot() - self._seen_at > TRUST_S and not self._counts(base):
            found = tree.look(path)
            if found is not None and found.st_ino == self.inode:
                tree.unlink(path)
            self.pieces = []
            return False
        self._disk.sync_folder(self._disk.segments)
        self._take(Group(base, count, time_us, self.inode))
        # Not a later moment: others may have gone on since, for long if this process was stopped.
        self._seen_at = begun_at
        return True

    def _is_winner(self, base: int) -> bool:
        """Whether a name that is taken has what was to be linked; else take what it has.

        Opened at once: an NFS client that was refused a link asks the server what has the name.
        """
        try:
            group = self._open(base)
        except Stale:
            group = None
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            group = None
        if group is None:
            self.pieces = []
            return False
        if group.inode == self.inode:
            return True
        self._take(group)
        return False

    def _counts(self, base: int) -> bool:
        """Whether a name that was linked late is at the end of the log, or joins on to what is."""
        tree = self._disk.tree
        tree.refresh(self._disk.segments)
        pieces = arrange(tree.names(self._disk.segments))
        at = find(pieces, base)
        if at >= len(pieces) or pieces[at].name != name_of(base):
            return False
        # Before it must end what we thought was the end; behind it may be what came since.
        if base and (at == 0 or pieces[at - 1].end not in (base, None)):
            return False
        end = pieces[at].end
        return end is None or end == base + self._look(base).messages


def _read(file: File) -> Group | None:
    """What a file says that has the name of an offset; None if it is one that grows."""
    if file.line is None or not file.line.messages:
        return None
    data = file.read(LINE_BYTES, HEAD.size)
    time_us = HEAD.unpack(data)[2] if len(data) == HEAD.size else 0
    return Group(int(file.name[:20]), file.line.messages, time_us, file.inode)
