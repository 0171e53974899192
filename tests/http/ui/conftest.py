"""Fixtures of the tests of pages: one browser for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.harness.suite import Suite

from .browser import Tab, chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The browser; it takes a second to start."""
    with chromium() as running:
        yield running


@pytest.fixture
def open_tab(browser: Any) -> Iterator[Callable[..., Tab]]:
    """Opens windows, all of which are closed and asked for faults in the end."""
    tabs: list[Tab] = []

    def open_one(suite: Suite, **options: Any) -> Tab:
        tabs.append(Tab(browser, suite.url, **options))
        return tabs[-1]

    yield open_one
    for tab in tabs:
        tab.close()
