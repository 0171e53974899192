"""Restoring a snapshot to a new root.

While it runs the root has a file `SNAPSHOT`, so that programs refuse it as they refuse snapshots.
The last step unlinks that, so a root that programs accept is complete.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ..durability.sync import sync_filesystem
from ..errors import InvalidValue, UnusableSpool, unavailable
from ..fsck import Finding, Report, check
from ..layout.transitions import FOLDERS, IDS, LOGS, NEW, QUEUES, SNAPSHOT
from ..layout.tree import Tree
from ..log.consuming.progress_file import PROGRESS
from ..records.peers import beats
from .checked import errors_of
from .copies import Copy
from .open_spool import Source
from .snapshots import About, sync_folder

# What an empty filesystem may have.
_HARMLESS = {"lost+found"}


@dataclass(frozen=True, slots=True)
class Restored:
    """A root that was restored. began: when its backup began, in Unix seconds.

    report: what fsck says about it; faults: the errors that remain when programs have started.
    left_out: what could not be copied, with the reasons.
    changed: what is not as in the backup, because the snapshot was altered or copied in part.
    """

    root: Path
    began: float
    report: Report
    faults: list[Finding]
    files: int
    copied: int
    left_out: dict[str, str]
    changed: dict[str, str]


def restore(
    snapshot: str | Path, root: str | Path, *, progress: Callable[[int], None] = lambda done: None
) -> Restored:
    """Restore a snapshot to a root that is empty or does not exist, and check it.

    progress: called now and then with the number of files.

    Raises:
        InvalidValue: this is no snapshot, or the root is in it.
        UnusableSpool: the root is not empty, or programs run on it.
        Unavailable: the disk fails or is full. Then nothing is left.
    """
    snapshot, root = Path(snapshot).absolute(), Path(root).absolute()
    about = _about(snapshot)
    if root == snapshot or snapshot in root.parents:
        raise InvalidValue("root", f"{root} is in the snapshot")
    try:
        is_new = not root.exists()
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _claimed(root):
            try:
                with closing(Copy(root)) as copy, closing(Tree(snapshot, create=False)) as tree:
                    _copy_all(Source(tree, copy), progress)
                sync_filesystem(root)
                os.unlink(root / SNAPSHOT)
                sync_folder(root)
            except BaseException:
                _remove_all(root, is_new)
                raise
            report = check(root, offline=True)
        amounts = copy.amounts
        changed = about.contents.differences(copy.contents) if about.contents is not None else {}
        return Restored(
            root,
            about.began,
            report,
            errors_of(report),
            amounts.files,
            amounts.copied,
            amounts.left_out,
            changed,
        )
    except OSError as error:
        raise unavailable(error, f"cannot restore {snapshot} to {root}") from error


def _about(snapshot: Path) -> About:
    about = About.read(snapshot)
    if about is None:
        raise InvalidValue(
            "SNAPSHOT", f"{snapshot} is no snapshot of fsmq backup: it has no valid {SNAPSHOT}"
        )
    return about


@contextmanager
def _claimed(root: Path) -> Iterator[None]:
    """Keep programs away from an empty root, by a file. Raises UnusableSpool, OSError."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UnusableSpool(f"programs run on {root}: stop them first") from None
        except OSError:
            pass  # a network filesystem without locks on folders
        found = set(os.listdir(fd)) - _HARMLESS
        if found:
            raise UnusableSpool(_not_empty(root, found))
        # No program that is just starting can make this folder: it stops, or meets the other file.
        for name in (NEW, SNAPSHOT):
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=fd))
        os.unlink(NEW, dir_fd=fd)
        os.fsync(fd)
        yield
    finally:
        os.close(fd)


def _remove_all(root: Path, is_new: bool) -> None:
    """Remove what an unfinished restore has made; the file that keeps programs away goes last."""
    with suppress(OSError):
        for entry in list(os.scandir(root)):
            if entry.is_dir(follow_symlinks=False) and entry.name not in _HARMLESS:
                shutil.rmtree(entry.path)
        (root / SNAPSHOT).unlink()
        if is_new:
            root.rmdir()


def _not_empty(root: Path, found: set[str]) -> str:
    if QUEUES in found:
        with suppress(OSError), closing(Tree(root, create=False)) as tree:
            if any(beat.is_alive for beat in beats(tree)):
                return f"programs run on {root}: stop them, and move the folder away"
        return f"{root} is a spool already: move it away, or give another folder"
    return f"{root} is not empty: it has {sorted(found)[0]}"


def _copy_all(source: Source, progress: Callable[[int], None]) -> None:
    tree, copy = source.tree, source.copy
    copy.breathe = lambda: progress(copy.amounts.files)
    for name in FOLDERS:
        found = tree.stat(name)
        if found is not None:
            copy.make(name, found)
    try:
        _Walk(source).take()
    finally:
        source.check()  # an old snapshot may be removed at any time
    copy.resemble(copy.fd, os.fstat(tree.fd))


class _Walk:
    """Copies a snapshot, which does not change, with the second names in its indexes."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._copy = source.copy
        self._links: dict[int, list[str]] = {}

    def take(self) -> None:
        tree = self._source.tree
        for queue in tree.folders(IDS):
            self._source.copy.make(f"{IDS}/{queue}", _stat(tree, f"{IDS}/{queue}"))
            for found in tree.walk(f"{IDS}/{queue}"):
                self._links.setdefault(found.inode(), []).append(f"{IDS}/{queue}/{found.name}")
        for found in tree.walk("."):
            if found.name != IDS and found.is_dir(follow_symlinks=False):
                self._take_folder(found.name)

    def _take_folder(self, path: str) -> None:
        tree = self._source.tree
        self._copy.make(path, _stat(tree, path))
        for found in tree.walk(path):
            inner = f"{path}/{found.name}"
            if found.is_dir(follow_symlinks=False):
                self._take_folder(inner)
                continue
            with self._source.opened(inner) as opened:
                if opened is None:
                    continue
                self._copy.add(opened.fd, opened.found, inner)
                for link in self._links.pop(opened.found.st_ino, ()):
                    self._copy.link(inner, link)
            if path.startswith(f"{LOGS}/") and found.name.startswith(f"{PROGRESS}."):
                # It says when a channel was last used: none expires for the age of the backup.
                os.utime(inner, dir_fd=self._copy.fd)


def _stat(tree: Tree, path: str) -> os.stat_result:
    return os.stat(path, dir_fd=tree.fd, follow_symlinks=False)
