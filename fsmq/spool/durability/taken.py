"""Messages that were taken away, to be inspected where nobody else acts on them.

Each has a dot-name in ``new/`` that names its entry. The process that takes it away keeps a byte of
``ids/.puts`` locked for that entry. If it dies the message is brought back: it may be another
message than was meant, and acknowledged to its sender.
"""

from __future__ import annotations

import os
import stat
import zlib
from contextlib import closing

from ..layout.names import split_taken, taken_entry
from ..layout.transitions import IDS, NEW, State
from ..layout.tree import Tree
from .byte_locks import HAS_BYTES, ByteLocks
from .put_numbers import CANNOT, PUTS
from .unfinished import Recovered, exists

# The limit where there are no such locks: a message is taken away for microseconds only.
_AFTER_S = 60.0
_FIRST = 3 << 32  # the byte of an entry is at this offset plus its CRC-32


def lock_of(queue: str, message_id: str) -> int:
    """The byte that is locked while a message of this entry is taken away."""
    return _FIRST + zlib.crc32(os.fsencode(f"{queue}:{message_id}"))


def is_in_use(tree: Tree, name: str, now: float) -> bool:
    """Whether the process that took a message away may still be at work on it. Raises OSError."""
    parts = split_taken(name)
    if parts is None:
        return False
    if HAS_BYTES:
        try:
            with closing(ByteLocks(tree, tree.folder(IDS, PUTS))) as file:
                return file.is_held(lock_of(*parts))
        except OSError as error:
            if error.errno not in CANNOT:
                raise
    found = tree.stat(tree.folder(NEW, name))
    return found is None or now - found.st_ctime < _AFTER_S


def bring_back(tree: Tree, name: str, now: float) -> Recovered:
    """Bring back, to ``delay/``, a message that a dead process took away: its timer is set.

    It waits here while another message of its id exists. Raises OSError.
    """
    parts, path = split_taken(name), tree.folder(NEW, name)
    found = tree.stat(path)
    if parts is None or found is None or not stat.S_ISREG(found.st_mode):
        return Recovered()
    if is_in_use(tree, name, now) or exists(tree, *parts, taken_too=False):
        return Recovered()
    try:
        return Recovered(promoted=int(tree.rename(path, tree.path(State.DELAY, *parts))))
    except FileExistsError:
        return Recovered()  # it was put just now


def bring_back_one(tree: Tree, queue: str, message_id: str, now: float) -> bool:
    """The same for the message of an id; returns whether one came back."""
    name = taken_entry(queue, message_id)
    return name is not None and bool(bring_back(tree, name, now).promoted)
