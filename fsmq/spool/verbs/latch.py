"""Latches keep others from acting on a message between a look at its stamp and the next rename.

A latch is a lock (flock) on the message's own file, for some microseconds. Without it a mover that
read an old stamp could take a message from a client that has just claimed it, or a late renewal
could stamp the claim of another client. A latch ends with its process, so a crash leaves nothing
behind. Some filesystems have no such locks. There the races remain, and a message can be delivered
twice; none is ever lost.

A latch prevents neither a removal nor a put that then uses the id again. So the latched file can
lose its name to another message. Therefore a process acts on the file, not on the name: it sets the
stamp through the descriptor, and after a rename it checks which file was renamed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from ..context import Context
from ..durability.leaving import discard
from ..durability.owned import OwnedFile
from ..durability.taken import lock_of
from ..durability.unfinished import exists, found_as
from ..errors import ClaimEnded, FsmqError, NoSuchMessage, Unavailable, is_full
from ..layout.claim_names import is_claimed, of_next_claim, of_same_claim
from ..layout.names import siblings, taken_entry
from ..layout.stamps import MAX_COUNT, Stamp
from ..layout.transitions import NEW, State, Transition
from ..layout.tree import STRAY, Tree

_RETRY_S = 0.0001
_LOOK_ONLY = getattr(os, "O_PATH", os.O_RDONLY)  # only Linux opens files that one may not read
PATIENCE_S = 0.02

# Whether an open file, with its fstat, is the message that the caller means.
IsWanted: TypeAlias = Callable[[Context, int, os.stat_result], bool]


def anyone(context: Context, fd: int, found: os.stat_result) -> bool:
    """Every message is wanted."""
    return True


class Latched(OwnedFile):
    """A latched message: an open descriptor, and its fstat under the lock.

    locked: False where the filesystem has no locks: other processes can act on it all the same.
    """

    found: os.stat_result
    locked = False

    def lock(self) -> bool:
        """Latch it, and fstat it then; False if another host has unlinked it.

        Raises:
            BlockingIOError: another process has latched it.
            OSError
        """
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.locked = True
        except BlockingIOError:
            raise
        except OSError:
            pass  # this filesystem has no locks
        return self.look()

    def look(self) -> bool:
        """Fstat it; False if another host has unlinked it. Raises OSError."""
        try:
            self.found = os.fstat(self.fd)
        except OSError as error:
            if error.errno == errno.ESTALE:
                return False
            raise
        return True

    def unlatch(self) -> int:
        """End the latch; returns the descriptor, which the caller has to close."""
        try:
            self._unlock()
        except OSError:
            pass  # there was no lock
        return self._release()

    def _unlock(self) -> None:
        if self.locked:
            fcntl.flock(self.fd, fcntl.LOCK_UN)

    def is_at(self, tree: Tree, path: str) -> bool:
        """Whether a name leads to the file."""
        here = tree.look(path)
        return here is not None and here.st_ino == self.found.st_ino

    def stamp(self, context: Context, path: str, mtime_ns: int) -> bool:
        """Set the message's mtime; False if it is not there (any more)."""
        if self.locked:
            os.utime(self.fd, ns=(mtime_ns, mtime_ns))
            return True
        # By path: a process that lost the race must not stamp the file that the winner moved.
        return context.tree.stamp(path, mtime_ns)

    def move(
        self,
        context: Context,
        how: Transition,
        queue: str,
        message_id: str,
        to_queue: str | None = None,
        to_id: str | None = None,
        *,
        is_checked: bool = False,
    ) -> os.stat_result | None:
        """Move this very message; None if it is not there (any more).

        is_checked: the caller has just seen that its queue exists.

        Returns its lstat after the rename, or the one from before if it has moved on already.

        Raises:
            FileExistsError: the target has a message of this id; nothing was changed.
            OSError
        """
        tree = context.tree
        if how.target is State.REMOVE:
            return self._remove(context, how.source, queue, message_id)
        to_queue = to_queue or queue
        target = tree.path(how.target, to_queue, to_id or message_id)
        if is_checked:
            moved = tree.rename(tree.path(how.source, queue, message_id), target)
        else:
            moved = tree.move(how, queue, message_id, to_queue, to_id)
        if not moved:
            return None
        if how.target is State.READY:
            context.ready.add(to_queue, to_id or message_id)
        here = tree.stat(target)
        if here is None:
            return self.found
        if here.st_ino == self.found.st_ino:
            return here
        if how.target is State.DELAY:
            # It has just been removed. Either another process has claimed the next message of its
            # id, or we renamed that one: it has no timer, so the mover redelivers it.
            return None
        # This one was removed, and its id used again. We renamed the new message: undo that.
        move_back(context, tree.path(how.source, queue, message_id), target, here)
        return None

    def _remove(
        self, context: Context, state: State, queue: str, message_id: str
    ) -> os.stat_result | None:
        """Move it to ``remove/``, where the reaper can unlink a file before we can check it.

        So it is checked first, under a name that no other process uses, and that stays locked while
        this process lives; if it dies, recovery brings the message back.
        """
        tree = context.tree
        source = tree.path(state, queue, message_id)
        if state is State.READY and not tree.has_queue(queue):
            return None
        held = context.put_numbers.hold(lock_of(queue, message_id))
        try:
            name = taken_entry(queue, message_id)
            try:
                if name is not None:
                    taken = tree.folder(NEW, name)
                    is_ours = self._remove_by(tree, source, taken, queue, message_id)
                    return self.found if is_ours else None
            except FileExistsError:
                pass  # a message that a dead process took away waits there for this one to go
            except OSError as error:
                if not is_full(error):
                    raise  # otherwise new/ has no room for that name
            # Otherwise we can only check right before the rename.
            is_ours = self.is_at(tree, source) and discard(tree, source, queue, message_id)
            return self.found if is_ours else None
        finally:
            if held is not None:
                held.give()

    def _remove_by(self, tree: Tree, source: str, taken: str, queue: str, message_id: str) -> bool:
        """Remove this message, and no other one, by way of a second name; whether it was there."""
        if not tree.rename(source, taken):
            return False
        here = tree.stat(taken)
        if here is None or here.st_ino == self.found.st_ino:
            if discard(tree, taken, queue, message_id):
                return True
            # Without locks it may have been brought back; or an answer of the network was lost.
            gone = tree.stat(tree.path(State.REMOVE, queue, message_id))
            return gone is not None and gone.st_ino == self.found.st_ino
        # This one was removed, and its id used again. We took the new message: undo that.
        with suppress(FileExistsError):  # a third one is there: recovery brings it back later
            tree.rename(taken, source)
        return False


def move_back(context: Context, source: str, target: str, moved: os.stat_result) -> None:
    """Undo the rename of a wrong message, unless someone has acted on it since."""
    try:
        latched = latch(context, target, PATIENCE_S)
    except BlockingIOError:
        return  # another process acts on it there
    if latched is None:
        return
    try:
        now = latched.found
        if (now.st_ino, now.st_mtime_ns) == (moved.st_ino, moved.st_mtime_ns):
            context.tree.rename(target, source)
    except FileExistsError:
        return  # fsck reports the two
    finally:
        latched.close()


def latch(
    context: Context, path: str, patience: float = 0.0, *, checks_name: bool = True
) -> Latched | None:
    """Open a message and latch it; None if there is no message.

    patience: seconds to wait for another process. A latch lasts microseconds, unless its process is
        stopped.
    checks_name: check that the file still has this name; otherwise the caller has to.

    Raises:
        BlockingIOError: another process has latched it.
        OSError
    """
    try:
        return _latch(context, path, checks_name)
    except BlockingIOError:
        if not patience:
            raise
    end = time.monotonic() + patience
    while True:
        time.sleep(_RETRY_S)
        try:
            return _latch(context, path, checks_name)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise


def _latch(context: Context, path: str, checks_name: bool) -> Latched | None:
    tree = context.tree
    try:
        # NFS locks only a file that is open for writing.
        fd = _open(tree, path, os.O_RDWR if tree.network else os.O_RDONLY)
    except PermissionError:
        fd = _open(tree, path, os.O_RDONLY)
    if fd is None:
        return None
    latched, kept = Latched(fd), False
    try:
        # Before we had the lock it may have been renamed, and replaced by another file.
        kept = latched.lock() and (not checks_name or latched.is_at(tree, path))
        return latched if kept else None
    finally:
        if not kept:
            latched.close()


def pin(context: Context, path: str) -> Latched | None:
    """Open a message without a latch, to recognise it later; None if it is gone. OSError."""
    try:
        fd = _open(context.tree, path, os.O_RDONLY)
    except PermissionError:
        fd = _open(context.tree, path, _LOOK_ONLY)
    if fd is None:
        return None
    pinned = Latched(fd)
    return pinned if pinned.look() else None


def _open(tree: Tree, path: str, access: int) -> int | None:
    try:
        return tree.open(path, access)
    except OSError as error:
        if error.errno in STRAY:
            return None
        raise


def latch_patiently(context: Context, path: str) -> Latched | None:
    """`latch`, for renewals and releases, which wait a little. Raises Unavailable, OSError."""
    try:
        return latch(context, path, PATIENCE_S)
    except BlockingIOError:
        raise Unavailable("another process is acting on this message right now") from None


def is_delayed(context: Context, message_id: str, latched: Latched) -> bool:
    """Whether nobody has claimed a message that is latched in ``delay/``."""
    stamp = context.stamps.decode(message_id, latched.found.st_mtime_ns)
    return stamp is None or not stamp.is_claim


class Restamped(NamedTuple):
    """A message in ``delay/`` with its new stamp; ``fd`` is open on it."""

    fd: int
    deadline_ms: int
    deliveries: int


def restamp(
    context: Context,
    queue: str,
    message_id: str,
    deadline_ms: int,
    *,
    later_only: bool = False,
    ends_claim: bool = False,
    backs_off: bool = False,
    claim: str | None = None,
    is_gone: Callable[[Latched], bool] = lambda latched: False,
) -> Restamped | None:
    """Set a new deadline in ``delay/`` and keep the count; None if it is not there.

    A message that waits for its backoff is claimed again, unless ``ends_claim``, or ``is_gone``.

    later_only: leave a deadline that is not earlier. ends_claim: end the claim instead of renewing
    it, so its name is void; with ``backs_off`` a backoff follows. claim: the claim that must still
    hold; otherwise ClaimEnded is raised.
    """
    stamps = context.stamps
    path = context.tree.path(State.DELAY, queue, message_id)
    latched = latch_patiently(context, path)
    if latched is None:
        return None
    stamped = False
    new = Stamp(deadline_ms, 0)
    try:
        if stat.S_ISREG(latched.found.st_mode):
            check_held(context, queue, message_id, latched, claim)
            stamp = stamps.decode(message_id, latched.found.st_mtime_ns)
            if later_only and _is_late(stamp, deadline_ms):
                new, stamped = stamp or new, True
            elif ends_claim or stamp is None or not stamp.backs_off or not is_gone(latched):
                new = _new_stamp(stamp, deadline_ms, ends_claim, backs_off)
                stamped = latched.stamp(context, path, stamps.encoded(message_id, new))
        if not stamped:
            return None
        return Restamped(latched.unlatch(), new.deadline_ms, new.deliveries or 0)
    finally:
        latched.close()  # unless it is unlatched


def _is_late(stamp: Stamp | None, deadline_ms: int) -> bool:
    """Whether a claim or a delay ends at this time or later."""
    return stamp is not None and not stamp.backs_off and stamp.deadline_ms >= deadline_ms


def _new_stamp(before: Stamp | None, deadline_ms: int, ends_claim: bool, backs_off: bool) -> Stamp:
    """The stamp that `restamp` sets."""
    count = (before.deliveries or 0) if before is not None else 0
    is_over = before is not None and before.backs_off
    if ends_claim and count and (backs_off or is_over):
        return Stamp(of_same_claim(before, deadline_ms), count, True)
    if is_over:
        count = min(count + 1, MAX_COUNT)
    elif not ends_claim:
        return Stamp(of_same_claim(before, deadline_ms), count)
    return Stamp(of_next_claim(before, count, deadline_ms), count)


def check_held(
    context: Context, queue: str, message_id: str, latched: Latched, claim: str | None
) -> None:
    """Raise ClaimEnded unless a latched message of ``delay/`` is still in this claim."""
    if claim is not None and not is_claimed(
        context.stamps, message_id, latched.found.st_mtime_ns, claim
    ):
        raise ClaimEnded(queue, message_id)


def not_held(context: Context, queue: str, message_id: str, claim: str | None) -> FsmqError:
    """The error for a message that is not in ``delay/`` where ``claim`` should hold it."""
    if claim is not None and exists(context.tree, queue, message_id):
        return ClaimEnded(queue, message_id)
    known = found_as(context.tree, queue, siblings(message_id))
    hint = "" if known in (None, message_id) else f"; its whole id is {known}"
    return NoSuchMessage(queue, message_id, f"that is in flight{hint}")
