"""The command on a server; `test_verbs.py` and `test_shards.py` ask a folder, too."""

from __future__ import annotations

import pytest

from tests.cli.helpers import Command
from tests.harness.suite import Suite


@pytest.fixture
def fsmq(suite: Suite) -> Command:
    return Command(suite.url)
