"""A real Chromium for the tests of pages, which notes everything that a page must not do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import pytest

from tests.harness.chromium import CHROMIUM

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
# Chromium's own sandbox does not work for root; no test opens what is not its own.
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--font-render-hinting=none"]
# Without them each visit of an empty page starts a process.
OPTIONS += ["--process-per-site", "--disable-site-isolation-trials"]
PATIENCE_MS = 120_000  # enough for a busy machine


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser."""
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield running
        running.close()


def window(browser: Any, **options: Any) -> Any:
    """A window with its own cookies and cache."""
    opened = browser.new_context(**{"reduced_motion": "reduce", **options})
    opened.set_default_timeout(PATIENCE_MS)
    return opened


class Tab:
    """A tab that notes faults of its pages.

    faults: dialogs of scripts, errors of scripts and on the console (also reports of the content
    security policy), and requests to other hosts than that of ``url``.
    """

    def __init__(self, page: Any, url: str) -> None:
        self.url = url
        self.page = page
        self.faults: list[str] = []
        self._noted = {
            "dialog": self._dialog,
            "pageerror": self._error,
            "console": self._console,
            "request": self._request,
        }
        for event, note in self._noted.items():
            page.on(event, note)

    def open(self, path: str = "") -> Any:
        """Open a page; the answer."""
        return self.page.goto(f"{self.url}/_ui/{path}", wait_until="domcontentloaded")

    def click(self, name: str, **options: Any) -> None:
        """Click the button, or the link, of this name."""
        button = self.page.get_by_role("button", name=name, exact=True, **options)
        button.or_(self.page.get_by_role("link", name=name, exact=True, **options)).first.click()

    def sees(self, text: str) -> None:
        """Wait for a text."""
        self.page.get_by_text(text).first.wait_for()

    def leave(self) -> Any:
        """Leave the page and fail if a fault was noted; the empty tab."""
        self.page.unroute_all()
        self.page.goto("about:blank")
        for event, note in self._noted.items():
            self.page.remove_listener(event, note)
        assert not self.faults, "\n".join(self.faults)
        return self.page

    def wait_until_live(self) -> None:
        """Wait until the page receives updates."""
        self.page.locator("#mark[data-state=live]").wait_for()

    def _error(self, error: Any) -> None:
        self.faults.append(f"error: {error}")

    def _dialog(self, dialog: Any) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _console(self, message: Any) -> None:
        # Chromium also logs each answer with an error status, which a test may ask for.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.faults.append(f"console: {message.text}")

    def _request(self, request: Any) -> None:
        if request.url.startswith(("data:", "blob:")):
            return
        if urlsplit(request.url).netloc != urlsplit(self.url).netloc:
            self.faults.append(f"request: {request.url}")


OpenTab: TypeAlias = Callable[..., Tab]
