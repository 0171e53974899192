"""Changes of settings that depend on what they were: one at a time, on all hosts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ..context import Context
from ..durability.locks import lock, patiently
from ..errors import Unavailable, as_unavailable
from ..layout.transitions import CONFIG

_PATIENCE_S = 5.0


@contextmanager
def settings_held(context: Context, queue: str) -> Iterator[None]:
    """Keep other changes that look first out, from the look to the change.

    Raises:
        Unavailable
    """
    path = context.tree.folder(CONFIG, lock_name(queue))
    with as_unavailable(f"cannot change the settings of {queue!r}"):
        held = patiently(lambda: lock(context.tree, path, os.O_CREAT), _PATIENCE_S)
        if held is None:
            raise Unavailable(f"another process changes the settings of {queue!r} right now")
        try:
            yield
        finally:
            held.free()


def lock_name(queue: str) -> str:
    """The name of the lock in ``config/``."""
    return f".{queue}.lock"
