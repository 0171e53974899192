"""A user of the suite of each module, whose programs survive all faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.user import User
from tests.harness.suite import PATIENCE_S, Suite


@pytest.fixture
def user(suite: Suite, queue: str) -> Iterator[User]:
    """A user of a new queue, who fetches all accepted messages at the end."""
    with User(suite, queue) as one:
        yield one
        one.gets_everything(PATIENCE_S)
        assert all(suite[name].is_running() for name in ("mq", "mover", "reaper"))
