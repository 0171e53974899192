"""Programs that publish, claim, merge and keep up logs are killed at any moment.

What was answered is there, at its offset; what was done stays done; nothing needs a repair.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.harness.log_load import KINDS, Told, prepare, start


@pytest.mark.parametrize("writers", ["host", "hosts"])
def test_killed_programs_lose_nothing(tmp_path: Path, writers: str) -> None:
    root, rng = tmp_path / "mq", random.Random(5)
    prepare(root, writers)
    files = [tmp_path / f"{number}-{what}" for number, what in enumerate(KINDS)]
    running = [start(what, root, file) for what, file in zip(KINDS, files, strict=True)]
    end, killed = time.monotonic() + 8, 0
    try:
        while time.monotonic() < end or killed < 12:
            number = rng.randrange(len(KINDS))
            file = files[number]
            size = file.stat().st_size if file.exists() else 0
            deadline = time.monotonic() + 30.0
            while KINDS[number] != "keep" and time.monotonic() < deadline:
                if file.exists() and file.stat().st_size > size:
                    break  # it is at work
                time.sleep(rng.random() * 0.02)
            running[number].kill()
            running[number].wait()
            killed += 1
            running[number] = start(KINDS[number], root, file)
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert killed > 10
    told = Told(files)
    told.read()
    assert len(told.answered) > 30
    told.judge(root)
