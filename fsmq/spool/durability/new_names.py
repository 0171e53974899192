"""Locks that keep purges of a queue apart from changes of its messages' names.

A purge goes by names, so it would miss a message that gets another name while it runs. A process
that renames takes a shared lock of the queue, a purge an exclusive one. Both take a second lock
first, the gate, which a renaming process releases at once and a purge keeps: so new renamers cannot
keep a purge waiting forever. Both locks are bytes of ``ids/.puts``, after the numbers of puts.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from ..errors import Unavailable, is_full
from ..layout.transitions import IDS
from ..layout.tree import Tree
from .byte_locks import HAS_BYTES, ByteLocks
from .locks import patiently
from .put_numbers import CANNOT, PUTS

_PATIENCE_S = 5.0
# The bytes of a queue are at these offsets plus its CRC-32. Two queues can share theirs.
_NAMES, _GATES = 1 << 32, 1 << 33


def may_rename(tree: Tree, queue: str) -> ByteLocks | None:
    """Keep purges of a queue out until the result is closed; None where there are no such locks.

    Raises Unavailable, OSError.
    """
    return _locked(tree, queue, shared=True)


@contextmanager
def no_new_names(tree: Tree, queue: str) -> Iterator[None]:
    """Within the context no message of a queue gets another name. Raises Unavailable, OSError.

    Where there are no such locks, or no room for their file, it continues without.
    """
    held = _locked(tree, queue, shared=False)
    try:
        yield
    finally:
        if held is not None:
            held.close()


def _locked(tree: Tree, queue: str, *, shared: bool) -> ByteLocks | None:
    if not HAS_BYTES:
        return None
    try:
        file = ByteLocks(tree, tree.folder(IDS, PUTS), shared=shared)
    except OSError as error:
        if error.errno not in CANNOT and not is_full(error):
            raise
        return None
    is_ours = False
    try:
        own = zlib.crc32(os.fsencode(queue))
        is_ours = all(
            patiently(partial(file.take, first + own), _PATIENCE_S) for first in (_GATES, _NAMES)
        )
        if shared:
            file.give(_GATES + own)
    except OSError as error:
        if error.errno not in CANNOT:
            raise
        return None
    finally:
        if not is_ours:
            file.close()
    if not is_ours:
        raise Unavailable(f"queue {queue!r} is being purged, or its messages renamed")
    return file
