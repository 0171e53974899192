"""Queues of dyno-queues in a spool with a clock that tests set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from fsmq import Spool
from fsmq.dyno import DynoQueue, DynoQueues
from fsmq.spool.fsck import Severity, check
from tests.spool.helpers import Clock

UNACK_MS = 60_000
Make: TypeAlias = Callable[..., DynoQueue]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def spool(tmp_path: Path, clock: Clock) -> Iterator[Spool]:
    """A spool in which fsck must find no error at the end."""
    with Spool(tmp_path / "mq", sync="none", clock=clock) as spool:
        yield spool
        found = check(tmp_path / "mq", offline=True, clock=clock).findings
        assert not [finding for finding in found if finding.severity is Severity.ERROR]


@pytest.fixture
def make(spool: Spool) -> Make:
    """Creates the queue "tasks" of a new `DynoQueues`."""

    def make(**options: Any) -> DynoQueue:
        return DynoQueues(spool, **{"zone": "a", "unack_time": UNACK_MS, **options}).get("tasks")

    return make


@pytest.fixture
def queue(make: Make) -> DynoQueue:
    """A queue with one shard."""
    return make()
