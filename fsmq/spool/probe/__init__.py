"""The probe: can this filesystem carry a spool, and how well?

Every answer comes from trying it, in a scratch folder and under dot-names that no daemon takes for
a message, so the probe may run at any time beside daemons at work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ..layout.tree import Tree
from .finding import Finding, Level, fatal
from .room import cleaned_at_boot
from .scratch import remove_scratch
from .trials import Trials

__all__ = ["Finding", "Level", "cleaned_at_boot", "fatal", "probe", "remove_scratch"]


def probe(
    where: Tree | str | Path, *, create: bool = False, clock: Callable[[], float] = time.time
) -> list[Finding]:
    """Try what a spool needs from its filesystem; one finding for each thing, in a fixed order.

    where: an opened tree, or the path of a root. create: make what is missing of it first.
    clock: gives Unix seconds.

    Takes some milliseconds; up to a second for each of the things that do not come. Cleans up
    behind itself.

    Raises:
        UnusableSpool: the root cannot be opened or created.
    """
    own = not isinstance(where, Tree)
    tree = where if isinstance(where, Tree) else Tree(where, create=create)
    try:
        return list(Trials(tree, clock).run())
    finally:
        if own:
            tree.close()
