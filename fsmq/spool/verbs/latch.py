"""Holds: nobody else acts on a message between a look at its stamp and the rename that follows.

A hold is a lock (flock) on the message's own file, for some microseconds. Without it a mover with
an old look could take a message from a client that had just claimed it, or a late renewal could
stamp somebody else's claim. It ends with its holder, so a crash leaves nothing behind. Where a
filesystem has no such locks the races are left, and what can come of them: a message delivered
twice, never one that is lost.

A hold does not keep out a removal, nor a put that uses the id again once the message is removed: so
its name can come to be another message's. What a holder does, it therefore does to the file that it
holds: it stamps it by its descriptor, and after a rename looks which file it was.
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
from ..errors import Unavailable
from ..layout.names import scratch_name
from ..layout.transitions import NEW, State, Transition
from ..layout.tree import STRAY, Tree

_RETRY_S = 0.0001
_LOOK_ONLY = getattr(os, "O_PATH", os.O_RDONLY)  # only Linux opens what one may not read
PATIENCE_S = 0.02

# Tells of an open file, and what fstat says of it, whether it is the message that is meant.
IsWanted: TypeAlias = Callable[[Context, int, os.stat_result], bool]


def anyone(context: Context, fd: int, found: os.stat_result) -> bool:
    """Every message is wanted."""
    return True


class Held(NamedTuple):
    """A message that is held: an open descriptor, and what fstat says since the lock.

    locked: False where the filesystem has no locks, so that others may act on it all the same.
    """

    fd: int
    found: os.stat_result
    locked: bool

    def let_go(self) -> None:
        """End the hold and keep the descriptor."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_UN)
        except OSError:
            pass  # there was no lock

    def close(self) -> None:
        """End the hold and close the descriptor."""
        # By hand: a process that was forked meanwhile has the descriptor, and with it the lock.
        self.let_go()
        os.close(self.fd)

    def stamp(self, context: Context, path: str, mtime_ns: int) -> bool:
        """Set the message's mtime; False if it is not there (any more)."""
        if self.locked:
            os.utime(self.fd, ns=(mtime_ns, mtime_ns))
            return True
        # By path: whoever lost the race for it must not be able to stamp what the winner has moved.
        return context.tree.stamp(path, mtime_ns)

    def move(
        self,
        context: Context,
        how: Transition,
        queue: str,
        message_id: str,
        to_queue: str | None = None,
    ) -> os.stat_result | None:
        """Make a transition of this very message; None if it is not there (any more).

        Gives what lstat says of it then; if it has gone on by then, what it said before.

        Raises:
            FileExistsError: a message of that id stands at the target; nothing was changed.
            OSError
        """
        tree = context.tree
        if how.target is State.REMOVE:
            return self._remove(tree, how.source, queue, message_id)
        if not tree.move(how, queue, message_id, to_queue):
            return None
        to_queue = to_queue or queue
        if how.target is State.READY:
            context.ready.add(to_queue, message_id)
        target = tree.path(how.target, to_queue, message_id)
        here = tree.stat(target)
        if here is None:
            return self.found
        if here.st_ino == self.found.st_ino:
            return here
        if how.target is State.DELAY:
            # Either it was removed just now, and someone has claimed the next one of its id; or
            # that was renamed in its place, whose timer does not run: the mover brings it back.
            return None
        # This one was removed meanwhile, and its id used again: what was renamed goes back.
        _move_back(context, tree.path(how.source, queue, message_id), target, here)
        return None

    def _remove(
        self, tree: Tree, state: State, queue: str, message_id: str
    ) -> os.stat_result | None:
        """The same to ``remove/``, where a reaper may be quicker than a look.

        So the look comes before, at a name at which nobody acts. A crash leaves it to recovery,
        which removes it after a minute.
        """
        source, aside = tree.path(state, queue, message_id), tree.folder(NEW, scratch_name())
        if state is State.READY and not tree.has_queue(queue):
            return None
        if not tree.rename(source, aside, replace=True):
            return None
        here = tree.stat(aside)
        if here is None or here.st_ino == self.found.st_ino:
            tree.rename(aside, tree.path(State.REMOVE, queue, message_id), replace=True)
            return self.found
        # This one was removed meanwhile, and its id used again: what was renamed goes back.
        with suppress(FileExistsError):  # a third one of the id stands there
            tree.rename(aside, source)
        return None


def _move_back(context: Context, source: str, target: str, moved: os.stat_result) -> None:
    """Undo a rename of another message, unless someone has acted on that since."""
    try:
        held = hold(context, target, PATIENCE_S)
    except BlockingIOError:
        return  # someone acts on it where it stands
    if held is None:
        return
    try:
        now = held.found
        if (now.st_ino, now.st_mtime_ns) == (moved.st_ino, moved.st_mtime_ns):
            context.tree.rename(target, source)
    except FileExistsError:
        return  # fsck tells of the two
    finally:
        held.close()


def hold(context: Context, path: str, patience: float = 0.0) -> Held | None:
    """Open a message and hold it; None if no message stands there.

    patience: seconds to wait for another holder. A hold lasts microseconds; only one whose holder
        was stopped in the middle lasts longer.

    Raises:
        BlockingIOError: someone else holds it.
        OSError
    """
    end = time.monotonic() + patience
    while True:
        try:
            return _hold(context, path)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise
            time.sleep(_RETRY_S)


def _hold(context: Context, path: str) -> Held | None:
    tree = context.tree
    try:
        # NFS gives a lock only to who may write.
        fd = _open(tree, path, os.O_RDWR if tree.network else os.O_RDONLY)
    except PermissionError:
        fd = _open(tree, path, os.O_RDONLY)
    if fd is None:
        return None
    kept = locked = False
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = True
        except BlockingIOError:
            raise
        except OSError:
            pass  # this filesystem has no locks
        found = _look(fd)
        here = tree.look(path)
        # Before we had the lock it may have gone elsewhere, and another file come to its place.
        if found is None or here is None or here.st_ino != found.st_ino:
            return None
        kept = True
        return Held(fd, found, locked)
    finally:
        if not kept:
            if locked:
                fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)


def pin(context: Context, path: str) -> Held | None:
    """Open a message without holding it, to know it again; None if none stands there. OSError."""
    try:
        fd = _open(context.tree, path, os.O_RDONLY)
    except PermissionError:
        fd = _open(context.tree, path, _LOOK_ONLY)
    if fd is None:
        return None
    found = _look(fd)
    if found is None:
        os.close(fd)
        return None
    return Held(fd, found, locked=False)


def _open(tree: Tree, path: str, access: int) -> int | None:
    try:
        return tree.open(path, access)
    except OSError as error:
        if error.errno in STRAY:
            return None
        raise


def _look(fd: int) -> os.stat_result | None:
    try:
        return os.fstat(fd)
    except OSError as error:
        if error.errno == errno.ESTALE:
            return None  # another host has unlinked it
        raise


def hold_patiently(context: Context, path: str) -> Held | None:
    """The same for renewals and releases, which wait a little. Raises Unavailable, OSError."""
    try:
        return hold(context, path, PATIENCE_S)
    except BlockingIOError:
        raise Unavailable("another process is acting on this message right now") from None


def restamp(
    context: Context, path: str, message_id: str, deadline_ms: int, *, later_only: bool = False
) -> int | None:
    """Set a new deadline in ``delay/`` and keep the count; its descriptor, None if not there.

    later_only: a deadline that is not earlier stays.
    """
    stamps = context.stamps
    held = hold_patiently(context, path)
    if held is None:
        return None
    stamped = False
    try:
        if stat.S_ISREG(held.found.st_mode):
            stamp = stamps.decode(message_id, held.found.st_mtime_ns)
            deliveries = stamp.deliveries or 0 if stamp is not None else 0
            is_late = later_only and stamp is not None and stamp.deadline_ms >= deadline_ms
            mtime_ns = stamps.encode(message_id, deadline_ms, deliveries)
            stamped = is_late or held.stamp(context, path, mtime_ns)
    finally:
        if stamped:
            held.let_go()
        else:
            held.close()
    return held.fd if stamped else None
