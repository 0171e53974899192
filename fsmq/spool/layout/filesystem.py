"""What the filesystem under a root is, and what it can keep."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .transitions import DELAY, FOLDERS
from .tree import Tree
from .uuids import uuid7

# Here one syncfs makes everything durable, or reports an error. Network and FUSE filesystems do not
# promise the first; overlayfs reports success, also if its upper layer failed.
_WHOLE_SYNC = {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs", "zfs"}
# Here bytes stay where they are when others are written over them, and the journal is not needed.
_IN_PLACE = {"ext2", "ext3", "ext4", "xfs"}
# Older kernels do not report writes that failed before syncfs was called.
_SYNCFS_TELLS = (5, 8)
_NETWORK = re.compile(
    r"nfs4?|cifs|smb3?|smbfs|9p|ceph|glusterfs|lustre|gpfs|afs|orangefs|beegfs|fuse(\..*)?|fuseblk"
)
_DIGITS_NS = 123_456_789
_TRIES = 10
# With these errors this process may set no time, so there is none that it could read wrong.
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR)


class Filesystem(NamedTuple):
    """``coarse``: times are kept to the second only. ``network``: other hosts may change it."""

    kind: str
    network: bool
    whole_sync: bool
    coarse: bool

    @property
    def keeps_inodes(self) -> bool:
        """Whether a file's inode number is its own as long as it lives, and for every host."""
        return not self.kind.startswith("fuse")  # its programs count files as they meet them

    @property
    def in_place(self) -> bool:
        """Whether bytes that are written over others take their place on the disk."""
        return self.kind in _IN_PLACE

    @property
    def shared(self) -> int:
        """Flags to open a file with that several hosts write: writes go to the server at once.

        A client of NFS takes what another host has changed for its own writes as long as anybody
        here has the file open for writing, and goes on to answer from its memory; and it may write
        more of a page than it was given. So there both go past its memory.
        """
        if not self.network:
            return 0
        is_nfs = self.kind.startswith("nfs")
        return os.O_DSYNC | (getattr(os, "O_DIRECT", 0) if is_nfs else 0)


def examine(tree: Tree) -> Filesystem:
    """Find out by /proc and by a try. Raises OSError while the disk refuses that."""
    kind = kind_of(tree.root)
    whole = kind in _WHOLE_SYNC and _release(os.uname().release) >= _SYNCFS_TELLS
    return Filesystem(kind, is_network(kind), whole, _is_coarse(tree))


def is_older(tree: Tree, found: os.stat_result, seconds: float) -> bool:
    """Whether a file was last changed so long ago, by the clock that its times are of: that of this
    host may be another one. Raises OSError.
    """
    now = tree.stat(".") if tree.touch(".") else None
    return now is not None and now.st_mtime - found.st_ctime >= seconds


def looks_coarse(tree: Tree) -> bool:
    """Whether times are kept to the second only, as far as one can see without writing.

    Every change of a folder sets its time; that all of them fell on whole seconds is no chance. A
    tree that was restored with such times has lost its stamps too, so for it the answer holds.
    """
    stats = (tree.stat(tree.folder(name)) for name in FOLDERS)
    return all(found is None or found.st_mtime_ns % 1_000_000_000 == 0 for found in stats)


def is_network(kind: str) -> bool:
    """Whether other hosts may change a filesystem of this type."""
    return _NETWORK.fullmatch(kind) is not None


def kind_of(path: Path) -> str:
    """The type of the filesystem that holds ``path``, as mount(8) names it; '' if unknown."""
    real = os.path.realpath(path)
    best, kind = "", ""
    for mount, mounted in _mounts():
        inside = real == mount or real.startswith(mount.rstrip("/") + "/")
        # A later mount on the same place hides an earlier one.
        if inside and len(mount) >= len(best):
            best, kind = mount, mounted
    return kind


def has_journal(path: Path) -> bool | None:
    """Whether the ext4 that holds ``path`` has a journal; None for other filesystems."""
    if kind_of(path) != "ext4" or not os.path.isdir("/proc/fs/jbd2"):
        return None
    device = os.stat(path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    name = os.path.basename(os.path.realpath(f"/sys/dev/block/{number}"))
    if name == number:
        return None  # /sys does not know it
    return any(found.startswith(f"{name}-") for found in os.listdir("/proc/fs/jbd2"))


def mounts_below(path: Path) -> set[str]:
    """What is mounted inside a folder, relative to it.

    The device number is not enough: a bind mount has that of its source, but no rename crosses it.
    """
    top = os.path.realpath(path).rstrip("/") + "/"
    return {mount.removeprefix(top) for mount, _ in _mounts() if mount.startswith(top)} - {""}


def _mounts() -> Iterator[tuple[str, str]]:
    """Where something is mounted, and its type."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        left, _, right = line.partition(" - ")
        mount = left.split(" ", 5)[4]
        if "\\" in mount:
            mount = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), mount)
        yield mount, right.partition(" ")[0]


def _release(text: str) -> tuple[int, ...]:
    """A kernel's version and patchlevel; empty, older than any, if the text has none."""
    match = re.match(r"(\d+)\.(\d+)", text)
    return tuple(map(int, match.groups())) if match else ()


def _is_coarse(tree: Tree) -> bool:
    """Whether times are kept to the second only. Raises OSError if that cannot be found out now.

    To guess is not enough: the claims of a program that guesses wrong keep no other program off.
    """
    try:
        # A folder takes no space and no descriptor: what is full must still be emptied.
        return _is_coarse_at(tree, tree.folder(DELAY))
    except OSError as error:
        if error.errno not in _NOT_OURS:
            raise
    path = tree.folder(DELAY, f".{uuid7()}.tmp")
    try:
        os.close(tree.create(path))
        try:
            return _is_coarse_at(tree, path)
        finally:
            tree.unlink(path)
    except OSError as error:
        if error.errno not in _NOT_OURS:
            raise
    return looks_coarse(tree)


def _is_coarse_at(tree: Tree, path: str) -> bool:
    for _ in range(_TRIES):
        mtime_ns = int(time.time()) * 1_000_000_000 + _DIGITS_NS
        os.utime(path, ns=(mtime_ns, mtime_ns), dir_fd=tree.fd)
        # Another rename into the folder may have come in between, but not each time.
        if os.stat(path, dir_fd=tree.fd).st_mtime_ns == mtime_ns:
            return False
    return True
