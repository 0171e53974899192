"""The check of one log: its names, its settings, and all its messages."""

from __future__ import annotations

import time

from ..errors import NoSuchLog, as_unavailable
from ..layout.filesystem import examine
from ..layout.stamps import Stamps
from ..layout.transitions import LOGS
from ..layout.tree import Tree
from .messages import Inspection
from .ordered_logs import LogRules
from .report import Finding

_PAUSE_S = 1.0


def verify(tree: Tree, log: str) -> list[Finding]:
    """What is wrong with a log, its channels and its messages; changes nothing.

    Raises NoSuchLog, Unavailable.
    """
    if not tree.is_folder(tree.folder(LOGS, log)):
        raise NoSuchLog(log)
    with as_unavailable(f"cannot verify log {log!r}"):
        inspection = Inspection(tree, Stamps(examine(tree).coarse), time.time, False, True, False)
        found = _look(inspection, log)
        if found:
            time.sleep(_PAUSE_S)  # programs may be using the log
            again = {(one.kind, one.path) for one in _look(inspection, log)}
            found = [one for one in found if (one.kind, one.path) in again]
    return found


def _look(inspection: Inspection, log: str) -> list[Finding]:
    faults = [check() for check in LogRules(inspection).checks_of(log)]
    return [fault.finding for fault in faults if fault is not None]
