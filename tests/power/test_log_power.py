"""Power cuts under programs that publish to a log, claim from its channels, merge and keep it up.

What was answered is a prefix that is there; no offset means two messages; what was done stays done.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.harness.log_load import KINDS, Told, end, prepare, start
from tests.harness.suite import eventually
from tests.power.disk import CannotMount, Disk

ROUNDS = 3


@pytest.mark.parametrize(("filesystem", "writers"), [("ext4", "host"), ("xfs", "hosts")])
def test_no_power_cut_takes_what_was_answered(
    tmp_path: Path, filesystem: str, writers: str
) -> None:
    try:
        with Disk(tmp_path, filesystem) as disk:
            story(disk, tmp_path, writers, ROUNDS, f"{filesystem} {writers}")
    except CannotMount as error:
        pytest.skip(str(error))


def story(disk: Disk, folder: Path, writers: str, rounds: int, seed: str) -> None:
    """So many loads with a cut behind each."""
    root, rng = disk.place / "mq", random.Random(seed)
    prepare(root, writers)
    disk.sync()
    files = [folder / f"{number}-{what}" for number, what in enumerate(KINDS)]
    told = Told(files)
    for _ in range(rounds):
        sizes = [size_of(file) for file in files]
        running = [start(what, root, file) for what, file in zip(KINDS, files, strict=True)]
        try:
            for number, what in enumerate(KINDS):
                if what in ("publish", "none"):
                    eventually(lambda n=number, s=sizes: size_of(files[n]) > s[n] + 200, 60)
            time.sleep(rng.random() * 0.7)
            cut = disk.cut_power()
        finally:
            for process in running:
                end(process)
        disk.unmount()
        disk.mount()
        before = len(told.answered)
        told.read(cut.began)
        assert len(told.answered) > before
        told.judge(root)
    assert disk.check() == ""


def size_of(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
