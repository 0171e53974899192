"""A disk that fails after it has said yes: it takes what goes to old blocks, and refuses new ones.

So does a thin pool that is full. The image of an ext4 lies on a tmpfs, with holes in the place of
all free blocks. When the tmpfs is full, a file's bytes fail when they are written back, some time
after the write() that brought them. The filesystem's log and tables have their place, so it lives.
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
_ROOM = 16 * 1024 * 1024  # for what is written while it takes everything
_PAGE = 4096
# Folders take no new block for so many names of 50 bytes, though some of their blocks get more of
# them than others: for that they have a multiple of the blocks that those need.
_NAMES = 2000
_NAME_BYTES = 200
_FAILURES = 20


class FailingDisk(Disk):
    """An ext4 that refuses new blocks between `refuse` and `take`; mounted within ``with``.

    failures: how often that was felt so far; to be set by who puts a load on it.
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
            # Where ext4 could not write its own tables it must not go on, or it may lose folders.
            run("mkfs.ext4", "-q", "-F", "-e", "remount-ro", "-b", str(_PAGE), "-J", "size=4",
                "-N", "20000",
                "-E", "lazy_itable_init=0,lazy_journal_init=0", self._image)  # fmt: skip
            os.posix_fallocate(image.fileno(), 0, _SIZE)  # mkfs leaves holes where zeros are

    def mount(self) -> None:
        super().mount()
        device = Path(run("findmnt", "--noheadings", "--output=SOURCE", self.place).strip()).name
        # Of several pages at once the first may find room: the loop device takes that for success.
        Path("/sys/block", device, "queue/max_sectors_kb").write_text(str(_PAGE // 1024))
        # What ext4 has put by for the next small files is not free, and no hole.
        Path("/sys/fs/ext4", device, "mb_group_prealloc").write_text("0")

    def unmount(self) -> None:
        self.take()
        super().unmount()

    @property
    def is_read_only(self) -> bool:
        """Whether ext4 has given up: it could not write its own tables."""
        try:
            os.utime(self.place)
        except OSError as error:
            if error.errno == errno.EROFS:  # where mount says nothing of it, too
                return True
            raise
        return False

    def check(self) -> str:
        """Nothing: what it has done to its filesystem is not to be blamed on anyone."""
        return ""

    def grow(self, folder: Path) -> None:
        """Let a folder take the blocks that it will need: ext4 never gives them back."""
        names = [folder / f".{number:0{_NAME_BYTES}}" for number in range(_NAMES)]
        for name in names:
            name.touch()
        for name in names:
            name.unlink()

    def refuse(self) -> None:
        """From now on no block is taken that holds nothing."""
        run("fstrim", self.place)
        with self._ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(_PAGE))
            except OSError:
                pass

    def take(self) -> None:
        """Take all blocks again."""
        self._ballast.unlink(missing_ok=True)

    def cut_power(self) -> Cut:
        """Instead of that: fail, recover, and fail. What was answered until the end counts."""
        for _ in range(2):
            self.take()
            arbitrary_moment(self._chance, 0.1, 0.3)
            self.refuse()
            enough = self.failures() + _FAILURES
            eventually(lambda enough=enough: self.failures() >= enough)
        now = time.monotonic()
        return Cut(now, now)
