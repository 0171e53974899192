"""Programs that publish, claim, merge and keep up logs are killed at any moment.

What was answered is there, at its offset; what was done stays done; nothing needs a repair.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.harness.log_load import KINDS, QUIET, Told, end, prepare, start
from tests.harness.suite import PATIENCE_S

KILLS, ANSWERS = 20, 40


@pytest.mark.parametrize("writers", ["host", "hosts"])
def test_killed_programs_lose_nothing(tmp_path: Path, writers: str) -> None:
    story(tmp_path, writers, KILLS, seed="5")


def story(folder: Path, writers: str, kills: int, seed: str) -> None:
    """So many kills, of whoever is at work."""
    root, rng = folder / "mq", random.Random(seed)
    prepare(root, writers)
    files = [folder / f"{number}-{what}" for number, what in enumerate(KINDS)]
    running = [start(what, root, file) for what, file in zip(KINDS, files, strict=True)]
    killed = 0
    try:
        while killed < kills or answers(files) < ANSWERS:
            number = rng.randrange(len(KINDS))
            file = files[number]
            size = size_of(file)
            deadline = time.monotonic() + PATIENCE_S
            while KINDS[number] not in QUIET and time.monotonic() < deadline:
                if size_of(file) > size:
                    break  # it is at work
                time.sleep(rng.random() * 0.02)
            end(running[number])
            killed += 1
            running[number] = start(KINDS[number], root, file)
    finally:
        for process in running:
            end(process)
    told = Told(files)
    told.read()
    assert len(told.answered) >= ANSWERS
    told.judge(root)


def size_of(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def answers(files: list[Path]) -> int:
    """How many publishes were answered, of one message or more."""
    return sum(file.read_bytes().count(b" end ") for file in files if file.exists())
