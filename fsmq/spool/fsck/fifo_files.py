"""The rules for the files that producers and consumers of a fifo queue share."""

from __future__ import annotations

import os

from ..durability.dedup_records import KEPT_MS, forget_records, old_records, remove_old
from ..durability.left_files import forget_shared, shared_by
from ..durability.settings_lock import settings_held
from ..durability.shared_names import queue_of_dedup
from ..layout.transitions import CONFIG
from ..layout.tree import Tree
from ..records.secret import is_secret
from .messages import Inspection, hidden
from .report import Fault, Finding, Kind, Severity

_MOVER_LOOKS_S = 2 * KEPT_MS / 1000


def shared(inspection: Inspection, path: str, name: str, found: os.stat_result) -> Fault | None:
    """A dot-name of ``config/`` that is no draft."""
    tree = inspection.tree
    queue = queue_of_dedup(name)
    if queue is None:
        if name.endswith(".lock") or is_secret(name):
            return None  # a lock file without its process blocks nobody
        return _left(inspection, path, name, found)
    if not tree.has_queue(queue):
        if not inspection.is_late(found):
            return None
        reason = f"has deduplication ids of queue {queue!r}, which does not exist"
        finding = Finding(Kind.LEFTOVER, Severity.WARNING, path, reason, "remove it")
        return Fault(finding, lambda: _forget(tree, queue))
    if not old_records(tree, queue, inspection.clock() - _MOVER_LOOKS_S):
        return None
    reason = "has expired deduplication ids: is mq-mover running?"
    finding = Finding(Kind.LEFTOVER, Severity.WARNING, path, reason, "remove them")
    return Fault(finding, lambda: remove_old(tree, queue) > 0)


def _left(inspection: Inspection, path: str, name: str, found: os.stat_result) -> Fault | None:
    """The rule for a file that the users of a queue share."""
    tree, queue = inspection.tree, shared_by(name)
    if queue is None:
        return hidden(inspection, path, name, found)
    if tree.has_queue(queue) or not inspection.is_late(found):
        return None
    reason = f"was shared by the users of queue {queue!r}, which does not exist"
    finding = Finding(Kind.LEFTOVER, Severity.WARNING, path, reason, "remove it")
    return Fault(finding, lambda: forget_shared(tree, name))


def _forget(tree: Tree, queue: str) -> bool:
    with settings_held(tree, queue, writes=False):
        if not tree.has_queue(queue):
            forget_records(tree, queue)
            tree.sync_folder(tree.folder(CONFIG))
    return True
