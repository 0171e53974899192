"""The file that senders into a fifo queue share, with the last place; and recovery of sends.

A sender holds the lock of a small file of the queue from the choice of the places to the renames
that show the messages. So no message is seen before one with a lower place. The line in the file
says how far the last group has come, and is synced with its messages: no later message gets a lower
place than an acknowledged one. A group that was killed or failed leaves the line as it is; the next
holder of the lock recovers before anything else.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Self

from ..layout.names import is_id, sequence_of, split_entry, split_staged
from ..layout.settings_store import SettingsStore
from ..layout.stamps import Stamps
from ..layout.transitions import CONFIG, DELAY, NEW, State
from ..layout.tree import Tree
from ..layout.uuids import now_ticks
from .dedup_records import confirm, restore_records, settle
from .drafts import show
from .locks import Lock, hold, lock, patiently
from .shared_names import claims_name, sends_name
from .unfinished import Recovered, is_complete

_BYTES = 64
# How long to wait for a sender.
PATIENCE_S = 10.0
# Places further ahead of the clock come from a clock that was wrong.
_AHEAD_S = 60.0
# How long recovery waits for a claimer before it gives up until the next try: others wait for it.
_CLAIMS_S = 0.05
OnFault = Callable[[str, str], None]


# Errors of a disk that cannot read what is there.
_DAMAGED = (errno.EIO, errno.EBADMSG)


class Line(NamedTuple):
    """last: the last place given, in ticks. is_over: nothing is left to be shown.

    settled: messages up to this place are durable and will be shown; their records hold.
    """

    last: int = 0
    is_over: bool = False
    settled: int = 0


def write_line(fd: int, line: Line) -> None:
    """Write the file of a queue's sends, which is locked. Raises OSError."""
    text = f"{line.last} {int(line.is_over)} {line.settled}"
    os.pwrite(fd, text.ljust(_BYTES - 1).encode() + b"\n", 0)


def read_line(fd: int) -> Line:
    """The line of the file; the default if it cannot be parsed. Raises OSError."""
    try:
        last, is_over, settled = map(int, os.pread(fd, _BYTES, 0).split())
    except ValueError:
        return Line()
    return Line(last, bool(is_over), settled)


def lock_sends(tree: Tree, queue: str) -> Lock | None:
    """Keep all others from sending into a queue; None if someone sends right now. OSError."""
    return lock(tree, tree.folder(CONFIG, sends_name(queue)), os.O_CREAT)


@contextmanager
def no_sends(tree: Tree, queue: str, settings: SettingsStore) -> Iterator[bool]:
    """Keep senders out of a queue if it is a fifo queue; yields whether it is.

    Raises Unavailable, OSError.
    """
    if not settings.get(queue).fifo:
        yield False
        return
    path = tree.folder(CONFIG, sends_name(queue))
    held = hold(tree, path, PATIENCE_S, even_if_full=True)  # a purge must not need room
    try:
        yield True
    finally:
        if held is not None:
            held.unlock()


@dataclass(frozen=True, slots=True)
class Recovery:
    """Shows what senders that died left in a queue: complete dot-names in their order.

    on_fault: called with (path, reason) for a file that cannot be read, or that is left to the user
    who owns it. claims: whether the caller has the lock of the claims.
    """

    tree: Tree
    stamps: Stamps
    queue: str
    now: float
    on_fault: OnFault = lambda path, why: None
    claims: bool = False

    def try_it(self) -> Recovered:
        """Recover, unless someone sends right now. Raises OSError."""
        held = lock_sends(self.tree, self.queue)
        if held is None:
            return Recovered()
        try:
            done = self.run(held.fd)
            write_line(held.fd, read_line(held.fd)._replace(is_over=True))
        finally:
            held.unlock()
        return done

    def run(self, fd: int) -> Recovered:
        """The same for a caller that has the lock.

        fd: the locked file. Afterwards its last place covers all that was left, which is settled.
        """
        tree, queue, now = self.tree, self.queue, self.now
        line = read_line(fd)
        complete, unread, removed = self._unfinished()
        if complete or removed or not line.is_over:
            # A group that ended early may not have synced what it wrote or unlinked.
            tree.sync_folder(tree.folder(NEW))
        now_ms = int(now * 1000)
        with _Standing(tree, queue, self.claims, unread) as standing:
            settled = settle(tree, queue, line.settled, complete, standing.has)
            for message_id in settled.void & complete.keys():
                # It existed nowhere when that was decided: a power cut has brought it back.
                removed += tree.unlink(complete.pop(message_id))
            lacking = complete.keys() - settled.known
            restore_records(tree, queue, {one: complete[one] for one in sorted(lacking)}, now_ms)
            places = [line.last, *(sequence_of(one) or 0 for one in (*complete, *unread))]
            if not line.last:  # the file is new, or lost
                places.append(standing.last_place())
            elif (
                not complete and is_ahead(line.last, now) and standing.last_place() < now_ticks(now)
            ):
                # Go by the clock again. Records must not depend on their places then: confirm them.
                confirm(tree, queue)
                places = [now_ticks(now)]
        last = max(places)
        if complete or not line.is_over or last != line.last:
            # Before they are shown: a message consumed early would seem never to have been stored.
            write_line(fd, Line(last, settled=last))
            os.fsync(fd)
            tree.sync_folder(tree.folder(CONFIG))
        for message_id, path in complete.items():  # not by way of new/: movers keep no order
            try:
                show(tree, self.stamps, queue, message_id, path, now_ms)
            except FileExistsError:
                removed += tree.unlink(path)
            except PermissionError as error:
                self.on_fault(path, str(error))
        return Recovered(len(complete), removed)

    def _unfinished(self) -> tuple[dict[str, str], dict[str, OSError], int]:
        """The paths of complete dot-names by their ids, in order; how many torn ones went.

        Between them: the errors of those that the disk cannot read now; they are shown once it can.
        """
        tree, queue = self.tree, self.queue
        names = [n for n in tree.names(tree.folder(NEW)) if n.startswith(f".{queue}:")]
        left = [(own, name) for name in names if (own := _id_of(name, queue)) is not None]
        complete: dict[str, str] = {}
        unread: dict[str, OSError] = {}
        removed = 0
        for message_id, name in sorted(left):
            path = tree.folder(NEW, name)
            try:
                if is_complete(tree, name, durably=True):
                    complete[message_id] = path
                else:
                    removed += tree.unlink(path)
            except OSError as error:
                if error.errno in _DAMAGED:
                    unread[message_id] = error
                elif not isinstance(error, PermissionError):
                    raise
                self.on_fault(path, str(error))
        return complete, unread, removed


def is_ahead(place: int, now: float) -> bool:
    """Whether a place is that of a clock that was wrong."""
    return place > now_ticks(now + _AHEAD_S)


class _Standing:
    """Which messages of a queue exist. From the first question on, nobody can claim.

    While nobody claims, messages move from ``new/`` to ``delay/`` and the queue, from ``delay/`` to
    the queue, and from each to ``remove/``, but never back: a look in this order misses none.
    """

    def __init__(self, tree: Tree, queue: str, claims: bool, unread: Mapping[str, OSError]) -> None:
        self._tree = tree
        self._queue = queue
        self._is_sure = claims
        self._unread = unread
        self._held: Lock | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._held is not None:
            self._held.unlock()

    def has(self, message_id: str) -> bool:
        """Whether a message stands anywhere, ``remove/`` included. Raises OSError.

        Raises the error of a message that the disk cannot read.
        """
        if (error := self._unread.get(message_id)) is not None:
            raise error
        self._let_nobody_claim()
        states = (State.NEW, State.DELAY, State.READY, State.REMOVE)
        paths = (self._tree.path(state, self._queue, message_id) for state in states)
        return any(self._tree.look(path) is not None for path in paths)

    def last_place(self) -> int:
        """The highest place of a message. Raises OSError."""
        self._let_nobody_claim()
        tree, ids = self._tree, []
        for folder in (NEW, DELAY):
            entries = (split_entry(name) for name in tree.names(tree.folder(folder)))
            ids += [parts[1] for parts in entries if parts is not None and parts[0] == self._queue]
        ids += tree.ready_names(self._queue) or ()
        return max((sequence_of(one) or 0 for one in ids), default=0)

    def _let_nobody_claim(self) -> None:
        if self._is_sure:
            return
        path = self._tree.folder(CONFIG, claims_name(self._queue))
        self._held = patiently(lambda: lock(self._tree, path, os.O_CREAT), _CLAIMS_S)
        if self._held is None:
            raise BlockingIOError(errno.EAGAIN, "another program has been claiming for long", path)
        self._is_sure = True


def _id_of(name: str, queue: str) -> str | None:
    staged = split_staged(name)
    parts = split_entry(staged[0]) if staged is not None else None
    if parts is None or parts[0] != queue or not is_id(parts[1]):
        return None
    return parts[1]
