"""Programs that publish to logs, claim and maintain them are killed at any moment.

Answered messages are stored at their offsets, acknowledged ones are not delivered again, and no
repair is needed.
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
def test_killed_programs_lose_no_message(tmp_path: Path, writers: str) -> None:
    story(tmp_path, writers, KILLS, seed="5")


def story(folder: Path, writers: str, kills: int, seed: str) -> None:
    """Kill programs at work."""
    root, rng = folder / "mq", random.Random(seed)
    prepare(root, writers)
    files = [folder / f"{number}-{kind}" for number, kind in enumerate(KINDS)]
    running = [start(kind, root, file) for kind, file in zip(KINDS, files, strict=True)]
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
    """The number of answered publishes."""
    return sum(file.read_bytes().count(b" end ") for file in files if file.exists())
