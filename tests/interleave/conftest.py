"""A folder in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.replay.place import scratch as where


@pytest.fixture
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=where(), prefix="fsmq-interleave-") as folder:
        yield Path(folder)
