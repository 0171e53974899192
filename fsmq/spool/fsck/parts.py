"""The check in parts: several processes check a share each, then what all of them saw."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ..layout.filesystem import looks_coarse
from ..layout.stamps import Stamps
from ..layout.tree import Tree
from .check import MAX_LISTED, Checker, opened
from .duplicates import Links
from .messages import Scene
from .report import Fault, Report
from .suspects import Share, Suspect, settle


class Part(NamedTuple):
    """What a check of a share found. ``links``: files with several names, of which some may be in
    other shares: merge those of all parts and give them to `links_of`."""

    report: Report  # its findings are not grouped, and lie in ``faults``
    faults: list[Fault]
    links: Links


def check_part(
    where: Tree | str | Path,
    share: Share,
    *,
    bodies: bool = False,
    offline: bool = False,
    pause: float = 2.0,
    listed: int = MAX_LISTED,
    clock: Callable[[], float] = time.time,
) -> Part:
    """Check a share of a tree, as `check` does with all of it; repairs nothing and writes nothing.

    listed: the most findings of one kind.

    Raises:
        UnusableSpool: the root cannot be opened, or the disk refuses.
    """
    with opened(where) as tree:
        scene = Scene(tree, Stamps(looks_coarse(tree)), clock, offline, bodies)
        one = Checker(scene, pause, lambda progress: None, share, listed)
        report = one.run(repair=False)
        return Part(report, [suspect.fault for suspect in one.left], one.links)


def links_of(
    where: Tree | str | Path, links: Links, *, offline: bool = False, pause: float = 2.0
) -> list[Fault]:
    """What is wrong with the files of a tree that have several names, gathered from all shares.

    Raises:
        UnusableSpool
    """
    with opened(where) as tree:
        looks = [partial(links.look, tree, inode) for inode in links.inodes()]
        suspects = [Suspect(fault, look) for look in looks if (fault := look()) is not None]
        if not offline:
            suspects = settle(suspects, pause)
        return [suspect.fault for suspect in suspects]
