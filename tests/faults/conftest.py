"""A suite for each module, whose programs suffer and live on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.user import User
from tests.harness.suite import PATIENCE_S, Suite


@pytest.fixture
def user(suite: Suite, queue: str) -> Iterator[User]:
    """Someone who uses the test's own queue, and at the end asks for all that was accepted."""
    with User(suite, queue) as one:
        yield one
        one.gets_everything(PATIENCE_S)
        assert all(suite[name].is_running() for name in ("mq", "mover", "reaper"))
