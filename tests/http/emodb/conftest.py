"""Queues for the tests of this dialect: one of each service."""

from __future__ import annotations

from itertools import count

import pytest
from aiohttp import ClientSession

from tests.harness.suite import Suite
from tests.http.emodb.helpers import SERVICES, Emo

_numbers = count(1)


@pytest.fixture(params=SERVICES)
def emo(request: pytest.FixtureRequest, suite: Suite, client: ClientSession) -> Emo:
    """A queue of either service; nothing was sent to it yet."""
    return Emo(client, suite, request.param, f"q{next(_numbers)}")


@pytest.fixture
def plain(suite: Suite, client: ClientSession) -> Emo:
    return Emo(client, suite, "queue", f"plain{next(_numbers)}")


@pytest.fixture
def dedup(suite: Suite, client: ClientSession) -> Emo:
    return Emo(client, suite, "dedupq", f"dedup{next(_numbers)}")
