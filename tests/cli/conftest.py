"""The command on a server, and on a folder without programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.helpers import Command
from tests.harness.suite import Suite


@pytest.fixture
def fsmq(suite: Suite) -> Command:
    return Command(suite.url)


@pytest.fixture
def alone(root: Path) -> Command:
    """The command on a folder with the queue ``jobs``; no program runs."""
    command = Command(root)
    command("queue", "create", "jobs")
    return command
