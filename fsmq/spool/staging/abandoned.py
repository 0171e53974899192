"""Jobs in ``staging/`` whose writers or committers have died.

A committed job is forwarded. A job that nobody writes any more is removed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import NamedTuple

from ..context import Context
from ..durability.dotnames import TORN_AFTER_S
from ..durability.locks import Lock, free_lock, is_held, lock
from ..durability.sync import Dirty
from ..index.quarantine import LONGEST_S, Quarantine
from ..layout.transitions import STAGING
from ..layout.tree import Tree
from .commit import rename_away
from .forward import Forward, load, remove_gone
from .part import Job, is_draft, is_gone, is_lock, job_of, lock_path, open_folder

# How long a job may be without any writer: its tasks may be waiting for a free machine.
ABANDONED_AFTER_S = 3600.0
# Files in one step, so that the mover's other work gets its turn.
_BUDGET = 5000


class Recovered(NamedTuple):
    """The result of a step: files of committed jobs looked at, and whether there is more to do.

    again_s: seconds, at most, until a job that failed is tried again.
    """

    forwarded: int = 0
    is_behind: bool = False
    again_s: float = LONGEST_S


class Abandoned:
    """Finishes or removes abandoned jobs step by step; it leaves jobs in use alone.

    on_fault: called with the name of a job that failed and waits for its next try, and the error.
    """

    def __init__(self, context: Context, on_fault: Callable[[str, Exception], None]) -> None:
        self._context = context
        self._tree = context.tree
        self._on_fault = on_fault
        self._quarantined = Quarantine()
        self._at_work: tuple[str, Lock, Forward] | None = None

    def close(self) -> None:
        """Stop; another process does the rest."""
        if self._at_work is not None:
            self._at_work[1].free()
            self._at_work = None

    def step(self, now: float) -> Recovered:
        """Do a part of the work; ``now`` is in Unix seconds. Raises OSError."""
        done = self._go_on(now) or self._look(now)
        if (news := self._quarantined.news(now)) is not None:
            self._on_fault(*news)
        return done

    def _look(self, now: float) -> Recovered:
        while self._quarantined.pop_due(now) is not None:
            pass  # it is tried with the others
        is_behind = False
        for name in self._tree.names(self._tree.folder(STAGING)):
            if name in self._quarantined:
                continue
            try:
                is_behind |= self._one(name, now)
            except Exception as error:  # an error of one must not stop the others
                self._quarantined.add(name, now, error)
        again = self._quarantined.next_s()
        pause = LONGEST_S if again is None else again - now
        return self._go_on(now) or Recovered(is_behind=is_behind, again_s=pause)

    def _go_on(self, now: float) -> Recovered | None:
        """Forward a part of the current job; None if there is none."""
        if self._at_work is None:
            return None
        name, _, forward = self._at_work
        done = 0
        try:
            done = forward.step()
        except Exception as error:
            self._quarantined.add(name, now, error)
        finally:
            if not done:
                self.close()
        return Recovered(done, is_behind=True)

    def _one(self, name: str, now: float) -> bool:
        """Do what one name of ``staging/`` needs; whether there is more to do."""
        tree = self._tree
        path = tree.folder(STAGING, name)
        job = job_of(name)
        if is_gone(name):
            return remove_gone(tree, path, _BUDGET) is None
        if is_lock(name):
            free_lock(tree, path)
        elif is_draft(name):
            _remove_draft(tree, path, now)
        elif job is not None and tree.is_folder(path):
            return self._open(job, now) if name[0] == "." else self._committed(name, job)
        return False

    def _open(self, job: Job, now: float) -> bool:
        return end_abandoned(self._tree, job, now) is not None

    def _committed(self, name: str, job: Job) -> bool:
        if self._at_work is not None:
            return True
        forward, held = take_over(self._context, job)
        if held is None:
            return False
        if forward is None:
            held.free()  # fsck reports it
            return False
        self._at_work = (name, held, forward)
        return True


def take_over(context: Context, job: Job) -> tuple[Forward | None, Lock | None]:
    """A `Forward` for a committed job, and its lock. The first is None if the job does not parse,
    both if another process has the lock. Raises OSError."""
    tree = context.tree
    held = lock(tree, lock_path(tree, job.name), os.O_CREAT)
    if held is None:
        return None, None
    try:
        manifest = load(tree, job)
        # Its committer may have died before this sync: no message of a job may be shown whose
        # commit a crash could undo.
        tree.sync_folder(tree.folder(STAGING))
    except BaseException:
        held.free()
        raise
    if manifest is None:
        return None, held

    def sync(dirty: Dirty) -> None:
        for path in dirty.closed:
            tree.sync_file(path)
        for folder in sorted(dirty.folders):
            tree.sync_folder(folder)

    return Forward(context, sync, job, manifest, chunk=_BUDGET), held


def end_abandoned(tree: Tree, job: Job, now: float) -> str | None:
    """Rename away a job that nobody writes any more; its new path, or None. Raises OSError."""
    held = lock(tree, lock_path(tree, job.name), os.O_CREAT)
    if held is None:
        return None
    try:
        return rename_away(tree, job) if is_abandoned(tree, job, now) else None
    finally:
        held.free()


def is_abandoned(tree: Tree, job: Job, now: float) -> bool:
    """Whether nobody has written a job for an hour. Raises OSError."""
    folder = open_folder(tree, job)
    youngest = 0.0
    for name in (".", *tree.names(folder)):
        found = tree.stat(f"{folder}/{name}")
        if found is None:
            continue
        youngest = max(youngest, found.st_ctime)
        if is_lock(name) and is_held(tree, f"{folder}/{name}"):
            return False
    return now - youngest >= ABANDONED_AFTER_S


def _remove_draft(tree: Tree, path: str, now: float) -> None:
    found = tree.stat(path)
    if found is not None and stat.S_ISREG(found.st_mode) and now - found.st_ctime >= TORN_AFTER_S:
        tree.unlink(path)
