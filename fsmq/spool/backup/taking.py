"""Taking a snapshot of a spool in use."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from fsmq._version import __version__

from ..durability.sync import sync_filesystem
from ..errors import InvalidValue, UnusableSpool, unavailable
from ..fsck import Finding
from ..layout.files import write_all
from ..layout.filesystem import refuse_snapshot
from ..layout.transitions import FOLDERS, JOURNAL, SNAPSHOT
from ..layout.tree import Tree
from ..records.history import HISTORY
from .checked import checked
from .contents import Contents
from .copies import Copy
from .in_use import InUse
from .of_logs import OfLogs
from .open_spool import Source
from .small_files import SmallFiles
from .snapshots import About, Snapshots, check_places

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that was taken.

    before: the one with which it shares files; None if there was none. removed: the names of older
    ones that were removed. left_out: what is not in it, with the reasons. copied, linked: bytes.
    faults: what fsck finds in it, because it is wrong in the spool too.
    """

    path: Path
    began: float
    messages: int
    queues: int
    logs: int
    files: int
    copied: int
    linked: int
    before: Path | None = None
    removed: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    faults: list[Finding] = field(default_factory=list)


def backup(
    root: str | Path,
    where: str | Path,
    *,
    keep: int | None = None,
    progress: Progress = lambda step, done, of: None,
    clock: Callable[[], float] = time.time,
) -> Snapshot:
    """Take a snapshot of a spool, which may be in use, into a new folder in ``where``.

    keep: how many snapshots to keep, this one included; None: all.
    progress: called now and then with what is being copied, how many are, and of how many; 0 of 0
        where that is not known.

    Raises:
        InvalidValue: ``where`` is in the spool, or a spool.
        UnusableSpool: there is no spool, or a snapshot, or ``where`` keeps no nanoseconds.
        Unavailable: the disk fails or is full, another backup runs, the spool was removed, or the
            copy is not sound. Then nothing is left.
    """
    root, where = Path(root).absolute(), Path(where).absolute()
    if keep is not None and keep < 1:
        raise InvalidValue("keep", "must be at least 1")
    if not root.is_dir():
        raise UnusableSpool(f"there is no spool in {root}")
    try:
        check_places(root, where)
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        snapshots = Snapshots(where)
        with snapshots.locked(), snapshots.draft() as draft:
            before = snapshots.newest()
            began = clock()
            with (
                closing(Copy(draft, before, _known(before))) as copy,
                closing(Tree(root, create=False)) as tree,
            ):
                refuse_snapshot(tree)
                source = Source(tree, copy)
                try:
                    logs = _take_all(source, progress)
                finally:
                    source.check()
                progress("checking", 0, 0)
                _write_about(draft, root, began, clock(), copy.contents)
                report, faults = checked(draft, root)
                progress("syncing", 0, 0)
                sync_filesystem(draft)
                path = snapshots.finish(draft, began)
            removed = snapshots.keep(keep, path) if keep is not None else []
            amounts = copy.amounts
            return Snapshot(
                path,
                began,
                report.messages,
                len(report.queues),
                logs,
                amounts.files,
                amounts.copied,
                amounts.linked,
                before,
                removed,
                amounts.left_out,
                faults,
            )
    except OSError as error:
        raise unavailable(error, f"cannot copy {root} to {where}") from error


def _known(before: Path | None) -> Contents | None:
    about = About.read(before) if before is not None else None
    return about.contents if about is not None else None


def _take_all(source: Source, progress: Progress) -> int:
    """Copy everything, in the order that decision 37 explains; the number of logs."""
    tree, copy = source.tree, source.copy
    whole = os.fstat(tree.fd)
    copy.resemble(copy.fd, whole)
    for name in FOLDERS:
        copy.make(name, tree.stat(name) or whole)
    progress("logs", 0, 0)
    logs = OfLogs(source)
    logs.take()
    small = SmallFiles(source)
    small.take()
    InUse(source, small, lambda done, of: progress("messages", done, of)).take()
    for name in (JOURNAL, HISTORY):
        source.take_folder(name)
    return len(logs.names)


def _write_about(draft: Path, root: Path, began: float, ended: float, contents: Contents) -> None:
    about = {
        "root": str(root),
        "began": began,
        "ended": ended,
        "version": __version__,
        "contents": contents.as_json(),
    }
    fd = os.open(draft / SNAPSHOT, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, json.dumps(about).encode() + b"\n")
    finally:
        os.close(fd)
