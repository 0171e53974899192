"""The probe: can this filesystem carry a spool, and how well?

Every answer comes from a trial, in a scratch folder and under dot-names that no daemon mistakes for
messages, so the probe can run at any time beside working daemons.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path

from ..layout.filesystem import refuse_root, refuse_snapshot
from ..layout.transitions import FOLDERS
from ..layout.tree import Tree
from .finding import Finding, Level, fatal
from .room import cleaned_at_boot
from .trials import Trials

__all__ = ["Finding", "Level", "cleaned_at_boot", "fatal", "probe"]


def probe(
    where: Tree | str | Path, *, create: bool = False, clock: Callable[[], float] = time.time
) -> list[Finding]:
    """Try what a spool needs from its filesystem; one finding for each thing, in a fixed order.

    where: an opened tree, or the path of a root.
    create: create the folders that are missing, and remove them at the end.
    clock: gives Unix seconds.

    Takes some milliseconds, and up to a second for each missing event. Cleans up afterwards.

    Raises:
        UnusableSpool: the root cannot be opened or created, or is a snapshot.
    """
    if isinstance(where, Tree):
        return _tried(where, clock)
    refuse_root(Path(where))
    made = _made(Path(where).absolute()) if create else nullcontext()
    with made, closing(Tree(where, create=False)) as tree:
        return _tried(tree, clock)


def _tried(tree: Tree, clock: Callable[[], float]) -> list[Finding]:
    refuse_snapshot(tree)
    return list(Trials(tree, clock).run())


@contextmanager
def _made(root: Path) -> Iterator[None]:
    """A root with all its folders. At the end what was missing is removed, unless it is used."""
    roots = [path for path in (root, *root.parents) if not os.path.lexists(path)]
    missing = [root / name for name in FOLDERS if not os.path.lexists(root / name)]
    try:
        Tree(root).close()
        yield
    finally:
        # A program that has started meanwhile keeps its folders.
        with suppress(OSError):
            made = [folder for folder in missing if folder.is_dir()]
            if not any(any(folder.iterdir()) for folder in made):
                for path in (*made, *filter(Path.is_dir, roots)):
                    path.rmdir()
