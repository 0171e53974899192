"""Fixtures of the tests of pages: one browser for each file of them.

As long as it runs there is an event loop in this thread, which others could not bear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.harness.suite import Suite

from .browser import Tab, chromium, window


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The browser; it takes a second to start."""
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def windows(browser: Any) -> dict[str, Any]:
    """Windows that are open, by their options: a new one would load and parse all files again."""
    return {}


@pytest.fixture
def open_tab(browser: Any, windows: dict[str, Any]) -> Iterator[Callable[..., Tab]]:
    """Opens tabs, all of which are closed and asked for faults in the end.

    own: whether in a window of its own, with no cookies of others.
    """
    tabs: list[Tab] = []
    owned: list[Any] = []

    def open_one(suite: Suite, *, own: bool = False, **options: Any) -> Tab:
        if own:
            owned.append(window(browser, **options))
            tabs.append(Tab(owned[-1], suite.url))
            return tabs[-1]
        kind = repr(sorted(options.items()))
        if kind not in windows:
            windows[kind] = window(browser, **options)
        tabs.append(Tab(windows[kind], suite.url))
        return tabs[-1]

    yield open_one
    for tab in tabs:
        tab.close()
    for one in owned:
        one.close()
