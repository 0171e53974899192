"""The rules for what those share who put into a fifo queue, or claim from it."""

from __future__ import annotations

import os

from ..durability.dedup_records import is_over
from ..layout.names import split_dedup
from .messages import Scene, hidden
from .report import Fault, Finding, Kind, Severity

# What processes share of a queue, in files of ``config/``.
_SHARED = (".limits", ".sends", ".claims")


def shared(scene: Scene, path: str, name: str, found: os.stat_result) -> Fault | None:
    """A dot-name of ``config/`` that is no draft."""
    tree = scene.tree
    dedup = split_dedup(name)
    if dedup is None:
        if name.endswith(".lock"):
            return None  # it keeps nobody out when its process has gone
        ends = [end for end in _SHARED if name.endswith(end)]
        if ends and tree.has_queue(name[1:].removesuffix(ends[0])):
            return None
        return hidden(scene, path, name, found)
    queue, window = dedup
    if not scene.is_late(found):
        return None
    if not tree.has_queue(queue):
        reason = f"has deduplication ids of queue {queue!r}, which does not exist"
    elif is_over(window, int(scene.clock() * 1000)):
        reason = "has deduplication ids that count no more: is mq-mover running?"
    else:
        return None
    finding = Finding(Kind.LEFTOVER, Severity.WARNING, path, reason, "remove it")
    return Fault(finding, lambda: tree.unlink(path))
