"""A fresh spool and a queue in it, for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fsmq.spool import Queue, Spool
from tests.spool.helpers import Clock


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "mq"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def spool(root: Path, clock: Clock) -> Iterator[Spool]:
    """A spool whose clock stands still until a test moves it. Syncs are off."""
    with Spool(root, sync="none", clock=clock) as opened:
        yield opened


@pytest.fixture
def jobs(spool: Spool) -> Queue:
    return spool.queue("jobs", create=True)
