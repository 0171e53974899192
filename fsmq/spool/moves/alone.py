"""One at a time: what plans moves by what it counts, and must not count what others are moving."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ..context import Context
from ..durability.locks import lock, patiently
from ..errors import Unavailable, as_unavailable
from ..layout.transitions import MOVES

_PATIENCE_S = 600.0
_PAUSE_S = 0.05


@contextmanager
def alone(context: Context, what: str) -> Iterator[None]:
    """Wait until nobody else is in it with the same name, on any host. Raises Unavailable."""
    tree = context.tree
    path = tree.folder(MOVES, f".{what}.alone")
    with as_unavailable(f"cannot plan moves of {what!r}"):
        held = patiently(lambda: lock(tree, path, os.O_CREAT), _PATIENCE_S, _PAUSE_S)
    if held is None:
        raise Unavailable(f"another process is planning moves of {what!r}")
    try:
        yield
    finally:
        held.free()
