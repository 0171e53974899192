"""The work of one move, in steps between which the runner can do other work or stop.

It moves the messages that are in the source when the work begins. After a crash the source is
listed again, and messages younger than the youngest found at first are left; for a redrive the dead
letters found are stored with their times of burial. If there is a count, the messages to move are
stored before they move: so after a crash no other moves instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import NamedTuple, TypeVar

from ..context import Context
from ..durability.sync import Dirty, Syncer
from ..durability.unfinished import exists
from ..errors import InUse, NoSuchQueue, Reserved, Unavailable
from ..layout.duty_cycle import Rate
from ..layout.names import facts, fits, is_id
from ..layout.patterns import compiled
from ..layout.steps import giving_way
from ..layout.transitions import (
    DELAY,
    MOVE_DELAY,
    MOVE_NEW,
    MOVE_READY,
    MOVE_TIMER,
    NEW,
    QUEUES,
    REMOVE,
    State,
    Transition,
)
from ..verbs.dedup import read_side, write_side
from ..verbs.moves import move as moving
from ..verbs.moves.links_of_move import PART, LastTries, Turns, index_folders, receiving
from ..verbs.moves.redrive import Redrive, Redriven, buried_at
from ..views import browse
from .collapse import Stays, collapse
from .order import MAX_CHOSEN, Move, is_stopped, outcome, read_found, save, write_found

T = TypeVar("T")
# How many renames share a sync; a move is reported complete only after its last sync.
_SYNC_EVERY = 10_000
_SAVE_EVERY_S = 1.0
# How soon a move that waits for its rate notices a stop.
_LOOK_EVERY_S = 0.25
# How long, and how often, a part is retried while another program has a lock that it needs.
_PATIENCE_S, _AGAIN_S = 5.0, 0.002


class _Found(NamedTuple):
    """A message to be moved."""

    source: str
    target: str
    message_id: str


class MoveWork:
    """The work of one move; the caller has its lock. ``move``: its progress.

    Attributes:
        due: when the next step may be done (`time.monotonic`).
    """

    def __init__(self, context: Context, syncer: Syncer, move: Move) -> None:
        self.move = move
        self.due = 0.0
        self._context = context
        self._tree = context.tree
        self._syncer = syncer
        self._rate = Rate(move.rate)
        self._turns = Turns()
        self._is_gone = False  # the target was deleted
        self._fault: OSError | Unavailable | None = None  # the error of a message that is left
        self._pause = 0.0  # seconds before the next part
        self._kept, self._saved = move, time.monotonic()
        self._unsynced = 0
        self._last_tries = LastTries()

    def steps(self) -> Generator[None, None, None]:
        """Do the move, and set its outcome at the end. Raises Unavailable, OSError."""
        if is_stopped(self._tree, self.move.ref):
            self.move = replace(self.move, status="stopped")
            return
        steps = self._redrive() if self.move.redrive else self._move_all()
        for _ in steps:
            end = time.monotonic() + self._pause
            while True:
                if self.move != self._kept and time.monotonic() - self._saved >= _SAVE_EVERY_S:
                    self.keep()
                if is_stopped(self._tree, self.move.ref):
                    steps.close()  # which syncs what has moved
                    self.move = replace(self.move, status="stopped")
                    return
                self.due = min(end, time.monotonic() + _LOOK_EVERY_S)
                yield
                if time.monotonic() >= end:
                    break
        if self._fault is not None:
            raise self._fault  # the others have moved; the rest is tried again
        self.move = outcome(self.move, self._is_gone)

    def keep(self) -> None:
        """Store the progress. Raises OSError."""
        save(self._tree, self.move)
        self._kept, self._saved = self.move, time.monotonic()

    # -- redrives ----------------------------------------------------------------------------------

    def _redrive(self) -> Generator[None, None, None]:
        move = self.move
        if move.total is None:
            names: Iterable[str] | None = move.ids
            if names is None:
                names = browse.ids(self._context, move.source, State.READY)
            found = {name: buried_at(self._context, move.source, name) for name in names}
            write_found(self._tree, move.ref, found)
        else:
            found = read_found(self._tree, move.ref)
        self._begin(len(found), "")
        done = Redriven(move.moved)
        to, homes = move.target or None, None if move.homes is None else compiled(move.homes)
        redrive = Redrive(self._context, move.source, to, found, done, homes=homes)
        ids = list(found)
        try:
            while ids and not self._is_gone:
                yield from self._redrive_these(redrive, ids)
                tried, ids, redrive.later = len(ids), redrive.later, []
                if ids:
                    self._pause = self._last_tries.pause(len(ids), tried)
                    yield
        finally:
            self._syncer.sync(redrive.dirty)

    def _redrive_these(self, redrive: Redrive, ids: Sequence[str]) -> Generator[None, None, None]:
        for part in self._parts(ids):
            before = redrive.done.moved
            try:
                for target, those in redrive.targets(part).items():
                    yield from self._make(partial(redrive.bring, target, patience_s=0.0), those)
            except NoSuchQueue:
                self._is_gone = True
                return
            finally:
                self._fault = self._fault or redrive.fault
                moved, conflicts, no_origin = redrive.done
                self.move = replace(
                    self.move, moved=moved, conflicts=conflicts, no_origin=no_origin
                )
            if self._count(moved - before):
                dirty, redrive.dirty = redrive.dirty, Dirty()
                self._syncer.sync(dirty)
            yield

    # -- moves -------------------------------------------------------------------------------------

    def _move_all(self) -> Generator[None, None, None]:
        move = self.move
        pairs = [(move.source, move.target)]
        if move.dedup:
            # The source's read side goes to the write side, too, where it collapses again.
            target = write_side(move.target)
            pairs = [(read_side(move.source), target), (write_side(move.source), target)]
        found = self._found(pairs)
        total = len(found) if move.count is None else min(len(found), move.count)
        self._begin(total, max((_age(one.message_id) for one in found), default=""))
        self.move = replace(self.move, conflicts=0)
        for portion in self._choices(pairs, found):
            yield from self._move_these(pairs, portion)
            if self._is_gone:
                return

    def _choices(
        self, pairs: list[tuple[str, str]], found: list[_Found]
    ) -> Iterator[Sequence[_Found]]:
        """All; with a count in portions, each of which is stored durably before it moves."""
        count = self.move.count
        if count is None:
            yield found
            return
        # A name given by hand can be too long to be looked up: it stays.
        fitting = [one for one in found if fits(one.source, one.message_id)]
        self.move = replace(self.move, conflicts=len(found) - len(fitting))
        found = fitting
        chosen = frozenset(self.move.chosen)
        if chosen:
            # Those that a crash has undone or prevented; the ones that moved are gone from here.
            self.move = replace(self.move, moved=self.move.moved_before + self._gone(pairs))
            yield [one for one in found if one.message_id in chosen]
            found = [one for one in found if one.message_id not in chosen]
        at = 0
        # A message that stays because of a conflict does not count: the next one moves.
        while at < len(found) and (size := min(count - self.move.moved, MAX_CHOSEN)) > 0:
            portion = found[at : at + size]
            at += size
            ids = tuple(one.message_id for one in portion)
            self.move = replace(self.move, chosen=ids, moved_before=self.move.moved)
            self.keep()
            yield portion

    def _gone(self, pairs: list[tuple[str, str]]) -> int:
        """How many of the chosen messages have left the source."""
        return sum(
            not any(exists(self._tree, source, message_id) for source, _ in pairs)
            for message_id in self.move.chosen
        )

    def _move_these(
        self, pairs: list[tuple[str, str]], found: Sequence[_Found]
    ) -> Generator[None, None, None]:
        """Move some messages, durably by the end.

        Those whose ids other programs have locked, say for a put, come last.
        """
        dirty = self._folders(pairs)
        try:
            while found:
                later: list[_Found] = []
                for part in self._parts(found):
                    before = self.move.moved
                    for _, several in groupby(part, key=lambda one: one.source):
                        yield from self._make(partial(self._move_part, later), list(several))
                    if self._is_gone:
                        return
                    if self._count(self.move.moved - before):
                        self._syncer.sync(dirty)
                        dirty = self._folders(pairs)
                    yield
                if later:
                    self._syncer.sync(dirty)
                    dirty = self._folders(pairs)
                    try:
                        self._pause = self._last_tries.pause(len(later), len(found))
                    except InUse as error:
                        self._fault = self._fault or error
                        return  # other portions may follow
                    yield
                found = later
        finally:
            self._syncer.sync(dirty)

    def _found(self, pairs: list[tuple[str, str]]) -> list[_Found]:
        """The messages to move; with a count the ones that would be claimed last come first."""
        found = [
            _Found(source, target, message_id)
            for source, target in pairs
            for message_id in self._ids(source)
        ]
        if self.move.ids is not None:
            chosen = frozenset(self.move.ids)
            found = [one for one in found if one.message_id in chosen]
        if self.move.count is None:
            return found
        return sorted(found, key=lambda one: one.message_id, reverse=True)

    def _move_part(self, later: list[_Found], part: Sequence[_Found]) -> None:
        """Move some messages from one queue to another.

        Raises Unavailable (InUse, too), OSError: nothing was done.
        """
        moved = conflicts = 0
        source, target, _ = part[0]
        names = [one.message_id for one in part]
        try:
            with receiving(self._context, source, target, names, patience_s=0.0) as not_now:
                for one in part:
                    if one.message_id in not_now.stay:
                        conflicts += 1
                        continue
                    if one.message_id in not_now.later:
                        later.append(one)
                        continue
                    try:
                        moved += self._move(source, target, one.message_id)
                    except (FileExistsError, Stays):
                        conflicts += 1
                    except Reserved:
                        later.append(one)
                    except (OSError, Unavailable) as error:
                        self._fault = self._fault or error
        except NoSuchQueue:
            self._is_gone = True
        move = self.move
        self.move = replace(move, moved=move.moved + moved, conflicts=move.conflicts + conflicts)

    def _ids(self, queue: str) -> Iterator[str]:
        # In the direction in which messages move: one that moves on is seen twice, not missed.
        move = self.move
        states = [State.NEW, State.READY]
        if move.in_flight or move.delayed:
            states.append(State.DELAY)
        youngest = move.youngest
        seen: set[str] = set()
        for state in states:
            for message_id in giving_way(browse.ids(self._context, queue, state)):
                if message_id in seen or (youngest and _age(message_id) > youngest):
                    continue
                stays = state is State.DELAY and not move.in_flight
                if stays and moving.is_in_flight(self._context, queue, message_id):
                    continue
                if is_id(message_id):
                    seen.add(message_id)
                    yield message_id

    def _move(self, source: str, target: str, message_id: str) -> bool:
        """Move one message in any state.

        Raises FileExistsError, Stays, Reserved, NoSuchQueue, Unavailable, OSError.
        """
        attempts: tuple[Transition, ...] = (MOVE_READY, MOVE_NEW, MOVE_READY)
        if self.move.in_flight:
            attempts = (*attempts, MOVE_DELAY, MOVE_READY)
        elif self.move.delayed:
            attempts = (*attempts, MOVE_TIMER, MOVE_READY)
        if self.move.dedup:
            if collapse(self._context, source, target, message_id, attempts):
                return True
            if not self._tree.has_queue(target):
                raise NoSuchQueue(target)
            return False
        return any(
            moving.move_one(self._context, attempt, source, message_id, target)
            for attempt in attempts
        )

    def _folders(self, pairs: list[tuple[str, str]]) -> Dirty:
        tree = self._tree
        queues = {tree.folder(QUEUES, queue) for pair in pairs for queue in pair}
        queues |= index_folders(self._context, *(queue for pair in pairs for queue in pair))
        return Dirty(folders={tree.folder(NEW), tree.folder(DELAY), tree.folder(REMOVE), *queues})

    # -- both --------------------------------------------------------------------------------------

    def _begin(self, total: int, youngest: str) -> None:
        """Store what was found, unless another process had begun before."""
        if self.move.total is None:
            self.move = replace(self.move, total=total, youngest=youngest)
            self.keep()

    def _make(
        self, make: Callable[[Sequence[T]], None], part: Sequence[T]
    ) -> Generator[None, None, None]:
        """Do a part; while another program has a lock that it needs, other moves go on.

        make: acts on all messages, or on none if it raises. Then each is tried alone, so that one
        failure does not stop the others.
        """
        end = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return make(part)
            except InUse as error:
                # A lock that is held for long delays only one part, not each.
                if isinstance(self._fault, InUse) or time.monotonic() >= end:
                    self._fault = self._fault or error
                    return
            except (OSError, Unavailable):
                break
            self._pause = _AGAIN_S
            yield
        for one in part:
            try:
                make([one])
            except (OSError, Unavailable) as error:
                self._fault = self._fault or error
            self._pause = self._turns.pause()
            yield

    def _parts(self, found: Sequence[T]) -> Iterator[Sequence[T]]:
        size = self._rate.part(PART)
        for at in range(0, len(found), size):
            yield found[at : at + size]

    def _count(self, moved: int) -> bool:
        """Count moved messages; whether to sync now."""
        self._pause = self._turns.pause(self._rate.pause(moved))
        self._unsynced += moved
        if self._unsynced < _SYNC_EVERY:
            return False
        self._unsynced = 0
        return True


def _age(message_id: str) -> str:
    """The part of an id that orders by age: the UUID, without the priority."""
    known = facts(message_id)
    return "" if known.created_ms is None else message_id[4 if known.priority else 0 :][:36]
