"""Thinning of the history: old hours get larger steps, and older ones are removed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from ..layout.tree import Tree
from .history import HISTORY, HOUR_S, Line, files, lines_of, written

# From this age on, hours have steps of ten minutes instead of one.
FINE_S = 6 * 3600.0
COARSE_S = 600.0
_DRAFT = re.compile(r"\.[0-9a-f-]{36}\.tmp")


def thin(tree: Tree, now: float) -> int:
    """Thin old hours to steps of ten minutes; returns how many files. Raises OSError."""
    thinned = 0
    for file in files(tree):
        if now - file.began - HOUR_S < FINE_S:
            continue
        found = list(lines_of(tree, file, lambda queue: True))
        if all(is_step for _, is_step in found):
            continue
        tree.replace(file.path, b"".join(_thinned(line for line, _ in found)), durable=False)
        thinned += 1
    return thinned


def _thinned(found: Iterable[Line]) -> Iterator[bytes]:
    step: Line | None = None
    for line in sorted(found, key=lambda line: line.at_ms):
        if step is not None and step.at_ms // 1000 // COARSE_S == line.at_ms // 1000 // COARSE_S:
            queues = dict(step.queues)
            for queue, figures in line.queues.items():
                before = queues.get(queue)
                queues[queue] = figures if before is None else before.then(figures)
            step = Line(line.at_ms, queues, step.is_whole or line.is_whole)
            continue
        if step is not None:
            yield written(step, COARSE_S)
        step = line
    if step is not None:
        yield written(step, COARSE_S)


def expire(tree: Tree, retention_s: float, max_bytes: int, now: float) -> int:
    """Unlink expired files, and the oldest ones of a host that has too many bytes; how many.

    Raises OSError.
    """
    removed = 0
    sizes: Counter[str] = Counter()
    for file in reversed(files(tree)):
        found = tree.stat(file.path)
        sizes[file.node] += found.st_size if found is not None else 0
        if now - file.began - HOUR_S > retention_s or sizes[file.node] > max_bytes:
            removed += tree.unlink(file.path)
    for name in tree.names(HISTORY):
        found = tree.stat(f"{HISTORY}/{name}") if _DRAFT.fullmatch(name) else None
        if found is not None and now - found.st_mtime > HOUR_S:
            removed += tree.unlink(f"{HISTORY}/{name}")
    return removed
