"""A filesystem in an image, whose power can be cut for real.

An ioctl stops the filesystem at once without writing its log, so that after umount and mount it has
only what was on stable media.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import struct
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, NamedTuple

from tests.harness.suite import PATIENCE_S, eventually
from tests.replay.place import scratch

_MEGABYTE = 1024 * 1024
_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN, and XFS_IOC_GOINGDOWN too
_NO_LOG_FLUSH = struct.pack("I", 2)
SIZES = {"ext4": 64 * _MEGABYTE, "xfs": 320 * _MEGABYTE}
_MAKE = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-J", "size=4", "-N", "20000",
             "-E", "lazy_itable_init=0,lazy_journal_init=0"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
}  # fmt: skip
# By default ext4 commits every five seconds, which would hide a missing sync.
_OPTIONS = {"ext4": "loop,commit=600", "xfs": "loop"}
_CHECK = {"ext4": ["fsck.ext4", "-f", "-n"], "xfs": ["xfs_repair", "-n"]}


class CannotMount(Exception):
    """This machine has no loop device, no right to mount, or no tools."""


class Cut(NamedTuple):
    """The time of a power cut: time.monotonic() just before and just after."""

    began: float
    ended: float


class Disk:
    """An image with a filesystem, mounted until the end of the ``with``."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.kind = kind
        self.place = folder / "disk"
        self._image = folder / "image"
        self.place.mkdir(parents=True)

    def __enter__(self) -> Disk:
        if os.geteuid() != 0:
            raise CannotMount("only root can mount a filesystem and cut its power")
        try:
            self.make()
            self.mount()
        except (OSError, subprocess.CalledProcessError) as error:
            reason = getattr(error, "stderr", None) or error
            raise CannotMount(f"{self.kind}: {reason}") from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if os.path.ismount(self.place):
            subprocess.run(["umount", "--lazy", self.place], check=True)
        self._image.unlink(missing_ok=True)

    def make(self) -> None:
        with self._image.open("wb") as file:
            file.truncate(SIZES[self.kind])
        run(*_MAKE[self.kind], self._image)

    def mount(self) -> None:
        """Mount it until it is usable: a program that starts in a new namespace may hold a copy of
        the mount for a moment, and with it the filesystem that was stopped or became read-only."""

        def is_usable() -> bool:
            run("mount", "-o", _OPTIONS[self.kind], self._image, self.place)
            try:
                os.utime(self.place)
            except OSError:
                self.unmount()
                return False
            return True

        eventually(is_usable, PATIENCE_S)

    def unmount(self) -> None:
        """Unmount; all processes on it must have ended. Their files close a moment later."""

        def done() -> bool:
            return subprocess.run(["umount", self.place], capture_output=True).returncode == 0

        eventually(done, PATIENCE_S)

    def remount(self) -> None:
        self.unmount()
        self.mount()

    def sync(self) -> None:
        """Write everything to stable media."""
        fd = os.open(self.place, os.O_RDONLY)
        try:
            run("sync", "-f", self.place)
        finally:
            os.close(fd)

    def cut_power(self) -> Cut:
        fd = os.open(self.place, os.O_RDONLY)
        try:
            began = time.monotonic()
            fcntl.ioctl(fd, _SHUTDOWN, _NO_LOG_FLUSH)
            return Cut(began, time.monotonic())
        finally:
            os.close(fd)

    def check(self) -> str:
        """The damage that the check of the filesystem finds; '' if none."""
        self.unmount()
        command = [*_CHECK[self.kind], str(self._image)]
        done = subprocess.run(command, capture_output=True, text=True)
        self.mount()
        return "" if done.returncode == 0 else done.stdout + done.stderr


def cut_power_under(
    disk: Disk,
    programs: Iterable[tuple[Callable[..., None], tuple[Any, ...]]],
    is_under_way: Callable[[], bool],
    seconds: float,
) -> Cut:
    """Cut the power under running programs, some time after they are under way, and remount.

    programs: functions with their arguments, each for a process.
    """
    fork = multiprocessing.get_context("fork")
    running = [fork.Process(target=program, args=arguments) for program, arguments in programs]
    for process in running:
        process.start()
    eventually(is_under_way)
    time.sleep(seconds)
    cut = disk.cut_power()
    for process in running:
        process.kill()  # one that waits would not notice the cut
        process.join()
    disk.remount()
    return cut


@contextmanager
def ext4_if_possible(prefix: str) -> Iterator[Path]:
    """A folder on an ext4, which reuses inode numbers at once.

    If none can be mounted the folder is in memory, where inode numbers are not reused.
    """
    with TemporaryDirectory(dir=scratch(), prefix=prefix) as folder, ExitStack() as stack:
        place = Path(folder)
        with suppress(CannotMount):
            place = stack.enter_context(Disk(place / "ext4", "ext4")).place
        yield place


def run(*command: str | Path) -> str:
    """Run a command; its output. Raises CalledProcessError."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
