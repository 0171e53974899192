"""Where the benchmarks run: a filesystem of their own, or a folder."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fsmq.spool.layout.filesystem import has_journal, kind_of

_libc = ctypes.CDLL(None, use_errno=True)
_DROP_CACHES = Path("/proc/sys/vm/drop_caches")

_MEMORY = Path("/dev/shm")
EXT4 = "ext4 with a journal"
# One inode for each 4 KiB block: a million messages are a million files. Tables are written now,
# or the kernel would write them in the background while we measure.
_EXT4 = ("mkfs.ext4", "-q", "-F", "-i", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0")
# How each is made; the path of the image follows.
FILESYSTEMS: dict[str, tuple[str, ...]] = {
    EXT4: (*_EXT4, "-O", "has_journal"),
    "ext4 with fast_commit": (*_EXT4, "-O", "has_journal,fast_commit"),
    "ext4 without a journal": (*_EXT4, "-O", "^has_journal"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
    "btrfs": ("mkfs.btrfs", "-q", "-f"),
}


class CannotMount(Exception):
    """The filesystem that was asked for is not to be had here; the message says why."""


@dataclass(frozen=True)
class Place:
    """A folder to work in, and what a report says about its filesystem."""

    folder: Path
    description: str

    @contextlib.contextmanager
    def fresh(self, name: str) -> Iterator[Path]:
        """An empty folder, removed afterwards; what that leaves to be written is not left over."""
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            self.settle()

    def settle(self) -> None:
        """Write out what is waiting, so that the next run does not pay for the last one."""
        fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if _libc.syncfs(fd):
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))
        finally:
            os.close(fd)

    def chill(self) -> bool:
        """Drop the page cache, so that the next start is a cold one; False without the right."""
        self.settle()
        try:
            _DROP_CACHES.write_text("3\n")
        except OSError:
            return False
        return True


@contextlib.contextmanager
def open_place(where: str | None, gigabytes: int) -> Iterator[Place]:
    """Open the place that ``--where`` names; None: a loop device for root, else this folder.

    gigabytes: the size of the image on the loop device; it is sparse.

    Raises:
        CannotMount: a loop device was asked for by name, and there is none.
    """
    with contextlib.ExitStack() as stack:
        if where == "loop" or (where is None and os.geteuid() == 0):
            try:
                yield stack.enter_context(on_loop(gigabytes))
                return
            except CannotMount:
                if where == "loop":
                    raise
        yield stack.enter_context(_folder(Path(where or ".")))


@contextlib.contextmanager
def in_memory() -> Iterator[Place]:
    """Open a folder on tmpfs, for what is to be measured without a disk.

    Raises:
        CannotMount: there is none here.
    """
    if not _MEMORY.is_dir() or kind_of(_MEMORY) != "tmpfs":
        raise CannotMount(f"{_MEMORY} is no tmpfs")
    with _folder(_MEMORY) as place:
        yield place


@contextlib.contextmanager
def _folder(above: Path) -> Iterator[Place]:
    above.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="fsmq-benchmarks-", dir=above)).absolute()
    try:
        journal = " without a journal" if has_journal(folder) is False else ""
        yield Place(folder, f"a folder on {kind_of(folder)}{journal}, shared with others")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def on_loop(gigabytes: int, filesystem: str = EXT4) -> Iterator[Place]:
    """Open a filesystem that is made for it, on a loop device; one of `FILESYSTEMS`.

    gigabytes: the size of the image; it is sparse.

    Raises:
        CannotMount: it is not to be had here.
    """
    if os.geteuid():
        raise CannotMount("only root can mount")
    scratch = Path(tempfile.mkdtemp(prefix="fsmq-benchmarks-", dir="/var/tmp"))
    image, mount = scratch / "image", scratch / "mount"
    mount.mkdir()
    mounted = False
    try:
        with image.open("wb") as file:
            file.truncate(gigabytes << 30)
        _run(*FILESYSTEMS[filesystem], str(image))
        _run("mount", "-o", "loop,noatime", str(image), str(mount))
        mounted = True
        place = Place(mount, f"{filesystem} on a loop device of its own, noatime")
        place.settle()
        yield place
    finally:
        if mounted:
            _unmount(mount)
        shutil.rmtree(scratch, ignore_errors=True)


def _unmount(mount: Path) -> None:
    # A process that was killed may hold its files for a moment more.
    for _ in range(50):
        if subprocess.run(["umount", str(mount)], capture_output=True).returncode == 0:
            return
        time.sleep(0.1)
    subprocess.run(["umount", "-l", str(mount)], check=False)


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise CannotMount(f"{command[0]} is not installed") from error
    except subprocess.CalledProcessError as error:
        raise CannotMount(f"{' '.join(command)}: {error.stderr.strip()}") from error
