"""The lock of a name whose settings are created, changed or deleted: one at a time, on all hosts.

It is held from the first look to the last change, and ends with its process. What is read under it,
nobody else can change. No operation on messages needs it. Planning moves from counts takes such a
lock, too. Removing an index takes all of its ids as well.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..errors import FsmqError, Unavailable, is_full
from ..layout.transitions import CONFIG
from ..layout.tree import Tree
from .ids import Held
from .locks import NO_LOCKS, hold, wait_for

# Prefixes for the name of a log (the lock covers its channels), of a topic, of a schedule (and its
# puts), or of the queue that represents those between which messages are moved. No queue's name
# begins like this.
LOG, TOPIC, SCHEDULE, MOVES = "_log:", "_topic:", "_schedule:", "_moves:"
PATIENCE_S = 5.0


@contextmanager
def settings_held(
    tree: Tree,
    name: str,
    patience_s: float | None = None,
    *,
    writes: bool = True,
    needs_lock: bool = False,
) -> Iterator[None]:
    """Keep others from creating, changing or deleting what has this name: a queue, or as above.

    Without locks it continues without, unless it ``needs_lock``; so it does on a full disk, unless
    it ``writes``. A holder that dies or fails leaves the file, which tells a mover that something
    may be unfinished.

    patience_s: how long to wait for the holder; some seconds by default.

    Raises InUse, OSError.
    """
    path = tree.folder(CONFIG, f".{name}.lock")
    held = hold(
        tree, path, PATIENCE_S if patience_s is None else patience_s, even_if_full=not writes
    )
    if held is None and needs_lock:  # the file stays: it may be another's lock
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
    is_over = False
    try:
        yield
        is_over = True
    except FsmqError as error:
        is_over = not isinstance(error, Unavailable)
        raise
    finally:
        with suppress(OSError):  # a file that stays locks nobody out
            if held is None:
                tree.unlink(path)
            elif is_over:
                held.free()
            else:
                held.unlock()


@contextmanager
def no_ids(tree: Tree, queue: str, patience_s: float | None = None) -> Iterator[None]:
    """Let nobody change which message has an id of a queue, if the queue has an index.

    So a process that was stopped while it held an id never meets a later index of that name.
    Without locks, or room for one, it continues without. patience_s: as above.

    Raises InUse, OSError.
    """
    patience_s = PATIENCE_S if patience_s is None else patience_s
    with Held(tree) as held:
        why = f"another process holds an id of queue {queue!r}: it may be stopped"
        try:
            wait_for(lambda: held.take_all(queue), patience_s, why)
        except OSError as error:
            if not is_full(error) and error.errno not in (errno.ENOENT, *NO_LOCKS):
                raise
        yield
