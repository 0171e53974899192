"""Recovery: what happens to dot-names that a crash left in ``new/``.

A complete one is promoted once its writer has had time to do so. If the writer is still alive, it
notices that and reports success. A torn one is removed once no writer can be at work on it. A put
of an own id has a reservation: while its process lives, its dot-names stay; when it is dead,
recovery need not wait.
"""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable, Iterator
from functools import partial

from ..layout.names import is_scratch, reservation
from ..layout.transitions import NEW
from ..layout.tree import Tree
from .links import link_of_replaced, link_recovered
from .locks import is_reservation, reserve, settle
from .unfinished import Recovered, is_complete, message_of, own_id, promote

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
    *(errno.ENOSPC, errno.EDQUOT),
    *(errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP),
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
    done: dict[str, Recovered | None] = {}

    def recover_all(queue: str) -> Recovered | None:
        done[queue] = recover_sends(queue)
        return done[queue]

    for name in names:
        if is_reservation(name):
            continue
        own = own_id(name)
        if own is not None and own[0] not in done:
            yield partial(recover_all, own[0])
        if own is None or done[own[0]] is None:
            yield partial(recover_one, tree, name, now, at_start=at_start)


def recover_one(tree: Tree, name: str, now: float, *, at_start: bool = False) -> Recovered:
    """Do the same for one dot-name of ``new/``; one that may be in use is left. Raises OSError."""
    path = tree.folder(NEW, name)
    found = tree.stat(path)
    if found is None or not stat.S_ISREG(found.st_mode):
        return Recovered()
    if is_reservation(name):
        return settle(tree, [name]) or Recovered()
    own = own_id(name)
    age = now - found.st_ctime
    is_due = at_start or age >= COMPLETE_AFTER_S
    if own is not None and is_due and is_complete(tree, name, durably=True):
        return _promote(tree, name, *own, is_dead=at_start or age >= TORN_AFTER_S)
    if (own is not None or is_scratch(name)) and age >= TORN_AFTER_S:
        return Recovered(removed=_unlink(tree, name, own[0] if own is not None else None))
    return Recovered()


def _unlink(tree: Tree, staged: str, queue: str | None) -> int:
    """Unlink a dot-name, and what its writer has noted of the message that it was to replace."""
    if queue is not None and ".h" in message_of(staged):
        tree.unlink(link_of_replaced(tree, queue, message_of(staged)))
    return int(tree.unlink(tree.folder(NEW, staged)))


def _promote(tree: Tree, staged: str, queue: str, own: str, *, is_dead: bool) -> Recovered:
    """Promote a complete one, unless a put of its id is under way: its own, or a retry."""
    is_linked = link_recovered(tree, tree.folder(NEW, staged), queue, message_of(staged))
    if not is_linked:
        # Its writer, if it is alive, is about to take the id from the message that has it.
        is_left = is_linked is None or not is_dead
        return Recovered(removed=0 if is_left else _unlink(tree, staged, queue))
    done = settle(tree, [reservation(queue, own)])
    if done is None or any(done):
        return done or Recovered()
    try:
        held = reserve(tree, queue, own)
    except OSError as error:
        if error.errno not in _NO_RESERVATION:
            raise
        # Then no put of this id can begin either, and an acknowledged message must come out.
        return promote(tree, staged)
    if held is None:
        return Recovered()
    try:
        return promote(tree, staged)
    finally:
        held.free()
