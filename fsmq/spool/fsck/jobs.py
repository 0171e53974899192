"""The rules for ``staging/``: jobs being written, committed, or abandoned by dead drivers."""

from __future__ import annotations

import os
import stat

from ..durability.locks import is_held
from ..layout.transitions import STAGING
from ..staging.abandoned import end_abandoned, is_abandoned, take_over
from ..staging.forward import last, load, remove_gone
from ..staging.part import Job, check_job, is_draft, is_gone, is_lock, job_of, lock_path
from .layout import left_draft
from .messages import Inspection, hidden, kind_of_file, stray
from .report import Fault, Finding, Kind, Severity


class JobRules:
    """The rules for staged jobs."""

    def __init__(self, inspection: Inspection) -> None:
        self._inspection = inspection
        self._tree = inspection.tree

    def entry(self, name: str, found: os.stat_result) -> Fault | None:
        """An entry of ``staging/``."""
        path = self._tree.folder(STAGING, name)
        job = job_of(name)
        if stat.S_ISDIR(found.st_mode) and (job is not None or is_gone(name)):
            return self._folder(path, name, job, found)
        if is_draft(name) and stat.S_ISREG(found.st_mode):
            return left_draft(self._inspection, path, found)
        if is_lock(name):
            return None  # a job's; without its process it blocks nobody
        if name[0] == ".":
            return hidden(self._inspection, path, name, found)
        if not stat.S_ISREG(found.st_mode):
            return stray(path, f"is {kind_of_file(found.st_mode)}, not a job: move it away")
        return self._note(path, name)

    def _folder(self, path: str, name: str, job: Job | None, found: os.stat_result) -> Fault | None:
        if job is None:
            if not self._inspection.is_late(found):
                return None
            reason = "is an abandoned job that nobody removed: is mq-mover running?"
            finding = Finding(Kind.LEFTOVER, Severity.WARNING, path, reason, "remove it")
            return Fault(finding, lambda: remove_gone(self._tree, path) is not None)
        if name[0] == ".":
            return self._open(path, job)
        return self._committed(path, job, found)

    def _open(self, path: str, job: Job) -> Fault | None:
        if not is_abandoned(self._tree, job, self._inspection.now()):
            return None
        reason = "was never committed and has no writer any more: nothing of it is delivered"
        finding = Finding(Kind.ABANDONED_JOB, Severity.WARNING, path, reason, "remove it")

        def mend() -> bool:
            gone = end_abandoned(self._tree, job, self._inspection.now())
            if gone is not None:
                remove_gone(self._tree, gone)
            return gone is not None

        return Fault(finding, mend)

    def _committed(self, path: str, job: Job, found: os.stat_result) -> Fault | None:
        tree = self._tree
        if not self._inspection.is_late(found):
            return None
        if is_held(tree, lock_path(tree, job.name)):
            return None
        manifest = load(tree, job)
        if manifest is None:
            if tree.stat(path) is None:
                return None
            reason = "is committed without a manifest: move its files <queue>:<id> to new/"
            return Fault(Finding(Kind.BAD_JOB, Severity.ERROR, path, reason))
        reason = f"is committed with {manifest.messages} messages that nobody brings to new/"
        reason += ": is mq-mover running?"
        finding = Finding(Kind.COMMITTED_JOB, Severity.ERROR, path, reason, "bring them to new/")
        return Fault(finding, lambda: self._bring_forward(job))

    def _bring_forward(self, job: Job) -> bool:
        forward, held = take_over(self._inspection.context(), job)
        if held is None:
            return False
        try:
            if forward is not None:
                forward.run()
            return forward is not None
        finally:
            held.free()

    def _note(self, path: str, name: str) -> Fault | None:
        """The note of a job's last commit."""
        job = name.removesuffix(".json")
        try:
            is_note = job != name and check_job(job) == job
        except ValueError:
            is_note = False
        if not is_note:
            reason = "is not named <job>.json, so nobody reads it; rename it or move it away"
            return Fault(Finding(Kind.STRAY, Severity.WARNING, path, reason))
        if last(self._tree, job) is not None or self._tree.stat(path) is None:
            return None
        reason = "cannot be parsed: what this job committed would be committed again"
        return Fault(Finding(Kind.BAD_JOB, Severity.ERROR, path, reason))
