"""The filesystem under a root, and what it guarantees."""

from __future__ import annotations

import errno
import os
import pwd
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..errors import UnusableSpool
from .transitions import DELAY, FOLDERS, SNAPSHOT
from .tree import Tree
from .uuids import uuid7

# On these, syncfs makes everything durable or reports an error. Network and FUSE filesystems do not
# promise that; overlayfs reports success even if its upper layer failed.
_WHOLE_SYNC = {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs", "zfs"}
# On these, overwriting bytes reuses their place on the disk, and needs no journal.
_IN_PLACE = {"ext2", "ext3", "ext4", "xfs"}
# Older kernels do not report writes that failed before syncfs was called.
_SYNCFS_TELLS = (5, 8)
_NETWORK = re.compile(
    r"nfs4?|cifs|smb3?|smbfs|9p|ceph|glusterfs|lustre|gpfs|afs|orangefs|beegfs|fuse(\..*)?|fuseblk"
)
_DIGITS_NS = 123_456_789
_TRIES = 10
# After these errors this process cannot set times, so it writes no stamp that could be wrong.
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR)


class Filesystem(NamedTuple):
    """``coarse``: times are kept to the second only. ``network``: other hosts may change it."""

    kind: str
    network: bool
    whole_sync: bool
    coarse: bool

    @property
    def keeps_inodes(self) -> bool:
        """Whether a file keeps its inode number as long as it exists, on every host."""
        return not self.kind.startswith("fuse")  # FUSE programs number files as they meet them

    @property
    def in_place(self) -> bool:
        """Whether overwriting bytes reuses their place on the disk."""
        return self.kind in _IN_PLACE

    @property
    def shared(self) -> int:
        """Flags for opening a file that several hosts write: writes go to the server at once.

        While a file is open for writing, an NFS client mistakes changes by other hosts for its own,
        and keeps answering from its cache; and it can write more of a page than it was given. So on
        NFS reads and writes bypass the cache.
        """
        if not self.network:
            return 0
        is_nfs = self.kind.startswith("nfs")
        return os.O_DSYNC | (getattr(os, "O_DIRECT", 0) if is_nfs else 0)


def examine(tree: Tree) -> Filesystem:
    """Find out from /proc and by a trial. Raises OSError if the disk fails."""
    kind = kind_of(tree.root)
    whole = kind in _WHOLE_SYNC and _release(os.uname().release) >= _SYNCFS_TELLS
    return Filesystem(kind, is_network(kind), whole, _is_coarse(tree))


def refuse_snapshot(tree: Tree) -> None:
    """Raise UnusableSpool if a tree is a snapshot, whose files are those of others too, or if its
    restore has not come to its end."""
    if tree.stat(SNAPSHOT) is not None:
        raise UnusableSpool(
            f"{tree.root} is a snapshot, or was not restored to its end: fsmq restore brings a"
            " snapshot to a new root, and fsmq fsck checks it"
        )


def refuse_root(root: Path) -> None:
    """Raise UnusableSpool if this process is root, and the folder belongs to another user, whose
    programs could not read what root creates.

    Not on network filesystems, whose servers decide who root is.
    """
    if os.geteuid() != 0:
        return
    try:
        owner = os.stat(root).st_uid
    except OSError:
        return  # it is about to be created, or cannot be opened either
    if owner == 0 or is_network(kind_of(root)):
        return
    raise UnusableSpool(
        f"{root} belongs to the user {user_name(owner)}, whose programs cannot read the files that"
        f" root creates in it: run this as that user, with sudo -u {sudo_name(owner)} fsmq …"
    )


def user_name(uid: int) -> str:
    """The name of a user; the number of one without a name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def sudo_name(uid: int) -> str:
    """A user, as an argument of sudo in a shell."""
    name = user_name(uid)
    return f"'#{uid}'" if name == str(uid) else name


def is_older(tree: Tree, found: os.stat_result, seconds: float) -> bool:
    """Whether a file was last changed at least ``seconds`` ago, by the clock that sets its times,
    which can differ from that of this host. Raises OSError.
    """
    now = tree.stat(".") if tree.touch(".") else None
    return now is not None and now.st_mtime - found.st_ctime >= seconds


def looks_coarse(tree: Tree) -> bool:
    """Whether times are kept to the second only, as far as one can see without writing.

    Every change of a folder sets its time: that all of them are whole seconds is no coincidence. A
    tree that was restored with such times has lost its stamps too, so the answer is right for it.
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
    """Mount points inside a folder, relative to it.

    Comparing device numbers is not enough: a bind mount has that of its source, but blocks renames.
    """
    top = os.path.realpath(path).rstrip("/") + "/"
    return {mount.removeprefix(top) for mount, _ in _mounts() if mount.startswith(top)} - {""}


def _mounts() -> Iterator[tuple[str, str]]:
    """All mount points, with their types."""
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

    A guess is not enough: after a wrong guess a program's claims do not hold for others.
    """
    try:
        # A folder needs no space and no descriptor: a full disk must still be emptied.
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
        # A rename into the folder can come in between, but not every time.
        if os.stat(path, dir_fd=tree.fd).st_mtime_ns == mtime_ns:
            return False
    return True
