"""Holds: nobody else acts on a message between a look at its stamp and the rename that follows.

A hold is a lock (flock) on the message's own file, for some microseconds. Without it a mover with
an old look could take a message from a client that had just claimed it, or a late renewal could
stamp somebody else's claim. It ends with its holder, so a crash leaves nothing behind. Where a
filesystem has no such locks the races are left, and what can come of them: a message delivered
twice, never one that is lost.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from typing import NamedTuple

from .context import Context
from .errors import Unavailable
from .tree import STRAY

_RETRY_S = 0.0001
PATIENCE_S = 0.02


class Held(NamedTuple):
    """A message that is held: an open descriptor, and what fstat says since the lock."""

    fd: int
    found: os.stat_result

    def let_go(self) -> None:
        """End the hold and keep the descriptor. (Closing it ends the hold as well.)"""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_UN)
        except OSError:
            pass  # there was no lock


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
        try:
            # NFS gives a lock only to who may write.
            fd = tree.open(path, os.O_RDWR if context.network else os.O_RDONLY)
        except PermissionError:
            fd = tree.open(path)
    except OSError as error:
        if error.errno in STRAY:
            return None
        raise
    kept = False
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            pass  # this filesystem has no locks
        try:
            held = Held(fd, os.fstat(fd))
        except OSError as error:
            if error.errno == errno.ESTALE:
                return None  # another host has unlinked it
            raise
        here = tree.stat(path)
        # Before we had the lock it may have gone elsewhere, and another file come to its place.
        kept = here is not None and here.st_ino == held.found.st_ino
        return held if kept else None
    finally:
        if not kept:
            os.close(fd)


def hold_patiently(context: Context, path: str) -> Held | None:
    """The same for renewals and releases, which wait a little. Raises Unavailable, OSError."""
    try:
        return hold(context, path, PATIENCE_S)
    except BlockingIOError:
        raise Unavailable("someone else is acting on this message right now") from None


def restamp(context: Context, path: str, message_id: str, deadline_ms: int) -> int | None:
    """Set a new deadline in ``delay/`` and keep the count; its descriptor, None if not there."""
    tree, stamps = context.tree, context.stamps
    held = hold_patiently(context, path)
    if held is None:
        return None
    stamped = False
    try:
        if stat.S_ISREG(held.found.st_mode):
            deliveries = stamps.deliveries(message_id, held.found.st_mtime_ns)
            stamped = tree.stamp(path, stamps.encode(message_id, deadline_ms, deliveries))
    finally:
        if stamped:
            held.let_go()
        else:
            os.close(held.fd)
    return held.fd if stamped else None
