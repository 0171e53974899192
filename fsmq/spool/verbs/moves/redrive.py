"""Redrive: bring dead letters to the queues from which they were buried, or to another one.

A move by one rename each, with the count of deliveries started again. `fsmq.spool.moves` does it in
the background, for whole queues.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import NamedTuple

from ...context import Context, Prepared
from ...durability.ids import IS_HELD, PATIENCE_S
from ...durability.sync import Dirty
from ...errors import InUse, InvalidValue, NoSuchQueue, Unavailable, as_unavailable, reraise
from ...layout.claim_names import of_ended_claim
from ...layout.messages import dead_letter
from ...layout.messages.dead_letter import DeadLetter
from ...layout.names import check_id, check_queue, fits
from ...layout.patterns import compiled
from ...layout.steps import portions
from ...layout.transitions import DELAY, MOVE_READY, MOVED, NEW, QUEUES, State
from ...layout.tree import STRAY
from ..latch import PATIENCE_S as LATCH_PATIENCE_S
from ..latch import Latched, latch
from .links_of_move import PART, Turns, index_folders, receiving, together_or_alone
from .move import check_order, is_elsewhere


class Redriven(NamedTuple):
    """The outcome of a redrive."""

    moved: int = 0
    # Messages that stay: their queue has their id already, or its name leaves no room for the id.
    conflicts: int = 0
    # Those that stay since nothing says from which queue they came, that queue is gone or none of
    # those to which they may go, or they came from a channel of a log: what is done there cannot
    # go back.
    no_origin: int = 0


_NONE = Redriven()
UNREAD = -1.0


class _Outcome(Enum):
    MOVED = "moved"
    CONFLICT = "conflict"
    NO_ORIGIN = "no origin"
    GONE = "gone"  # it is not ready, or another process acts on it


@dataclass(slots=True)
class Redrive:
    """Brings dead letters of one queue home.

    to: the queue to which all go; None: each to the queue from which it was buried. found: when
    each was buried that is meant; one that has failed once more since stays. homes: what
    the names of the queues match to which they may go where each goes home; None: all may be.
    later: those that were not redriven, since another program had locked their ids.
    """

    context: Context
    dead: str
    to: str | None
    found: Mapping[str, float | None] | None = None
    done: Redriven = _NONE
    dirty: Dirty = field(default_factory=Dirty)
    homes: re.Pattern[str] | None = None
    later: list[str] = field(default_factory=list)
    # Why a letter is not there yet; it keeps none of the others.
    fault: OSError | Unavailable | None = None

    def targets(self, ids: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Where messages go that are ready. Raises OSError."""
        if self.to is not None:
            return {self.to: ids}
        targets: dict[str, list[str]] = defaultdict(list)
        for message_id in ids:
            try:
                letter = _letter(self.context, self.dead, message_id)
            except FileNotFoundError:
                continue
            except OSError as error:
                self.fault = self.fault or error
                continue
            if not self._is_meant(letter, message_id):
                continue
            home = None if letter is None else letter.home
            if home is None or home == self.dead or not self._may_go(home):
                self._note(_Outcome.NO_ORIGIN)
            else:
                targets[home].append(message_id)
        return targets

    def _may_go(self, home: str) -> bool:
        return self.homes is None or self.homes.fullmatch(home) is not None

    def _is_meant(self, letter: DeadLetter | None, message_id: str) -> bool:
        """Whether it is the letter that was found: it may have come back, and failed once more."""
        return self.found is None or self.found[message_id] in (UNREAD, letter and letter.at)

    def bring(self, target: str, ids: Sequence[str], patience_s: float = PATIENCE_S) -> None:
        """Redrive messages to one queue; those that are not ready are skipped.

        patience_s: how long to wait for each lock.

        Raises:
            NoSuchQueue: the queue ``to`` is gone; what has not moved yet stays.
            InUse: nothing was done.
            Unavailable, OSError
        """
        left = [message_id for message_id in ids if fits(target, message_id)]
        has_no_room = len(ids) - len(left)
        is_home = self.to is None
        try:
            with receiving(
                self.context, self.dead, target, left, is_home=is_home, patience_s=patience_s
            ) as not_now:
                for _ in range(has_no_room):
                    self._note(_Outcome.CONFLICT)
                self.dirty.folders |= index_folders(self.context, self.dead, target)
                while left:
                    if left[0] in not_now.later:
                        self.later.append(left[0])
                    elif left[0] in not_now.stay:
                        self._note(_Outcome.CONFLICT)
                    else:
                        self._try_one(left[0], target)
                    left.pop(0)
        except NoSuchQueue:
            if not is_home:
                raise
            for _ in left:
                self._note(_Outcome.NO_ORIGIN)

    def _try_one(self, message_id: str, target: str) -> None:
        """Redrive one message, or note why it is not there yet. Raises NoSuchQueue."""
        try:
            self._note(self._one(message_id, target))
        except (OSError, Unavailable) as error:
            self.fault = self.fault or error

    def finish(self) -> Redriven:
        """The outcome.

        Raises InUse if other programs had locked the ids of some, Unavailable.
        """
        if self.fault is not None:
            reraise(self.fault, f"cannot redrive {self.dead!r}")
        if self.later:
            raise InUse(IS_HELD)
        return self.done

    def _note(self, outcome: _Outcome) -> None:
        moved, conflicts, no_origin = self.done
        if outcome is _Outcome.MOVED:
            self.done = Redriven(moved + 1, conflicts, no_origin)
        elif outcome is _Outcome.CONFLICT:
            self.done = Redriven(moved, conflicts + 1, no_origin)
        elif outcome is _Outcome.NO_ORIGIN:
            self.done = Redriven(moved, conflicts, no_origin + 1)

    def _one(self, message_id: str, target: str) -> _Outcome:
        """Redrive one message. Raises NoSuchQueue, OSError."""
        try:
            path = self.context.tree.path(State.READY, self.dead, message_id)
            latched = latch(self.context, path, LATCH_PATIENCE_S)
        except BlockingIOError:
            return _Outcome.GONE
        except PermissionError:
            return _Outcome.NO_ORIGIN  # another user's file: nobody could claim it there, either
        if latched is None:
            return _Outcome.GONE
        try:
            if not stat.S_ISREG(latched.found.st_mode):
                return _Outcome.GONE
            if self.found is not None or self.to is None:
                letter = dead_letter.read(latched.fd)
                if not self._is_meant(letter, message_id):
                    return _Outcome.GONE
                if self.to is None and (letter is None or letter.home != target):
                    return _Outcome.GONE  # it is another one of this id
            if is_elsewhere(self.context.tree, MOVE_READY, target, message_id):
                return _Outcome.CONFLICT
            return self._move(latched, message_id, target)
        finally:
            latched.close()

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
            if not tree.has_queue(target):
                raise NoSuchQueue(target)
            return _Outcome.GONE
        if is_stamped:
            self.dirty.closed.append(tree.path(State.READY, target, message_id))
        # The first two for the rename that brought it there, which nobody may have synced.
        self.dirty.folders |= {tree.folder(NEW), tree.folder(DELAY)}
        self.dirty.folders |= {tree.folder(QUEUES, self.dead), tree.folder(QUEUES, target)}
        context.record(MOVED, target, message_id, source=self.dead)
        return _Outcome.MOVED


def buried_at(context: Context, dead: str, message_id: str) -> float | None:
    """When a dead letter was buried; None if nothing says so, or it is not ready.

    UNREAD if it cannot be read now. Then it is meant whenever that was: nobody can act on it.
    """
    try:
        letter = _letter(context, dead, message_id)
    except FileNotFoundError:
        return None
    except OSError:
        return UNREAD
    return None if letter is None else letter.at


def _letter(context: Context, dead: str, message_id: str) -> DeadLetter | None:
    """What a message tells of its burial; None if nothing does, as of another user's file.

    Raises FileNotFoundError if it is not ready, OSError.
    """
    path = context.tree.path(State.READY, dead, message_id)
    try:
        fd = context.tree.open(path)
    except OSError as error:
        if error.errno == errno.EACCES:
            return None
        if error.errno in STRAY:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return dead_letter.read(fd)
    finally:
        os.close(fd)


def redrive_messages(
    context: Context,
    dead: str,
    ids: Sequence[str],
    to: str | None = None,
    progress: Callable[[int], None] = lambda done: None,
    homes: Sequence[str] | None = None,
) -> Prepared[Redriven]:
    """Bring some dead letters to the queues from which they were buried, or all to one queue.

    Ids that are not ready there are skipped. progress: called with the number of those moved.
    homes: the patterns of names of the queues to which they may go home; None is all.

    Raises:
        NoSuchQueue: also if ``to`` is deleted meanwhile; the rest stays then.
        InUse: other programs have locked the ids of some; the others have been redriven.
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
        may_go = None if homes is None else compiled(homes)
        redrive, turns = Redrive(context, dead, to, homes=may_go), Turns()
        for part in portions(list(dict.fromkeys(ids)), PART):
            for target, those in redrive.targets(part).items():
                fault = together_or_alone(partial(redrive.bring, target), those)
                redrive.fault = redrive.fault or fault
            progress(redrive.done.moved)
            time.sleep(turns.pause())
    return Prepared(redrive.dirty, redrive.finish)
