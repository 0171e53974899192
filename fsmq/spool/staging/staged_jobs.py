"""Jobs in ``staging/`` for display: those being written, and those being forwarded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from ..context import Context
from ..layout.names import facts, split_entry
from ..layout.transitions import STAGING
from ..layout.tree import STRAY, Tree
from .forward import load
from .part import Job, job_of


class StagedJob(NamedTuple):
    """A job whose messages are not all in their queues yet.

    committed_at: Unix seconds; None while it is being written. begun: when its first part was
    begun. messages: how many it has, by queue.
    """

    job: Job
    committed_at: float | None
    begun: float | None
    parts: int
    messages: Mapping[str, int]


def staged_jobs(context: Context) -> list[StagedJob]:
    """All of them, by their names. Raises OSError."""
    tree = context.tree
    found = []
    for name in sorted(tree.names(tree.folder(STAGING))):
        job = job_of(name)
        if job is not None:
            found.append(_look_at(tree, name, job))
    return found


def _look_at(tree: Tree, name: str, job: Job) -> StagedJob:
    folder = tree.folder(STAGING, name)
    manifest = None if name.startswith(".") else load(tree, job)
    messages: Counter[str] = Counter()
    begun = []
    for part in _names(tree, folder):
        created = facts(part).created_ms
        if created is None:
            continue  # a lock, or the manifest
        begun.append(created / 1000)
        entries = map(split_entry, _names(tree, f"{folder}/{part}"))
        messages.update(entry[0] for entry in entries if entry is not None)
    committed_at = None if manifest is None else manifest.at_ms / 1000
    return StagedJob(job, committed_at, min(begun, default=None), len(begun), messages)


def _names(tree: Tree, folder: str) -> list[str]:
    try:
        return tree.names(folder)
    except OSError as error:
        if error.errno in STRAY:
            return []  # no folder, or no longer
        raise
