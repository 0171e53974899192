"""A real Chromium for the tests of pages, which notes whatever a page should not do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.harness.chromium import CHROMIUM

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
# Chromium's own sandbox does not work for root; no test opens what is not its own.
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--font-render-hinting=none"]
# Else each way to an empty page and back begins a process.
OPTIONS += ["--process-per-site", "--disable-site-isolation-trials"]
PATIENCE_MS = 120_000  # also beside much other work


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser."""
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield running
        running.close()


def window(browser: Any, **options: Any) -> Any:
    """A window whose cookies and files are its own."""
    opened = browser.new_context(**{"reduced_motion": "reduce", **options})
    opened.set_default_timeout(PATIENCE_MS)
    return opened


class Tab:
    """A tab, and what its pages did that none should do.

    faults: dialogs of scripts, errors on the console (where reports of the policy are, too), errors
    of scripts, and requests to another host than ``url``'s.
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
        """Open a page of ours; the answer."""
        return self.page.goto(f"{self.url}/_ui/{path}", wait_until="domcontentloaded")

    def click(self, name: str, **options: Any) -> None:
        """Click the button, or the link, of this name."""
        button = self.page.get_by_role("button", name=name, exact=True, **options)
        button.or_(self.page.get_by_role("link", name=name, exact=True, **options)).first.click()

    def sees(self, text: str) -> None:
        """Wait for a text."""
        self.page.get_by_text(text).first.wait_for()

    def leave(self) -> Any:
        """Leave its pages; the empty tab. A fault fails the test."""
        self.page.unroute_all()
        self.page.goto("about:blank")
        for event, note in self._noted.items():
            self.page.remove_listener(event, note)
        assert not self.faults, "\n".join(self.faults)
        return self.page

    def _error(self, error: Any) -> None:
        self.faults.append(f"error: {error}")

    def _dialog(self, dialog: Any) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _console(self, message: Any) -> None:
        # A browser notes there each answer that is an error, which may be what a test asks for.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.faults.append(f"console: {message.text}")

    def _request(self, request: Any) -> None:
        if request.url.startswith(("data:", "blob:")):
            return
        if urlsplit(request.url).netloc != urlsplit(self.url).netloc:
            self.faults.append(f"request: {request.url}")
