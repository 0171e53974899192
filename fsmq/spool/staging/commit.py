"""Commit: one rename makes a staged job count.

Before it the job does not count and can be removed. After it each of its messages comes to its
queue: the committing process forwards the files or, if it dies, the mover.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ..context import Context, OpenSpool
from ..durability.locks import lock, patiently
from ..errors import QueueFull, Unavailable, as_unavailable
from ..index.counting import count
from ..layout.transitions import STAGING
from ..layout.tree import Tree
from ..verbs.queues.creation import create
from .forward import Forward, Last, Manifest, last, load, remove_gone, save
from .part import (
    REJECTED,
    Job,
    Written,
    check_job,
    check_takes,
    committed_folder,
    gone_folder,
    job_of,
    lock_path,
    open_folder,
)
from .rejected import gather

# The mover may be forwarding an earlier job of this name, which can take minutes.
_LOCK_PATIENCE_S = 300.0


class Outcome(NamedTuple):
    """The outcome of a commit.

    messages: of the job. repeated: how many of these were left out, as the spool had their id.
    again: the job was committed before, and nothing was added now.
    """

    messages: int = 0
    repeated: int = 0
    again: bool = False


def commit(
    spool: OpenSpool,
    job: Job,
    parts: Sequence[Written],
    *,
    keeps: bool = True,
    create_queues: bool = False,
    rejected_rows: Path | None = None,
    run: dict[str, Any] | None = None,
    check: Callable[[Last], None] = lambda last: None,
) -> Outcome:
    """Put all messages of a job's parts, or none; once for each number of its name.

    parts: those that count; all others of the job are removed. keeps: remember the number, so that
    a second commit of it adds nothing. create_queues: create missing queues. rejected_rows: the
    folder for the file ``<job>-<number>.jsonl`` with the rows that the parts rejected. run: an
    object to note with the number. check: called with the last commit of the name; it may raise an
    error, and the caller aborts the job.

    Raises:
        InvalidValue: the name of the job is invalid, or one of its queues is a fifo queue by now.
        NoSuchQueue, QueueFull: nothing was put. In this and the previous case the job is removed.
        Unavailable: the disk failed, and nothing was put; or, if the text says so, the job is
            committed and the mover will forward it.
    """
    tree = spool.context.tree
    check_job(job.name)
    with as_unavailable(f"cannot commit the job {job.name!r}"), _locked(tree, job.name):
        _finish_earlier(spool, job.name)
        known = last(tree, job.name)
        if known is not None:
            check(known)
        if known is not None and known.number >= job.number:
            tree.sync_folder(tree.folder(STAGING))  # its committer may have died before the sync
            remove(tree, job)
            return Outcome(again=True)
        counting = [part for part in parts if part.messages or part.rejected]
        manifest = Manifest(
            spool.context.now_ms(), keeps, {p.part: _described(p) for p in counting}, run
        )
        try:
            _check_parts(tree, job, counting)
            _admit(spool.context, counting, create_queues)
            if rejected_rows is not None:
                _gather(tree, job, counting, rejected_rows)
            if not manifest.messages:
                remove(tree, job)
                return Outcome()
            save(tree, open_folder(tree, job), manifest)
        except Exception:
            remove(tree, job)
            raise
        _make_it_count(tree, job)
        forward = Forward(spool.context, spool.syncer.sync, job, manifest)
        try:
            forward.run()
        except (OSError, Unavailable) as error:
            raise Unavailable(
                f"the job {job.name!r} is committed, and the mover will forward it: {error}"
            ) from error
        return Outcome(manifest.messages, forward.repeated)


def abort(spool: OpenSpool, job: Job) -> None:
    """Remove a job that was not committed; its writers fail. Raises Unavailable."""
    tree = spool.context.tree
    with as_unavailable(f"cannot remove the job {job.name!r}"), _locked(tree, job.name):
        remove(tree, job)


def is_committed(spool: OpenSpool, job: Job) -> bool:
    """Whether a job, or one of its name with a greater number, is committed. Raises Unavailable."""
    with as_unavailable(f"cannot look for the job {job.name!r}"):
        tree = spool.context.tree
        if tree.is_folder(committed_folder(tree, job)):
            return True
        known = last(tree, job.name)
        return known is not None and known.number >= job.number


def remove(tree: Tree, job: Job) -> None:
    """Remove an uncommitted job; the caller has its lock. Raises OSError."""
    gone = rename_away(tree, job)
    if gone is not None:
        remove_gone(tree, gone)


def rename_away(tree: Tree, job: Job) -> str | None:
    """Rename an uncommitted job away, so that its writers fail at once.

    Returns its new path, where it stays until it is removed; None if it is gone. OSError.
    """
    gone = gone_folder(tree)
    return gone if tree.rename(open_folder(tree, job), gone) else None


@contextmanager
def _locked(tree: Tree, name: str) -> Iterator[None]:
    path = lock_path(tree, name)
    held = patiently(lambda: lock(tree, path, os.O_CREAT), _LOCK_PATIENCE_S)
    if held is None:
        raise Unavailable(f"another process has been committing the job {name!r} for minutes")
    try:
        yield
    finally:
        held.free()


def _finish_earlier(spool: OpenSpool, name: str) -> None:
    """Forward an earlier job of this name whose committer died."""
    tree = spool.context.tree
    for found in tree.names(tree.folder(STAGING)):
        job = job_of(found)
        if job is None or job.name != name or found[0] == ".":
            continue
        manifest = load(tree, job)
        if manifest is None:
            raise Unavailable(f"the committed job {found!r} cannot be parsed: run fsmq fsck")
        # Its committer may have died before this sync: a job that a crash undoes must show nothing.
        tree.sync_folder(tree.folder(STAGING))
        Forward(spool.context, spool.syncer.sync, job, manifest).run()


def _described(part: Written) -> dict[str, object]:
    return {
        "messages": part.messages,
        "own": part.own,
        "delayed": part.delayed,
        "repeated": part.repeated,
    }


def _check_parts(tree: Tree, job: Job, parts: Sequence[Written]) -> None:
    folder = open_folder(tree, job)
    for part in parts:
        if not tree.is_folder(f"{folder}/{part.part}"):
            raise Unavailable(
                f"what was staged for the job {job.name!r} is gone: nobody wrote to it for an hour,"
                " or it was removed by hand; run the job again"
            )


def _admit(context: Context, parts: Sequence[Written], create_queues: bool) -> None:
    """Check that the queues exist, accept staged messages, and have room for the whole job."""
    totals: Counter[str] = Counter()
    for part in parts:
        totals.update(part.queues)
    for queue, number in totals.items():
        if create_queues:
            create(context, queue)
        settings = context.settings_of(queue)
        check_takes(queue, settings)  # it may have been recreated since the parts were written
        limit = settings.max_depth
        if limit is None:
            continue
        counts = count(context.tree, context.stamps, queue, context.now_ms())
        if counts.total + number > limit:
            raise QueueFull(queue, limit)


def _gather(tree: Tree, job: Job, parts: Sequence[Written], rejected_rows: Path) -> None:
    folder = open_folder(tree, job)
    sources = [f"{folder}/{part.part}/{REJECTED}" for part in parts if part.rejected]
    gather(tree, sources, rejected_rows, f"{job.name}-{job.number}.jsonl")


def _make_it_count(tree: Tree, job: Job) -> None:
    source, target = open_folder(tree, job), committed_folder(tree, job)
    # A network filesystem may have renamed it and yet answered ENOENT, if its server restarted. We
    # have the lock, and the job was not committed: if it is now, it was this rename.
    if not tree.rename(source, target) and not tree.is_folder(target):
        raise Unavailable(f"what was staged for the job {job.name!r} is gone; run the job again")
    try:
        tree.sync_folder(tree.folder(STAGING))
    except OSError:
        # We report a failure, so the job must not count.
        tree.rename(target, source)
        remove(tree, job)
        raise
