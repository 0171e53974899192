"""Moves in the background: all messages of a queue to another, each by one rename.

A move is a file of the tree, so it survives whatever works on it: ``moves/<ref>.json`` while there
is something to do, ``moves/<ref>.done`` with the outcome afterwards. Whoever works on one holds a
lock beside it; when that ends, with its holder, the next one goes on.

What is moved is what stands in the source when the work begins. The work that goes on after a
crash lists the source again, and leaves what is younger than the youngest that was found first.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from .context import Context
from .durability.locks import lock, patiently, reserve
from .durability.sync import Syncer, Work
from .durability.unfinished import exists
from .errors import InvalidValue, NoSuchQueue, Unavailable, as_unavailable, unavailable
from .layout import documents
from .layout.names import UUID7, check_queue, facts, fits, is_id
from .layout.settings import check_number
from .layout.transitions import (
    DELAY,
    IDS,
    MOVE_DELAY,
    MOVE_DELIVER,
    MOVE_NEW,
    MOVE_READY,
    MOVE_TIMER,
    MOVES,
    NEW,
    PURGE_DELAY,
    PURGE_NEW,
    PURGE_READY,
    QUEUES,
    REMOVE,
    State,
    Transition,
)
from .layout.tree import Tree
from .layout.uuids import uuid7
from .verbs import move as moving
from .verbs.dedup import content_id, read_side, write_side
from .verbs.links_of_move import PART, LinksOfMove
from .views import browse

Status = Literal["in_progress", "complete", "error"]
_ref = re.compile(UUID7)
_OPEN, _DONE = ".json", ".done"
# How many renames share a sync; no move is reported complete before its last sync.
_SYNC_EVERY = 10_000
_SAVE_EVERY_S = 1.0
_RESERVED_PATIENCE_S = 5.0
_MAX_BYTES = 64 * 1024
MAX_COUNT = 2**40


@dataclass(frozen=True, slots=True)
class Move:
    """A move and how far it is.

    dedup: source and target name dedup queues.
    in_flight: claimed and delayed messages move too, and are ready then.
    delayed: delayed messages, which nobody has claimed, move too, and are delayed there.
    count: so many move, those that would be claimed last; None is all.
    total: messages that were found; None before the work has begun.
    moved: how many were moved by the process that works on it now; a crash may set it back.
    youngest: the greatest id that was found.
    conflicts: messages that stay, since the target has their id already.
    """

    ref: str
    source: str
    target: str
    dedup: bool = False
    in_flight: bool = True
    delayed: bool = False
    count: int | None = None
    status: Status = "in_progress"
    total: int | None = None
    moved: int = 0
    conflicts: int = 0
    youngest: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class What:
    """What a move moves; as `Move` has it."""

    dedup: bool = False
    in_flight: bool = True
    delayed: bool = False
    count: int | None = None


def begin(context: Context, source: str, target: str, what: What) -> Move:
    """Begin a move, durably; some process makes it with :class:`MoveRunner`.

    The queues need not exist: the target is created, and a missing source counts as empty.

    Raises:
        InvalidValue, Unavailable
    """
    check_queue(source, "source")
    check_queue(target, "target")
    if source == target:
        raise InvalidValue("target", "is the same queue as the source")
    if what.count is not None:
        check_number("count", what.count, 1, MAX_COUNT)
    move = Move(uuid7(), source, target, what.dedup, what.in_flight, what.delayed, what.count)
    with as_unavailable(f"cannot begin a move from {source!r}"):
        _save(context.tree, move)
    return move


def find(context: Context, ref: str) -> Move | None:
    """A move by its reference; None if there is none. Raises Unavailable."""
    if not _ref.fullmatch(ref):
        return None
    with as_unavailable(f"cannot look for the move {ref!r}"):
        # An open one that ends between two looks has been done by the third.
        looks = (_load(context.tree, ref, name) for name in (_DONE, _OPEN, _DONE))
        return next((move for move in looks if move is not None), None)


class MoveRunner:
    """Makes moves; any number of runners may work on one tree.

    stop: called between two messages; if it returns True, the rest is left to another runner.
    """

    def __init__(
        self, context: Context, syncer: Syncer, stop: Callable[[], bool] = lambda: False
    ) -> None:
        self._context = context
        self._tree = context.tree
        self._syncer = syncer
        self._stop = stop

    def run(self) -> int:
        """Make all moves that nobody works on; how many were completed.

        Raises:
            Unavailable: the disk refuses; the move is not complete, and can be tried again.
        """
        done = 0
        with as_unavailable("cannot move"):
            names = self._tree.names(self._tree.folder(MOVES))
        first: OSError | Unavailable | None = None
        for name in sorted(n for n in names if n.endswith(_OPEN) and n[0] != "."):
            try:
                done += self._run_one(name.removesuffix(_OPEN))
            except (OSError, Unavailable) as error:
                first = first or error  # a fault of one must not stop the others
        if isinstance(first, OSError):
            raise unavailable(first, "cannot move") from first
        if first is not None:
            raise first
        return done

    def _run_one(self, ref: str) -> bool:
        held = lock(self._tree, self._tree.folder(MOVES, f".{ref}.lock"), os.O_CREAT)
        if held is None:
            return False
        try:
            move = _load(self._tree, ref, _OPEN)
            if move is None:
                return False
            if _load(self._tree, ref, _DONE) is None:
                move = self._make(move)
                if move.status == "in_progress":
                    return False
                _save(self._tree, move)
            self._tree.unlink(self._tree.folder(MOVES, ref + _OPEN))
            return True
        finally:
            held.free()

    def _make(self, move: Move) -> Move:
        pairs = [(move.source, move.target)]
        if move.dedup:
            # The source's read side is appended to the write side, too: it collapses there again.
            target = write_side(move.target)
            pairs = [(read_side(move.source), target), (write_side(move.source), target)]
            self._tree.make_queue(read_side(move.target))
        self._tree.make_queue(pairs[0][1])
        is_indexed = moving.has_index(self._context, *(queue for pair in pairs for queue in pair))
        found = self._found(pairs, move)
        if move.total is None:
            youngest = max((_age(i) for _, _, i in found), default="")
            total = len(found) if move.count is None else min(len(found), move.count)
            move = replace(move, total=total, youngest=youngest)
            _save(self._tree, move)
        saved = time.monotonic()
        work = self._work(pairs)
        so_far = _Part(move.moved if move.count is not None else 0)
        at = 0
        # What stays, since its id is there already, does not count: the next one goes.
        while at < len(found) and (size := so_far.next_size(move, PART if is_indexed else 1)):
            if self._stop():
                return move
            self._make_part(found[at : at + size], move, so_far)
            if so_far.is_gone:
                break
            at += size
            if (at - size) // _SYNC_EVERY < at // _SYNC_EVERY:
                self._syncer.sync(work)
                work = self._work(pairs)
            if time.monotonic() - saved >= _SAVE_EVERY_S:
                saved = time.monotonic()
                _save(self._tree, so_far.of(move))
        self._syncer.sync(work)
        return _outcome(so_far.of(move), so_far.is_gone)

    def _found(self, pairs: list[tuple[str, str]], move: Move) -> list[tuple[str, str, str]]:
        """What is to be moved: source, target, id. Of a number what is claimed last comes first."""
        found = [
            (source, target, message_id)
            for source, target in pairs
            for message_id in self._ids(source, move)
        ]
        if move.count is None:
            return found
        return sorted(found, key=lambda one: one[2], reverse=True)

    def _make_part(self, part: list[tuple[str, str, str]], move: Move, so_far: _Part) -> None:
        """Move some messages; of several all are from one queue to one other."""
        source, target, _ = part[0]
        with LinksOfMove(self._context, source, target, [i for _, _, i in part]) as links:
            for source, target, message_id in part:
                if message_id in links.conflicts:
                    so_far.conflicts += 1
                    continue
                try:
                    so_far.moved += self._move(source, target, message_id, move)
                except FileExistsError:
                    so_far.conflicts += 1
                except NoSuchQueue:
                    so_far.is_gone = True
                    return

    def _ids(self, queue: str, move: Move) -> Iterator[str]:
        # In the direction in which messages move: one that moves on is seen twice, never missed.
        states = [State.NEW, State.READY]
        if move.in_flight or move.delayed:
            states.append(State.DELAY)
        youngest = move.youngest
        seen: set[str] = set()
        for state in states:
            for message_id in browse.ids(self._context, queue, state):
                if message_id in seen or (youngest and _age(message_id) > youngest):
                    continue
                if is_id(message_id) and not (
                    state is State.DELAY and self._stays(queue, message_id, move)
                ):
                    seen.add(message_id)
                    yield message_id

    def _stays(self, queue: str, message_id: str, move: Move) -> bool:
        """Whether a message of ``delay/`` is in flight, and these are left."""
        if move.in_flight:
            return False
        found = self._tree.stat(self._tree.path(State.DELAY, queue, message_id))
        if found is None:
            return False
        stamp = self._context.stamps.decode(message_id, found.st_mtime_ns)
        return stamp is None or stamp.deliveries != 0

    def _move(self, source: str, target: str, message_id: str, move: Move) -> bool:
        """Move one message, in whatever state it is. Raises FileExistsError, NoSuchQueue."""
        if move.dedup:
            if self._collapse(source, target, message_id):
                return True
            if not self._tree.has_queue(target):
                raise NoSuchQueue(target)
            return False
        attempts: tuple[Transition, ...] = (MOVE_READY, MOVE_NEW, MOVE_READY)
        if move.in_flight:
            attempts = (*attempts, MOVE_DELAY, MOVE_READY)
        elif move.delayed:
            attempts = (*attempts, MOVE_TIMER, MOVE_READY)
        return any(
            moving.move_one(self._context, attempt, source, message_id, target)
            for attempt in attempts
        )

    def _collapse(self, source: str, target: str, message_id: str) -> bool:
        """Bring a message to a dedup queue, or remove it if an equal one waits there."""
        tree = self._tree
        if not fits(source, message_id):
            raise FileExistsError  # a name given by hand, too long to be looked up
        message = browse.find(self._context, source, message_id)
        if message is None:
            return False
        to_id = content_id(message.body)
        held = patiently(lambda: reserve(tree, target, to_id), _RESERVED_PATIENCE_S)
        if held is None:
            raise Unavailable(f"another process is storing {to_id!r} right now")
        try:
            is_there = exists(tree, target, to_id)
            for transition in (MOVE_READY, MOVE_DELIVER, MOVE_READY, MOVE_DELAY, MOVE_READY):
                if is_there:
                    if self._context.make(_PURGES[transition], source, message_id):
                        return True
                elif self._context.make(transition, source, message_id, target, to_id):
                    return True
        finally:
            held.free()
        return False

    def _work(self, pairs: list[tuple[str, str]]) -> Work:
        tree = self._tree
        queues = {tree.folder(QUEUES, queue) for pair in pairs for queue in pair}
        queues |= {
            tree.folder(IDS, queue)
            for pair in pairs
            for queue in pair
            if self._context.settings.last(queue).index
        }
        return Work(folders={tree.folder(NEW), tree.folder(DELAY), tree.folder(REMOVE), *queues})


@dataclass(slots=True)
class _Part:
    """What was moved so far; is_gone: the target was deleted."""

    moved: int
    conflicts: int = 0
    is_gone: bool = False

    def next_size(self, move: Move, size: int) -> int:
        """How many to move next, at most ``size``. What was moved before a crash counts, as far as
        it was stored."""
        return size if move.count is None else max(0, min(size, move.count - self.moved))

    def of(self, move: Move) -> Move:
        return replace(move, moved=self.moved, conflicts=self.conflicts)


_PURGES = {MOVE_READY: PURGE_READY, MOVE_DELIVER: PURGE_NEW, MOVE_DELAY: PURGE_DELAY}


def _age(message_id: str) -> str:
    """What tells older ids from younger ones: the UUID without its priority."""
    known = facts(message_id)
    return "" if known.created_ms is None else message_id[4 if known.priority else 0 :][:36]


def _outcome(move: Move, is_gone: bool) -> Move:
    if is_gone:
        error = f"queue {move.target!r} was deleted: messages that had not moved yet stay"
    elif move.conflicts:
        error = (
            f"{move.conflicts} messages stay: the target has a message of the same id already,"
            " or its name leaves no room for the id"
        )
    else:
        return replace(move, status="complete")
    return replace(move, status="error", error=error)


def _save(tree: Tree, move: Move) -> None:
    name = move.ref + (_OPEN if move.status == "in_progress" else _DONE)
    content = json.dumps(asdict(move), indent=2) + "\n"
    tree.replace(tree.folder(MOVES, name), content.encode())


def _load(tree: Tree, ref: str, suffix: str) -> Move | None:
    try:
        stored = documents.read(tree, tree.folder(MOVES, ref + suffix), _MAX_BYTES)
        known = {name: stored[name] for name in Move.__slots__ if name in stored}
        return _checked(Move(**{**known, "ref": ref}))
    except (FileNotFoundError, ValueError, TypeError):
        return None  # no file of ours


def _checked(move: Move) -> Move:
    """A move that was read. Raises ValueError, TypeError."""
    check_queue(move.source, "source")
    check_queue(move.target, "target")
    members: dict[str, Any] = asdict(move)
    for name in ("dedup", "in_flight", "delayed"):
        documents.flag(members, name)
    for name in ("moved", "conflicts", *(n for n in ("total", "count") if members[n] is not None)):
        documents.whole(members, name)
    if move.status not in get_args(Status) or not isinstance(move.youngest, str):
        raise ValueError("its status is unknown, or its youngest is not an id")
    if not isinstance(move.error, str | None):
        raise ValueError("its error is not text")
    return move
