"""Fixtures of the tests of pages: one browser for each test file.

While it runs, this thread has an event loop, which tests of other files could not use.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from fsmq.spool import Spool
from tests.harness.suite import Suite

from .asked import Api
from .browser import Tab, chromium, window


@pytest.fixture
def api(suite: Suite) -> Api:
    """The API of the module's suite."""
    return Api(suite)


@pytest.fixture(scope="module")
def spool(suite: Suite) -> Iterator[Spool]:
    """The spool of the suite, for setups that would take long over the API."""
    with Spool(suite.root, sync="none") as opened:
        yield opened


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser, shared because it takes a second to start."""
    with chromium() as running:
        yield running


class Tabs:
    """Tabs by the options of their windows; empty tabs are used again.

    A new window loads all files again and a new tab starts processes, which takes a second each.
    """

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self._windows: dict[str, Any] = {}
        self._empty: dict[str, list[Any]] = defaultdict(list)

    def take(self, options: dict[str, Any]) -> Any:
        """An empty tab."""
        kind = repr(sorted(options.items()))
        if self._empty[kind]:
            return self._empty[kind].pop()
        if kind not in self._windows:
            self._windows[kind] = window(self._browser, **options)
        return self._windows[kind].new_page()

    def give_back(self, options: dict[str, Any], tab: Any) -> None:
        self._empty[repr(sorted(options.items()))].append(tab)


@pytest.fixture(scope="module")
def tabs(browser: Any) -> Tabs:
    return Tabs(browser)


@pytest.fixture
def open_tab(browser: Any, tabs: Tabs) -> Iterator[Callable[..., Tab]]:
    """Opens tabs; at the end they are left, and their faults fail the test.

    own: in a window of its own, without cookies of other tests.
    """
    with ExitStack() as at_end:

        def open_one(suite: Suite, *, own: bool = False, **options: Any) -> Tab:
            if own:
                new = window(browser, **options)
                at_end.callback(new.close)
                tab = Tab(new.new_page(), suite.url)
                at_end.callback(tab.leave)
            else:
                tab = Tab(tabs.take(options), suite.url)
                at_end.callback(lambda: tabs.give_back(options, tab.leave()))
            return tab

        yield open_one
