"""Recovery: what happens to dot-names that a crash left in ``new/``.

A complete file is promoted and a torn one removed once its writer is dead, that is, once recovery
has got the writer's lock, which it holds while it acts. For an own id the lock is the reservation,
for any other the number at the end of the dot-name. Age decides only if there is neither, because
the writer took no lock or the filesystem has none. A message that was taken away from its place to
be inspected may have been acknowledged to its sender, so it is brought back.
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
# and the put fails with 503.
TORN_AFTER_S = 60.0
COMPLETE_AFTER_S = 10.0
# How often the mover runs recovery.
RECOVER_EVERY_S = 30.0
# An older dot-name shows that no mover is running; two rounds are allowed for, since one may have
# come too early or been slow.
LATE_AFTER_S = TORN_AFTER_S + 2 * RECOVER_EVERY_S
# How many locks of dead processes, each an open file, are taken for one listing.
_MAX_LOCKS = 100
# After these errors no process can reserve an id: there is no room for a file, or no locks.
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

    at_start: promote complete ones of any age. on_fault: called with (path, reason) for a dot-name
    that is skipped, so that one failure does not hold up the others. recover_sends: recovers all
    dot-names of a fifo queue in order; returns None for any other queue. Raises OSError.
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
    """The same for one dot-name of ``new/``, unless it may be in use. Raises OSError."""
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
    """Whether the writer of a dot-name is alive, as far as a lock tells. Raises OSError."""
    own, number = own_id(name), number_of(name)
    if own is None:
        return is_in_use(tree, name, now)
    if number is None:
        return is_held(tree, tree.folder(NEW, reservation(*own)))
    with left_by_dead(tree, own[0], number) as is_dead:
        return not is_dead


def _recover_put(tree: Tree, queue: str, number: int, names: Sequence[str]) -> Recovered:
    """Finish what a put has left, if it has given up or its process is dead.

    After an OSError it goes on, as any message may be acknowledged, and raises it at the end.
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
    """Act on a dot-name, unless a put of its id is under way: the one that wrote it, or a retry."""
    done = settle(tree, [reservation(queue, own)])
    if done is None or any(done):
        return done or Recovered()
    try:
        held = reserve(tree, queue, own)
    except OSError as error:
        if error.errno not in _NO_RESERVATION:
            raise
        # No put of this id can begin either, and an acknowledged message must be recovered.
        return act()
    if held is None:
        return Recovered()
    try:
        return act()
    finally:
        held.free()
