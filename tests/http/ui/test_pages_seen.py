"""Every page is accessible, fits narrow screens, and is small."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from fsmq.spool.spool import Spool
from tests.harness.rounds import part_of
from tests.harness.suite import HOME, Suite, eventually

from .asked import Api
from .browser import OpenTab, Tab, needs_chromium
from .filled import fill, pages

pytestmark = needs_chromium
AXE = HOME / "tests/http/ui/vendor/axe.min.js"
RULES = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    "resultTypes": ["violations"],
}
# The color schemes differ only in colors: the other rules need to run once.
COLOR_RULES = {
    **RULES,
    "runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]},
}
SCHEMES = {"light": RULES, "dark": part_of(COLOR_RULES, RULES)}


class Filled(NamedTuple):
    """A suite with data on each page."""

    suite: Suite
    pages: dict[str, str]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    root: Path = tmp_path_factory.mktemp("seen") / "orders"
    with Suite(root, mq_options=["--sync=none", "--processes=1"]) as suite:
        api = Api(suite)
        with Spool(root, sync="none") as spool:
            message = fill(spool, api)
        eventually(lambda: b"jobs.dead" in api.ask("GET", "/_ui/queues")[1])
        yield Filled(suite, pages(message))


@pytest.fixture
def tab(open_tab: OpenTab, filled: Filled) -> Tab:
    return open_tab(filled.suite)


def test_every_page_is_accessible(tab: Tab, filled: Filled) -> None:
    script = AXE.read_text()
    found = {}
    for name, path in filled.pages.items():
        tab.open(path)
        tab.page.evaluate(script)
        for scheme, rules in SCHEMES.items():
            tab.page.emulate_media(color_scheme=scheme)
            result = tab.page.evaluate("rules => axe.run(document, rules)", rules)
            wrong = {
                one["id"]: [node["target"] for node in one["nodes"]] for one in result["violations"]
            }
            if wrong:
                found[name, scheme] = wrong
    assert found == {}, "\n".join(f"{where}: {json.dumps(what)}" for where, what in found.items())


def test_a_dialog_is_accessible(tab: Tab) -> None:
    tab.open("q/jobs/settings")
    tab.click("Purge")
    tab.page.locator("dialog #question").wait_for()
    tab.page.evaluate(AXE.read_text())
    result = tab.page.evaluate("rules => axe.run(document, rules)", RULES)
    assert [one["id"] for one in result["violations"]] == []


def test_no_page_is_wider_than_the_screen(tab: Tab, filled: Filled) -> None:
    """A screen of 1280 pixels has 320 at a zoom of 400 %."""
    sizes = [{"width": width, "height": 800} for width in (320, 390, 1280)]
    for name, path in filled.pages.items():
        # The narrowest first: charts shrink a moment after their page.
        tab.page.set_viewport_size(sizes[0])
        tab.open(path)
        for size in sizes:
            tab.page.set_viewport_size(size)
            shown = tab.page.evaluate("document.documentElement.scrollWidth")
            assert shown <= size["width"], (name, size)


def test_columns_keep_their_places_when_numbers_grow(tab: Tab, filled: Filled) -> None:
    places = "[...document.querySelectorAll('.queues thead th')].map(c => c.offsetLeft)"
    tab.open("queues")
    tab.page.wait_for_load_state("load")  # with its styles
    tab.page.locator("tr", has_text="reports").wait_for()
    before = tab.page.evaluate(places)
    api = Api(filled.suite)
    with Spool(filled.suite.root, sync="none") as spool:
        spool.queue("reports").put_many([b"x"] * 2000)
    tab.page.locator("tr", has_text="reports").get_by_text("2\u202f000").wait_for()
    assert tab.page.evaluate(places) == before
    api.ask("DELETE", "/reports")


def test_a_page_of_a_hundred_queues_has_at_most_60_kilobytes(filled: Filled) -> None:
    api = Api(filled.suite)
    with Spool(filled.suite.root, sync="none") as spool:
        for number in range(100):
            spool.create_queue(f"tenant-{number:04}.orders.incoming")
            spool.queue(f"tenant-{number:04}.orders.incoming").put(b"x")

    def rows() -> bytes:
        page = api.ask("GET", "/_ui/queues?match=tenant-&sort=name")[1]
        return page if page.count(b"<tr id=") == 100 else b""

    assert len(eventually(rows)) <= 60_000
    for number in range(100):
        api.ask("DELETE", f"/tenant-{number:04}.orders.incoming")


def test_the_slash_key_moves_the_focus_to_the_search(tab: Tab) -> None:
    tab.open("topics")
    tab.page.keyboard.press("/")
    assert tab.page.evaluate("document.activeElement.id") == "find"
    tab.page.keyboard.type("jobs/")
    assert tab.page.input_value("#find") == "jobs/"
    tab.page.fill("#find", "jobs")
    tab.page.keyboard.press("Enter")
    tab.page.locator("h1", has_text="jobs").wait_for()


def test_the_theme_is_kept(open_tab: OpenTab, filled: Filled) -> None:
    tab = open_tab(filled.suite, own=True, color_scheme="light")
    tab.open()
    tab.page.click("#theme")
    tab.open("topics")
    assert tab.page.evaluate("document.documentElement.dataset.theme") == "dark"
