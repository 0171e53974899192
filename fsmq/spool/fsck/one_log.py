"""The check of one log: its names, its settings, and every message of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from ..errors import NoSuchLog, as_unavailable
from ..layout.filesystem import examine
from ..layout.stamps import Stamps
from ..layout.transitions import LOGS
from ..layout.tree import Tree
from .messages import Inspection
from .ordered_logs import LogRules
from .report import Finding

_PAUSE_S = 1.0


class Verified(NamedTuple):
    """What was found in a log."""

    findings: list[Finding]

    @property
    def is_sound(self) -> bool:
        return not self.findings


def verify(
    tree: Tree, log: str, *, pause: float = _PAUSE_S, clock: Callable[[], float] = time.time
) -> Verified:
    """Read all messages of a log and look at all that belongs to it; changes nothing.

    pause: seconds until what seems wrong is looked at again, since programs may be at work.

    Raises NoSuchLog, Unavailable.
    """
    if not tree.is_folder(tree.folder(LOGS, log)):
        raise NoSuchLog(log)
    with as_unavailable(f"cannot verify log {log!r}"):
        inspection = Inspection(tree, Stamps(examine(tree).coarse), clock, False, True, False)
        found = _look(inspection, log)
        if found:
            time.sleep(pause)
            again = {(one.kind, one.path) for one in _look(inspection, log)}
            found = [one for one in found if (one.kind, one.path) in again]
    return Verified(found)


def _look(inspection: Inspection, log: str) -> list[Finding]:
    faults = [check() for check in LogRules(inspection).checks_of(log)]
    return [fault.finding for fault in faults if fault is not None]
