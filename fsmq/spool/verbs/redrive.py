"""Redrive: bring dead letters to the queues from which they were buried, or to another one.

A move by one rename each, with the count of deliveries started again. `fsmq.spool.moves` does it in
the background, for whole queues.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from ..context import Context, Pending
from ..durability.sync import Work
from ..errors import InvalidValue, NoSuchQueue, as_unavailable
from ..layout import dead_letter
from ..layout.claim_names import of_ended_claim
from ..layout.names import check_id, check_queue, fits
from ..layout.steps import portions
from ..layout.transitions import DELAY, IDS, MOVE_READY, MOVED, NEW, QUEUES, State
from ..layout.tree import STRAY
from .latch import PATIENCE_S, Latched, latch
from .links_of_move import PART, linked
from .move import check_order, has_index, is_elsewhere


class Redriven(NamedTuple):
    """The outcome of a redrive."""

    moved: int = 0
    # Messages that stay: their queue has their id already, or its name leaves no room for the id.
    conflicts: int = 0
    # Those that stay since nothing says from which queue they came, that queue is gone, or they
    # came from a channel of a log: what is done there cannot go back.
    no_origin: int = 0


_NONE = Redriven()


class _Outcome(Enum):
    MOVED = "moved"
    CONFLICT = "conflict"
    NO_ORIGIN = "no origin"
    GONE = "gone"  # it is not ready, or another process acts on it
    LATER = "later"  # its links have to be made first


@dataclass(slots=True)
class Redrive:
    """Brings dead letters of one queue home.

    to: the queue to which all go; None: each to the queue from which it was buried. found: when
    each was buried that is meant; one that has failed once more since stays.
    """

    context: Context
    dead: str
    to: str | None
    found: Mapping[str, float | None] | None = None
    done: Redriven = _NONE
    work: Work = field(default_factory=Work)
    _later: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _has_index: dict[str, bool | None] = field(default_factory=dict)  # None: there is no such queue

    def part(self, ids: Sequence[str]) -> None:
        """Redrive some messages; those that are not ready are skipped.

        Raises:
            NoSuchQueue: the queue ``to`` is gone; what has not moved yet stays.
            Unavailable, OSError
        """
        self._has_index.clear()
        if self.to is not None and self._index_of(self.to) is None:
            raise NoSuchQueue(self.to)
        for message_id in ids:
            self._note(self._one(message_id, None))
        for target, those in self._later.items():
            with linked(self.context, self.dead, target, those) as staying:
                for message_id in those:
                    if message_id in staying:
                        self._note(_Outcome.CONFLICT)
                    else:
                        self._note(self._one(message_id, target))
        self._later.clear()

    def _note(self, outcome: _Outcome) -> None:
        moved, conflicts, no_origin = self.done
        if outcome is _Outcome.MOVED:
            self.done = Redriven(moved + 1, conflicts, no_origin)
        elif outcome is _Outcome.CONFLICT:
            self.done = Redriven(moved, conflicts + 1, no_origin)
        elif outcome is _Outcome.NO_ORIGIN:
            self.done = Redriven(moved, conflicts, no_origin + 1)

    def _one(self, message_id: str, linked: str | None) -> _Outcome:
        """Redrive one message. linked: the queue in whose index it is already."""
        try:
            latched = latch(
                self.context, self.context.tree.path(State.READY, self.dead, message_id), PATIENCE_S
            )
        except BlockingIOError:
            return _Outcome.GONE
        except PermissionError:
            return _Outcome.NO_ORIGIN  # another user's file: nobody could claim it there, either
        if latched is None:
            return _Outcome.GONE
        try:
            if not stat.S_ISREG(latched.found.st_mode):
                return _Outcome.GONE
            return self._latched(latched, message_id, linked)
        finally:
            latched.close()

    def _latched(self, latched: Latched, message_id: str, linked: str | None) -> _Outcome:
        known = dead_letter.read(latched.fd) if self.to is None or self.found else None
        if self.found and self.found[message_id] != (known and known.at):
            return _Outcome.GONE
        target = self.to or (None if known is None else known.home)
        if target is None or target == self.dead:
            return _Outcome.NO_ORIGIN
        has_index = self._index_of(target)
        if has_index is None:
            return _Outcome.NO_ORIGIN
        if not fits(target, message_id):
            return _Outcome.CONFLICT
        if has_index and target != linked:
            self._later[target].append(message_id)
            return _Outcome.LATER
        if is_elsewhere(self.context.tree, MOVE_READY, target, message_id):
            return _Outcome.CONFLICT
        return self._move(latched, message_id, target)

    def _move(self, latched: Latched, message_id: str, target: str) -> _Outcome:
        context, tree = self.context, self.context.tree
        path = tree.path(State.READY, self.dead, message_id)
        before_ns = latched.found.st_mtime_ns
        stamp = context.stamps.decode(message_id, before_ns)
        is_stamped = bool(stamp is not None and stamp.deliveries)
        # Before the rename, as by a burial: a consumer may claim it at once, with the old count.
        over_ms = of_ended_claim(stamp, context.now_ms())
        if is_stamped and not latched.stamp(
            context, path, context.stamps.encode(message_id, over_ms, 0)
        ):
            return _Outcome.GONE
        moved = None
        try:
            # On one host nobody can put a link in the place of a folder that was seen just now.
            moved = latched.move(
                context, MOVE_READY, self.dead, message_id, target, is_checked=not tree.network
            )
        except FileExistsError:
            return _Outcome.CONFLICT
        finally:
            if moved is None and is_stamped:
                latched.stamp(context, path, before_ns)
        if moved is None:
            if tree.has_queue(target):
                return _Outcome.GONE
            if self.to is not None:
                raise NoSuchQueue(target)
            self._has_index[target] = None
            return _Outcome.NO_ORIGIN
        if is_stamped:
            self.work.closed.append(tree.path(State.READY, target, message_id))
        # The first two for the rename that brought it there, which nobody may have synced.
        self.work.folders |= {tree.folder(NEW), tree.folder(DELAY)}
        self.work.folders |= {tree.folder(QUEUES, self.dead), tree.folder(QUEUES, target)}
        context.record(MOVED, target, message_id, source=self.dead)
        return _Outcome.MOVED

    def _index_of(self, queue: str) -> bool | None:
        """Whether what moves to a queue has links, here or there; None if it does not exist."""
        if queue not in self._has_index:
            tree = self.context.tree
            self._has_index[queue] = None
            if tree.has_queue(queue):
                self._has_index[queue] = has_index(self.context, self.dead, queue)
            if self._has_index[queue]:
                self.work.folders |= {tree.folder(IDS, self.dead), tree.folder(IDS, queue)}
        return self._has_index[queue]


def buried_at(context: Context, dead: str, message_id: str) -> float | None:
    """When a dead letter was buried; None if nothing says so, or it is not ready. OSError."""
    try:
        fd = context.tree.open(context.tree.path(State.READY, dead, message_id))
    except OSError as error:
        if error.errno in (*STRAY, errno.EACCES):
            return None
        raise
    try:
        known = dead_letter.read(fd)
    finally:
        os.close(fd)
    return None if known is None else known.at


def redrive_messages(
    context: Context,
    dead: str,
    ids: Sequence[str],
    to: str | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Pending[Redriven]:
    """Bring some dead letters to the queues from which they were buried, or all to one queue.

    Ids that are not ready there are skipped. progress: called with the number of those moved.

    Raises:
        NoSuchQueue: also if ``to`` is deleted meanwhile; the rest stays then.
        InvalidValue, Unavailable
    """
    check_queue(dead)
    if to is not None:
        check_queue(to, "to")
    if to == dead:
        raise InvalidValue("to", "is the same queue as the source")
    for message_id in ids:
        check_id(dead, message_id)
    tree = context.tree
    with as_unavailable(f"cannot redrive {dead!r}"):
        for queue in (dead, to):
            if queue is not None and not tree.has_queue(queue):
                raise NoSuchQueue(queue)
        if to is not None:
            check_order(context, dead, to, "to")
        redrive = Redrive(context, dead, to)
        for part in portions(list(dict.fromkeys(ids)), PART):
            redrive.part(part)
            progress(redrive.done.moved)
    return Pending(redrive.work, lambda: redrive.done)
