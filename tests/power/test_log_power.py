"""Power cuts under programs that publish to a log, claim from its channels, and maintain it.

Answered messages are stored at their offsets, and acknowledged ones are not delivered again.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.harness.log_load import KINDS, Told, end, prepare, start
from tests.harness.suite import eventually
from tests.power.disk import Disk

ROUNDS = 3


@pytest.mark.parametrize(
    ("disk", "writers"), [("ext4", "host"), ("xfs", "hosts")], indirect=["disk"]
)
def test_answered_operations_on_a_log_survive_power_cuts(
    disk: Disk, tmp_path: Path, writers: str
) -> None:
    story(disk, tmp_path, writers, ROUNDS, f"{disk.kind} {writers}")


def story(disk: Disk, folder: Path, writers: str, rounds: int, seed: str) -> None:
    """Run rounds of a load and a power cut."""
    root, rng = disk.place / "mq", random.Random(seed)
    prepare(root, writers)
    disk.sync()
    files = [folder / f"{number}-{kind}" for number, kind in enumerate(KINDS)]
    told = Told(files)
    for _ in range(rounds):
        sizes = [size_of(file) for file in files]
        running = [start(kind, root, file) for kind, file in zip(KINDS, files, strict=True)]
        try:
            for number, kind in enumerate(KINDS):
                if kind in ("publish", "none"):
                    eventually(lambda n=number, s=sizes: size_of(files[n]) > s[n] + 200, 60)
            time.sleep(rng.random() * 0.7)
            cut = disk.cut_power()
        finally:
            for process in running:
                end(process)
        disk.remount()
        before = len(told.answered)
        told.read(cut.began)
        assert len(told.answered) > before
        told.judge(root)
    assert disk.check() == ""


def size_of(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
