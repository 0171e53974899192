"""The lock of a name whose settings are created, changed or deleted: one at a time, on all hosts.

It is held from the look to the last change. It ends with its process; what is read under it, nobody
can change meanwhile. No message needs it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..errors import Unavailable, is_full
from ..layout.names import is_queue
from ..layout.transitions import CONFIG
from ..layout.tree import Tree
from .locks import NO_LOCKS, Lock, lock, patiently

# Before the name of a log, whose channels it has, too, or of a topic. No queue's name begins so.
LOG, TOPIC = "_log:", "_topic:"
_PATIENCE_S = 5.0


@contextmanager
def settings_held(tree: Tree, name: str) -> Iterator[None]:
    """Keep others out who create, change or delete what has this name: a queue, or as above.

    Where there are no locks it goes on without; on a full disk, too, where nothing can be written
    and only deletions succeed. Raises Unavailable, OSError.
    """
    path = tree.folder(CONFIG, lock_name(name))
    held = _held(tree, path)
    try:
        yield
    finally:
        with suppress(OSError):  # a file that stays keeps nobody out
            if held is not None:
                held.free()
            else:
                tree.unlink(path)


def _held(tree: Tree, path: str) -> Lock | None:
    try:
        held = patiently(lambda: lock(tree, path, os.O_CREAT), _PATIENCE_S)
    except OSError as error:
        if error.errno in NO_LOCKS or is_full(error):
            return None
        raise
    if held is None:
        raise Unavailable(f"another process holds {tree.root / path}: it may be stopped")
    return held


def lock_name(name: str) -> str:
    """The name of the lock in ``config/``."""
    return f".{name}.lock"


def is_lock_name(name: str) -> bool:
    """Whether a name in ``config/`` is that of a lock, held or left by one that was killed."""
    of = name.removeprefix(".").removesuffix(".lock")
    return name == lock_name(of) and is_queue(of.removeprefix(LOG).removeprefix(TOPIC))
