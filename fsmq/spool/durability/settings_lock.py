"""The lock of a name whose settings are created, changed or deleted: one at a time, on all hosts.

It is held from the look to the last change. It ends with its process; what is read under it, nobody
can change meanwhile. No message needs it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import Unavailable, is_full
from ..layout.transitions import CONFIG
from ..layout.tree import Tree
from .locks import NO_LOCKS, Lock, lock, patiently

# Before the name of a log, whose channels it has, too, or of a topic. No queue's name begins so.
LOG, TOPIC = "_log:", "_topic:"
_PATIENCE_S = 5.0


@contextmanager
def settings_held(tree: Tree, name: str, patience_s: float | None = None) -> Iterator[None]:
    """Keep others out who create, change or delete what has this name: a queue, or as above.

    Where there are no locks it goes on without; on a full disk, too, where nothing can be written
    and only deletions succeed. Raises Unavailable, OSError.
    """
    path = tree.folder(CONFIG, f".{name}.lock")
    held: Lock | None = None
    try:
        patience_s = _PATIENCE_S if patience_s is None else patience_s
        held = patiently(lambda: lock(tree, path, os.O_CREAT), patience_s)
        is_busy = held is None
    except OSError as error:
        if error.errno not in NO_LOCKS and not is_full(error):
            raise
        is_busy = False
        if not is_full(error):
            tree.unlink(path)  # where there are no locks
    if is_busy:
        raise Unavailable(f"another process holds {tree.root / path}: it may be stopped")
    try:
        yield
    finally:
        if held is not None:
            held.free()
