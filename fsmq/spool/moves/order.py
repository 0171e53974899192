"""The file of a move in the background: what to move, and the progress.

It survives the processes that work on it: ``moves/<ref>.json`` while there is work to do,
``moves/<ref>.done`` with the outcome afterwards. ``moves/<ref>.stop`` asks to end it early;
``moves/<ref>.found`` lists what a redrive found when it began.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, Literal, NamedTuple, get_args

from ..context import Context
from ..errors import InvalidValue, as_unavailable, understood
from ..layout import documents
from ..layout.duty_cycle import check_rate
from ..layout.names import UUID7, check_id, check_queue, is_id
from ..layout.patterns import is_pattern
from ..layout.settings import check_number
from ..layout.transitions import MOVES
from ..layout.tree import Tree
from ..layout.uuids import uuid7
from ..verbs.dedup import read_side, write_side
from ..verbs.moves.move import check_order
from ..verbs.queues.creation import create

Status = Literal["in_progress", "complete", "error", "stopped"]
_ref = re.compile(UUID7)
OPEN, DONE, STOP, FOUND = ".json", ".done", ".stop", ".found"
LOCK = ".{}.lock"
LOCKS = (".lock", ".alone")
# Enough for a thousand ids, for which JSON can take six characters a byte.
_MAX_BYTES = 4 * 1024 * 1024
MAX_COUNT = 2**40
MAX_LISTED = 1000
MAX_CHOSEN = 1000


@dataclass(frozen=True, slots=True)
class Move:
    """A move and its progress.

    target: "" for a redrive of each dead letter to the queue from which it was buried.
    dedup: source and target name dedup queues.
    in_flight: claimed and delayed messages move too, and become ready.
    delayed: unclaimed delayed messages move too, and stay delayed.
    count: how many move, the ones that would be claimed last; None: all.
    redrive: only ready messages move, and their deliveries count from 0 again.
    rate: the most messages a second; None: no limit.
    ids: only these move; None: all. Always None in an ended move, and in a list of moves.
    homes: for a redrive of each to its queue: patterns of names of the queues to which they may go;
        None: all.
    chosen: with a count, the ids that move now; stored before the first of them moves. Empty in a
        list of moves.
    moved_before: how many had moved before these.
    total: messages that were found; None before the work has begun.
    moved: how many were moved; a crash can lose the last second, unless there is a count.
    youngest: the greatest id that was found.
    conflicts: messages that stay because the target has their id already.
    no_origin: those that stay because their origin is unknown, gone, not permitted, or a log's
        channel.
    """

    ref: str
    source: str
    target: str
    dedup: bool = False
    in_flight: bool = True
    delayed: bool = False
    count: int | None = None
    redrive: bool = False
    rate: float | None = None
    status: Status = "in_progress"
    total: int | None = None
    moved: int = 0
    conflicts: int = 0
    no_origin: int = 0
    youngest: str = ""
    error: str | None = None
    ids: tuple[str, ...] | None = None
    chosen: tuple[str, ...] = ()
    moved_before: int = 0
    homes: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class What:
    """What to move; see `Move`."""

    dedup: bool = False
    in_flight: bool = True
    delayed: bool = False
    count: int | None = None
    rate: float | None = None
    ids: Sequence[str] | None = None


def begin(context: Context, source: str, target: str, what: What) -> Move:
    """Begin a move, durably; some process makes it with a MoveRunner.

    The queues need not exist: the target is created, and a missing source counts as empty. Later
    nothing is created, so a target that is deleted from now on stays deleted.

    Raises:
        InvalidValue, Unavailable
    """
    check_queue(source, "source")
    check_queue(target, "target")
    if source == target:
        raise InvalidValue("target", "is the same queue as the source")
    if what.count is not None:
        check_number("count", what.count, 1, MAX_COUNT)
    move = Move(
        uuid7(),
        source,
        target,
        what.dedup,
        what.in_flight,
        what.delayed,
        what.count,
        rate=check_rate(what.rate),
        ids=_chosen(source, what.ids),
    )
    if move.ids is not None and (what.dedup or what.count is not None):
        raise InvalidValue("ids", "go with neither dedup nor count")
    with as_unavailable(f"cannot begin a move from {source!r}"):
        check_order(context, source, target)
        for queue in (write_side(target), read_side(target)) if what.dedup else (target,):
            create(context, queue)
        save(context.tree, move)
    return move


def begin_redrive(
    context: Context,
    source: str,
    to: str | None,
    rate: float | None,
    ids: Sequence[str] | None = None,
    homes: Sequence[str] | None = None,
) -> Move:
    """Begin a redrive of a queue's dead letters, durably: to a queue, or each to its origin.

    ids: only these; None: all. homes: the patterns of names of the queues to which they may go
    where each goes to its origin; None is all.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
    """
    check_queue(source, "source")
    if to is not None:
        check_queue(to, "to")
    if source == to:
        raise InvalidValue("to", "is the same queue as the source")
    move = Move(
        uuid7(),
        source,
        to or "",
        in_flight=False,
        redrive=True,
        rate=check_rate(rate),
        ids=_chosen(source, ids),
        homes=None if homes is None or to is not None else tuple(homes),
    )
    with as_unavailable(f"cannot begin a redrive of {source!r}"):
        for queue in (source, to or source):
            context.settings_of(queue)
        if to is not None:
            check_order(context, source, to, "to")
        save(context.tree, move)
    return move


def _chosen(source: str, ids: Sequence[str] | None) -> tuple[str, ...] | None:
    """The ids of an order, each once. Raises InvalidValue."""
    if ids is None:
        return None
    chosen = tuple(dict.fromkeys(check_id(source, one) for one in ids))
    if len(chosen) > MAX_CHOSEN:
        problem = f"may be at most {MAX_CHOSEN} in the background, not {len(chosen)}"
        raise InvalidValue("ids", problem)
    return chosen


def moved_and(before: int, progress: Callable[[int], None]) -> Callable[[Move], None]:
    """A callback that adds the number of messages moved before."""
    return lambda move: progress(before + move.moved)


def find(context: Context, ref: str) -> Move | None:
    """A move by its reference; None if there is none. Raises Unavailable."""
    if not _ref.fullmatch(ref):
        return None
    with as_unavailable(f"cannot look for the move {ref!r}"):
        return _find(context.tree, ref)


def _find(tree: Tree, ref: str) -> Move | None:
    # An open move that ends between two looks is found by the third.
    copies = (load(tree, ref, name) for name in (DONE, OPEN, DONE))
    return next((move for move in copies if move is not None), None)


def latest(
    context: Context, count: int, wanted: Callable[[Move], bool] = lambda move: True
) -> list[Move]:
    """All moves in progress, and the latest ended ones, up to ``count`` in all; the newest first.

    wanted: whether to include a move. Those of other users are left out. Raises InvalidValue,
    Unavailable.
    """
    check_number("count", count, 1, MAX_LISTED)
    with as_unavailable("cannot list the moves"):
        names = context.tree.names(context.tree.folder(MOVES))
        going = {name.removesuffix(OPEN) for name in names if name.endswith(OPEN)}
        ended = {name.removesuffix(DONE) for name in names if name.endswith(DONE)} - going
        going, ended = (set(filter(_ref.fullmatch, refs)) for refs in (going, ended))
        found = list(_wanted(context.tree, going, wanted))
        found += islice(_wanted(context.tree, ended, wanted), max(0, count - len(found)))
    return sorted(found, key=lambda move: move.ref, reverse=True)


def _wanted(tree: Tree, refs: Iterable[str], wanted: Callable[[Move], bool]) -> Iterator[Move]:
    """Those of some moves that are wanted, the newest first."""
    for ref in sorted(refs, reverse=True):
        with suppress(PermissionError):
            move = _find(tree, ref)
            if move is not None and wanted(move):
                # There can be thousands, each with a thousand ids.
                yield replace(move, ids=None, chosen=())


def ended_of(context: Context, refs: Iterable[str]) -> list[str]:
    """Those of some moves that are in progress no longer. Raises Unavailable."""
    tree = context.tree
    with as_unavailable("cannot look for moves"):
        return [ref for ref in refs if tree.look(tree.folder(MOVES, ref + OPEN)) is None]


class Holder(NamedTuple):
    """The process that works on a move, or did until it died."""

    host: str
    pid: int


def holders(context: Context, moves: Sequence[Move]) -> dict[str, Holder]:
    """The processes that work on moves, by the references of the moves. Raises Unavailable."""
    found = {}
    with as_unavailable("cannot look at who works on moves"):
        for move in moves:
            path = context.tree.folder(MOVES, LOCK.format(move.ref))
            try:
                document = documents.read(context.tree, path, _MAX_BYTES)
                found[move.ref] = Holder(str(document["host"]), int(document["pid"]))
            except (FileNotFoundError, PermissionError, ValueError, TypeError, KeyError):
                continue  # no process, or none that has noted who it is
    return found


def order_stop(context: Context, ref: str) -> Move | None:
    """Ask the process that works on a move to end it; the move as it is now, None if there is none.

    Raises:
        Unavailable
    """
    move = find(context, ref)
    if move is not None and move.status == "in_progress":
        with as_unavailable(f"cannot stop the move {ref!r}"):
            context.tree.replace(context.tree.folder(MOVES, ref + STOP), b"")
    return move


def is_stopped(tree: Tree, ref: str) -> bool:
    """Whether someone has asked to end a move. Raises OSError."""
    return tree.look(tree.folder(MOVES, ref + STOP)) is not None


def outcome(move: Move, is_gone: bool) -> Move:
    """A move that has ended. is_gone: its target was deleted."""
    reasons = []
    if is_gone:
        reasons.append(f"queue {move.target!r} was deleted: messages that had not moved yet stay")
    elif move.conflicts:
        reasons.append(
            f"{move.conflicts} messages stay: the target has a message of the same id already,"
            " its name leaves no room for the id, or they cannot be read"
        )
    if move.no_origin:
        reasons.append(
            f"{move.no_origin} messages stay: nothing says from which queue they were buried, it"
            " is gone or not one to which they may go, or they came from a log; name a queue"
        )
    if not reasons:
        return replace(move, status="complete")
    return replace(move, status="error", error="; ".join(reasons))


def save(tree: Tree, move: Move) -> None:
    """Store a move durably. Raises OSError."""
    name = move.ref + (OPEN if move.status == "in_progress" else DONE)
    if move.status != "in_progress":
        move = replace(move, ids=None, chosen=(), moved_before=0)  # as it is kept for days
    tree.replace(tree.folder(MOVES, name), documents.encode(asdict(move)))


def write_found(tree: Tree, ref: str, found: Mapping[str, float | None]) -> None:
    """Store, durably, what a redrive found, each with its time of burial. Raises OSError."""
    tree.replace(tree.folder(MOVES, ref + FOUND), json.dumps(found).encode())


def read_found(tree: Tree, ref: str) -> dict[str, float | None]:
    """What a redrive found when it began. Raises Unavailable, OSError."""
    path = tree.folder(MOVES, ref + FOUND)
    with understood(path), open(tree.open(path), "rb") as file:
        found = json.load(file)
        if not isinstance(found, dict):
            raise ValueError("it is no JSON object")
        return {name: at for name, at in found.items() if is_id(name)}


def load(tree: Tree, ref: str, suffix: str) -> Move | None:
    """A stored move; None if there is none. Raises OSError."""
    try:
        stored = documents.read(tree, tree.folder(MOVES, ref + suffix), _MAX_BYTES)
        known = {name: stored[name] for name in Move.__slots__ if name in stored}
        if known.get("ids") is not None:
            known["ids"] = tuple(known["ids"])
        known["chosen"] = tuple(known.get("chosen") or ())
        if known.get("homes") is not None:
            known["homes"] = tuple(known["homes"])
        return _checked(Move(**{**known, "ref": ref}))
    except (FileNotFoundError, ValueError, TypeError):
        return None  # not our file


def _checked(move: Move) -> Move:
    """Check a move that was read. Raises ValueError, TypeError."""
    members: dict[str, Any] = asdict(move)
    for name in ("dedup", "in_flight", "delayed", "redrive"):
        documents.flag(members, name)
    check_queue(move.source, "source")
    if move.target or not move.redrive:
        check_queue(move.target, "target")
    numbers = ["moved", "conflicts", "no_origin", "moved_before"]
    numbers += [name for name in ("total", "count") if members[name] is not None]
    for name in numbers:
        documents.whole(members, name)
    check_rate(move.rate)
    _chosen(move.source, move.ids)
    _chosen(move.source, move.chosen)
    if move.homes is not None and not all(map(is_pattern, move.homes)):
        raise ValueError("its homes are not patterns of names")
    if move.status not in get_args(Status) or not isinstance(move.youngest, str):
        raise ValueError("its status is unknown, or its youngest is not an id")
    if not isinstance(move.error, str | None):
        raise ValueError("its error is not text")
    return move
