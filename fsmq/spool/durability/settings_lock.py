"""The lock of a name whose settings are created, changed or deleted: one at a time, on all hosts.

It is held from the look to the last change. It ends with its process; what is read under it, nobody
can change meanwhile. No message needs it. Who plans moves by what he counts has such a lock, too.
Who removes an index has all of its ids besides.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..errors import FsmqError, Unavailable, is_full
from ..layout.transitions import CONFIG
from ..layout.tree import Tree
from .ids import Held
from .locks import NO_LOCKS, hold, wait_for

# Before the name of a log, whose channels it has, too, of a topic, or of the queue that stands for
# those between which messages are moved. No queue's name begins so.
LOG, TOPIC, MOVES = "_log:", "_topic:", "_moves:"
PATIENCE_S = 5.0


@contextmanager
def settings_held(
    tree: Tree, name: str, patience_s: float | None = None, *, writes: bool = True
) -> Iterator[None]:
    """Keep others out who create, change or delete what has this name: a queue, or as above.

    Where there are no locks it goes on without; on a full disk, too, unless it ``writes``. Whoever
    dies, or fails, leaves the lock's file: it tells a mover that something may be half made.

    patience_s: how long to wait for who has it; some seconds by default.

    Raises InUse, OSError.
    """
    path = tree.folder(CONFIG, f".{name}.lock")
    held = hold(
        tree, path, PATIENCE_S if patience_s is None else patience_s, even_if_full=not writes
    )
    is_over = False
    try:
        yield
        is_over = True
    except FsmqError as error:
        is_over = not isinstance(error, Unavailable)
        raise
    finally:
        with suppress(OSError):  # a file that stays keeps nobody out
            if held is None:
                tree.unlink(path)
            elif is_over:
                held.free()
            else:
                held.unlock()


@contextmanager
def no_ids(tree: Tree, queue: str, patience_s: float | None = None) -> Iterator[None]:
    """Let nobody change meanwhile which message has an id of a queue, if it has an index.

    So whoever is stopped with an id meets no later index of that name when it goes on. Where there
    are no locks, or no room for one, it goes on without. patience_s: as above.

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
