"""Records every system call with which a process changes a tree, in order.

Steps identify files and folders by their inodes, not by their names. A test compares a record with
the trace of strace.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsmq.spool.durability.sync import Syncer
from fsmq.spool.layout.tree import Tree

_EXCHANGE = 2
# Files that are written in place and must survive a crash; not lock files.
_WRITTEN_IN_PLACE = re.compile(
    r"^(config/.*\.(sends|dedup/[0-9]+)|logs/[^/]+/(log/[0-9]+|channels/[^/]+/progress[.][0-9]+))$"
)


@dataclass(frozen=True)
class Slot:
    """The inode of a folder, and a name in it."""

    folder: int
    name: str


@dataclass(frozen=True)
class Create:
    """A file was created, or got another name."""

    slot: Slot
    inode: int
    is_folder: bool = False


@dataclass(frozen=True)
class Unlink:
    """A name of a file or an empty folder was removed."""

    slot: Slot


@dataclass(frozen=True)
class Rename:
    """A name moved; the target was replaced or exchanged."""

    source: Slot
    target: Slot
    exchange: bool = False


@dataclass(frozen=True)
class Write:
    """Bytes were appended to a file."""

    inode: int
    data: bytes


@dataclass(frozen=True)
class Overwrite:
    """Bytes were written at an offset of a file."""

    inode: int
    at: int
    data: bytes


@dataclass(frozen=True)
class Stamp:
    """A file got another mtime."""

    inode: int
    mtime_ns: int


@dataclass(frozen=True)
class Note:
    """The extended attribute of a file was set or removed."""

    inode: int
    value: bytes | None


@dataclass(frozen=True)
class Sync:
    """A file or a folder was synced. ``path`` is relative to the root."""

    inode: int
    path: str


@dataclass(frozen=True)
class SyncAll:
    """The whole filesystem was synced."""


@dataclass(frozen=True)
class Mark:
    """The begin or the answer of an operation. what: its effect on the promises."""

    what: Any


Step = Create | Unlink | Rename | Write | Overwrite | Stamp | Note | Sync | SyncAll | Mark


class Recorder:
    """The steps of this process on one root, within :meth:`recording`."""

    def __init__(self, root: Path) -> None:
        self.steps: list[Step] = []
        self._root = os.path.realpath(root)
        self._pins: list[int] = []  # keeps inode numbers from being reused
        self._call = {name: getattr(os, name) for name in _PATCHES}

    def mark(self, what: Any) -> None:
        self.steps.append(Mark(what))

    def close(self) -> None:
        for fd in self._pins:
            os.close(fd)

    @contextmanager
    def recording(self) -> Iterator[None]:
        rename2, syncfs = Tree._rename2, Syncer._syncfs
        for name, method in _PATCHES.items():
            setattr(os, name, method.__get__(self))
        Tree._rename2 = self._wrap_rename2(rename2)  # type: ignore[method-assign]
        Syncer._syncfs = self._wrap_syncfs(syncfs)  # type: ignore[method-assign]
        try:
            yield
        finally:
            for name, call in self._call.items():
                setattr(os, name, call)
            Tree._rename2 = rename2  # type: ignore[method-assign]
            Syncer._syncfs = syncfs  # type: ignore[method-assign]

    def _absolute(self, path: Any, dir_fd: int | None) -> str:
        text = os.fsdecode(path)
        if dir_fd is None or text.startswith("/"):
            return os.path.abspath(text)
        return f"{os.readlink(f'/proc/self/fd/{dir_fd}')}/{text}"

    def _slot(self, path: Any, dir_fd: int | None) -> Slot | None:
        """The slot of a path; None outside of the root."""
        absolute = self._absolute(path, dir_fd)
        folder, _, name = absolute.rpartition("/")
        if not (folder + "/").startswith(self._root + "/") or not os.path.isdir(folder):
            return None
        return Slot(os.stat(folder).st_ino, name)

    def _file(self, fd: int) -> str | None:
        """The path of a descriptor relative to the root; None outside of it."""
        path = os.readlink(f"/proc/self/fd/{fd}").removesuffix(" (deleted)")
        if path == self._root:
            return "."
        return path.removeprefix(self._root + "/") if path.startswith(self._root + "/") else None

    def _pin(self, path: str) -> int:
        """Keep an inode number from being reused; the number."""
        fd = self._call["open"](path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._pins.append(fd)
        return os.fstat(fd).st_ino

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        is_new = False
        absolute = ""
        if flags & os.O_CREAT:
            absolute = self._absolute(path, dir_fd)
            is_new = not os.path.lexists(absolute)
        fd: int = self._call["open"](path, flags, mode, dir_fd=dir_fd)
        slot = self._slot(path, dir_fd) if is_new else None
        if slot is not None:
            self.steps.append(Create(slot, self._pin(absolute)))
        return fd

    def write(self, fd: int, data: Any) -> int:
        written: int = self._call["write"](fd, data)
        if self._file(fd) is not None:
            self.steps.append(Write(os.fstat(fd).st_ino, bytes(data)[:written]))
        return written

    def pwrite(self, fd: int, data: Any, at: int) -> int:
        written: int = self._call["pwrite"](fd, data, at)
        if _WRITTEN_IN_PLACE.search(self._file(fd) or ""):
            self.steps.append(Overwrite(os.fstat(fd).st_ino, at, bytes(data)[:written]))
        return written

    def fsync(self, fd: int) -> None:
        self._sync("fsync", fd)

    def fdatasync(self, fd: int) -> None:
        self._sync("fdatasync", fd)

    def _sync(self, call: str, fd: int) -> None:
        self._call[call](fd)
        path = self._file(fd)
        if path is not None:
            self.steps.append(Sync(os.fstat(fd).st_ino, path))

    def utime(self, path: Any, *arguments: Any, **named: Any) -> None:
        self._call["utime"](path, *arguments, **named)
        if isinstance(path, int):
            inside, found = self._file(path) is not None, os.fstat(path)
        else:
            inside = self._slot(path, named.get("dir_fd")) is not None
            found = os.lstat(self._absolute(path, named.get("dir_fd")))
        if inside:
            self.steps.append(Stamp(found.st_ino, found.st_mtime_ns))

    def setxattr(self, fd: int, attribute: str, value: bytes) -> None:
        self._call["setxattr"](fd, attribute, value)
        self._note(fd, value)

    def removexattr(self, fd: int, attribute: str) -> None:
        self._call["removexattr"](fd, attribute)
        self._note(fd, None)

    def _note(self, fd: int, value: bytes | None) -> None:
        if self._file(fd) is not None:
            self.steps.append(Note(os.fstat(fd).st_ino, value))

    def link(
        self,
        src: Any,
        dst: Any,
        *,
        src_dir_fd: int | None = None,
        dst_dir_fd: int | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        self._call["link"](
            src,
            dst,
            src_dir_fd=src_dir_fd,
            dst_dir_fd=dst_dir_fd,
            follow_symlinks=follow_symlinks,
        )
        slot = self._slot(dst, dst_dir_fd)
        if slot is not None:
            self.steps.append(Create(slot, self._pin(self._absolute(dst, dst_dir_fd))))

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._remove("unlink", path, dir_fd)

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._remove("rmdir", path, dir_fd)

    def _remove(self, call: str, path: Any, dir_fd: int | None) -> None:
        slot = self._slot(path, dir_fd)
        self._call[call](path, dir_fd=dir_fd)
        if slot is not None:
            self.steps.append(Unlink(slot))

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        self._call["mkdir"](path, mode, dir_fd=dir_fd)
        slot = self._slot(path, dir_fd)
        if slot is not None:
            inode = self._pin(self._absolute(path, dir_fd))
            self.steps.append(Create(slot, inode, is_folder=True))

    def rename(
        self, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        source, target = self._slot(src, src_dir_fd), self._slot(dst, dst_dir_fd)
        self._call["rename"](src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        if source is not None and target is not None:
            self.steps.append(Rename(source, target))

    def _wrap_rename2(self, call: Callable[..., int]) -> Callable[..., int]:
        def rename2(tree: Tree, source: str, target: str, flags: int) -> int:
            slots = self._slot(source, tree.fd), self._slot(target, tree.fd)
            code = call(tree, source, target, flags)
            if code == 0 and slots[0] is not None and slots[1] is not None:
                self.steps.append(Rename(slots[0], slots[1], exchange=flags == _EXCHANGE))
            return code

        return rename2

    def _wrap_syncfs(self, call: Callable[[Syncer, int], None]) -> Callable[[Syncer, int], None]:
        def syncfs(syncer: Syncer, fd: int) -> None:
            call(syncer, fd)
            self.steps.append(SyncAll())

        return syncfs


_PATCHES: dict[str, Any] = {
    name: getattr(Recorder, name)
    for name in (
        "open",
        "write",
        "pwrite",
        "fsync",
        "fdatasync",
        "utime",
        "setxattr",
        "removexattr",
        "link",
        "unlink",
        "rmdir",
        "mkdir",
        "rename",
    )
}
