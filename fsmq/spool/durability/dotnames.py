"""Recovery: what happens to dot-names that a crash left in ``new/``.

A complete one is promoted, a torn one is removed, once its writer is dead: when its lock is free,
which recovery holds meanwhile. That of an own id is the reservation, that of any other the number
at the end of the dot-name. Only of what has neither (its program took no lock, or there are none)
the age decides. What was taken away from where it stood, to be looked at, is a message that may be
acknowledged: it is brought back.
"""

from __future__ import annotations

import errno
import stat
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ..layout.names import is_scratch, number_of, reservation, split_taken
from ..layout.transitions import NEW
from ..layout.tree import Tree
from .ids import finish_given
from .locks import is_held, is_reservation, reserve, settle
from .put_numbers import left_by_dead
from .taken import bring_back, is_in_use
from .unfinished import Recovered, finish, is_complete, own_id

# Writing one message takes milliseconds. A writer that was stopped for longer finds its file gone
# and answers 503.
TORN_AFTER_S = 60.0
COMPLETE_AFTER_S = 10.0
# How often the mover looks.
RECOVER_EVERY_S = 30.0
# A dot-name that is older shows that no mover runs; one look may have come too early, or been slow.
LATE_AFTER_S = TORN_AFTER_S + 2 * RECOVER_EVERY_S
# How many locks of dead processes, each an open file, are taken with one listing.
_MAX_LOCKS = 100
# With these errors nobody can reserve an id now: no room for one more file, or no locks at all.
_NO_RESERVATION = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.ENOLCK,
    errno.ENOSYS,
    errno.EOPNOTSUPP,
)


def recover(
    tree: Tree,
    now: float,
    *,
    at_start: bool = False,
    on_fault: Callable[[str, str], None] = lambda name, reason: None,
    recover_sends: Callable[[str], Recovered | None] = lambda queue: None,
) -> Recovered:
    """Promote complete dot-names and remove torn ones; ``now`` is in Unix seconds.

    at_start: promote complete ones of any age. on_fault: called for one that is skipped (path,
    reason), so that it does not keep the others from coming back. recover_sends: does it for all
    of a fifo queue, in their order; None for any other queue. Raises OSError.
    """
    promoted = removed = 0
    for work in _works(tree, now, at_start, recover_sends):
        try:
            done = work() or Recovered()
        except OSError as error:
            on_fault(str(error.filename or tree.folder(NEW)), str(error))
            continue
        promoted += done.promoted
        removed += done.removed
    return Recovered(promoted, removed)


def _works(
    tree: Tree,
    now: float,
    at_start: bool,
    recover_sends: Callable[[str], Recovered | None],
) -> Iterator[Callable[[], Recovered | None]]:
    names = [e.name for e in tree.walk(tree.folder(NEW)) if e.name[0] == "."]
    reserved = [name for name in names if is_reservation(name)]
    for at in range(0, len(reserved), _MAX_LOCKS):
        yield partial(settle, tree, reserved[at : at + _MAX_LOCKS])
    numbered: dict[tuple[str, int], list[str]] = defaultdict(list)
    done: dict[str, Recovered | None] = {}

    def recover_all(queue: str) -> Recovered | None:
        done[queue] = recover_sends(queue)
        return done[queue]

    for name in names:
        if is_reservation(name):
            continue
        own, number = own_id(name), number_of(name)
        if own is not None and number is not None:
            numbered[own[0], number].append(name)
            continue
        if own is not None and own[0] not in done:
            yield partial(recover_all, own[0])
        if own is None or done[own[0]] is None:
            yield partial(recover_one, tree, name, now, at_start=at_start)
    for (queue, number), dotnames in numbered.items():
        yield partial(_recover_put, tree, queue, number, dotnames)


def recover_one(tree: Tree, name: str, now: float, *, at_start: bool = False) -> Recovered:
    """Do the same for one dot-name of ``new/``; one that may be in use is left. Raises OSError."""
    found = tree.stat(tree.folder(NEW, name))
    if found is None or not stat.S_ISREG(found.st_mode):
        return Recovered()
    if is_reservation(name):
        return settle(tree, [name]) or Recovered()
    own, number = own_id(name), number_of(name)
    age = now - found.st_ctime
    if split_taken(name) is not None:
        return bring_back(tree, name, now)
    if own is None:
        is_left = is_scratch(name) and age >= TORN_AFTER_S
        return Recovered(removed=int(is_left and tree.unlink(tree.folder(NEW, name))))
    if number is not None:
        return _recover_put(tree, own[0], number, [name])
    is_due = at_start or age >= COMPLETE_AFTER_S
    if (is_due and is_complete(tree, name, durably=True)) or age >= TORN_AFTER_S:
        return _unless_reserved(tree, *own, lambda: finish(tree, name))
    return Recovered()


def is_being_written(tree: Tree, name: str, now: float) -> bool:
    """Whether who made a dot-name is alive, as far as a lock tells. Raises OSError."""
    own, number = own_id(name), number_of(name)
    if own is None:
        return is_in_use(tree, name, now)
    if number is None:
        return is_held(tree, tree.folder(NEW, reservation(*own)))
    with left_by_dead(tree, own[0], number) as is_dead:
        return not is_dead


def _recover_put(tree: Tree, queue: str, number: int, names: Sequence[str]) -> Recovered:
    """Finish what a put has left, if it is over, or its process dead.

    Raises the first OSError behind all others: each of them may be acknowledged.
    """
    done: list[Recovered] = []
    first: OSError | None = None
    with left_by_dead(tree, queue, number) as is_dead:
        for name in names if is_dead else ():
            try:
                done.append(finish_given(tree, name, queue, number) or finish(tree, name))
            except OSError as error:
                first = first or error
    if first is not None:
        raise first
    return Recovered(sum(one.promoted for one in done), sum(one.removed for one in done))


def _unless_reserved(tree: Tree, queue: str, own: str, act: Callable[[], Recovered]) -> Recovered:
    """Do something to a dot-name, unless a put of its id is under way: its own, or a retry."""
    done = settle(tree, [reservation(queue, own)])
    if done is None or any(done):
        return done or Recovered()
    try:
        held = reserve(tree, queue, own)
    except OSError as error:
        if error.errno not in _NO_RESERVATION:
            raise
        # Then no put of this id can begin either, and an acknowledged message must come out.
        return act()
    if held is None:
        return Recovered()
    try:
        return act()
    finally:
        held.free()
