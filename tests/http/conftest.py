"""Fixtures that tests of the fast path share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.http.pair import Pair, pair_of


@pytest.fixture(scope="module")
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """The same server with and without the fast path; a module names its options as ``OPTIONS``."""
    options: dict[str, Any] = getattr(request.module, "OPTIONS", {})
    with pair_of(tmp_path_factory.mktemp("pair"), **options) as running:
        yield running


@pytest.fixture
def emptied(pair: Pair) -> Iterator[None]:
    """Remove what a test has stored: the next one compares all that there is."""
    yield
    for one in pair.both:
        one.empty()
