"""A disk that fails after a successful write: it accepts data for old blocks, and refuses new ones.

A full thin pool behaves like this. The image of an ext4 is on a tmpfs, with holes for all free
blocks. When the tmpfs is full, the bytes of a file fail when they are written back, some time after
the write(). The log and the tables of the filesystem have blocks, so it survives.
"""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import TracebackType

from tests.harness.suite import arbitrary_moment, eventually
from tests.power.disk import Cut, Disk, run

_SIZE = 64 * 1024 * 1024
_ROOM = 16 * 1024 * 1024  # for data that are written while it accepts everything
_PAGE = 4096
# Folders have a multiple of the blocks that these names need, so that they need no new block for
# names of 50 bytes, even if those are unevenly distributed.
_NAMES = 2000
_NAME_BYTES = 200
_FAILURES = 20


class FailingDisk(Disk):
    """An ext4 that refuses new blocks between `refuse` and `take`; mounted within ``with``.

    failures: the number of failures under a load, to be set by the test.
    """

    failures: Callable[[], int]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "ext4")
        self._store = folder / "store"
        self._store.mkdir()
        self._image = self._store / "image"
        self._ballast = self._store / "ballast"
        self._chance = Random(0)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            subprocess.run(["umount", "--lazy", self._store], check=True)

    def make(self) -> None:
        run("mount", "-t", "tmpfs", "-o", f"size={_SIZE + _ROOM}", "tmpfs", self._store)
        with self._image.open("wb") as image:
            image.truncate(_SIZE)
            # After a failed write of its tables ext4 must stop, or it may lose folders.
            run("mkfs.ext4", "-q", "-F", "-e", "remount-ro", "-b", str(_PAGE), "-J", "size=4",
                "-N", "20000",
                "-E", "lazy_itable_init=0,lazy_journal_init=0", self._image)  # fmt: skip
            os.posix_fallocate(image.fileno(), 0, _SIZE)  # mkfs leaves holes where zeros are

    def mount(self) -> None:
        super().mount()
        device = Path(run("findmnt", "--noheadings", "--output=SOURCE", self.place).strip()).name
        # Page by page: of several pages the first may fit, which the loop device takes for success.
        Path("/sys/block", device, "queue/max_sectors_kb").write_text(str(_PAGE // 1024))
        # Without preallocation, whose blocks are neither free nor holes.
        Path("/sys/fs/ext4", device, "mb_group_prealloc").write_text("0")

    def unmount(self) -> None:
        self.take()
        super().unmount()

    @property
    def is_read_only(self) -> bool:
        """Whether ext4 has stopped because it could not write its tables."""
        try:
            os.utime(self.place)
        except OSError as error:
            if error.errno == errno.EROFS:  # mount may not show it
                return True
            raise
        return False

    def check(self) -> str:
        """No damage: it is to be expected here."""
        return ""

    def grow(self, folder: Path) -> None:
        """Make a folder allocate the blocks that it will need, which ext4 never frees."""
        names = [folder / f".{number:0{_NAME_BYTES}}" for number in range(_NAMES)]
        for name in names:
            name.touch()
        for name in names:
            name.unlink()

    def refuse(self) -> None:
        """Refuse new blocks from now on."""
        run("fstrim", self.place)
        with self._ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(_PAGE))
            except OSError:
                pass

    def take(self) -> None:
        """Accept new blocks again."""
        self._ballast.unlink(missing_ok=True)

    def cut_power(self) -> Cut:
        """Fail, recover and fail again, in place of a cut. All answers until the end count."""
        for _ in range(2):
            self.take()
            arbitrary_moment(self._chance, 0.1, 0.3)
            self.refuse()
            enough = self.failures() + _FAILURES
            eventually(lambda enough=enough: self.failures() >= enough)
        now = time.monotonic()
        return Cut(now, now)
