"""What keeps those apart who purge a queue and those who give messages of it new names.

A purge goes by names. So it would miss a message that gets another one while it runs. Who gives
them shares a lock of the queue, and a purge has it alone. It has another lock first, which the
others pass through: so they cannot keep it waiting for ever. Both are bytes of ``ids/.puts``, and
come after the numbers of puts.
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
# The bytes of a queue are its CRC-32 behind these. Two queues may share theirs.
_NAMES, _GATES = 1 << 32, 1 << 33


def may_rename(tree: Tree, queue: str) -> ByteLocks | None:
    """Keep purges of a queue away, until this is closed; None where there are no such locks.

    Raises Unavailable, OSError.
    """
    return _locked(tree, queue, shared=True)


@contextmanager
def no_new_names(tree: Tree, queue: str) -> Iterator[None]:
    """Let no message of a queue get another name meanwhile. Raises Unavailable, OSError.

    Where there are no such locks, or no room for their file, it goes on without.
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
        raise Unavailable(f"a purge of queue {queue!r}, or a message's new name, is under way")
    return file
