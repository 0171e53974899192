"""Pages that are live: what happens shows, and what goes wrong mends itself."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fsmq.http.ui.streams import MAX_STREAMS
from tests.harness.suite import Suite, eventually
from tests.http.helpers import Wire

from .asked import Api
from .browser import Tab, needs_chromium

pytestmark = needs_chromium
OpenTab = Callable[..., Tab]
STREAM = {"Accept": "text/event-stream"}
# How long what happens may take to be seen.
SOON_S = 3.0


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    """A suite whose one process may be killed, and has all streams."""
    root: Path = tmp_path_factory.mktemp("live") / "mq"
    with Suite(root, mq_options=["--processes=1", "--sync=none"]) as running:
        yield running


def is_live(tab: Tab) -> None:
    tab.page.locator("#mark[data-state=live]").wait_for()


def streams(suite: Suite) -> int:
    """How many streams mq has, as its metrics say."""
    text = Api(suite).ask("GET", "/_metrics")[1].decode()
    lines = [line for line in text.splitlines() if line.startswith("fsmq_ui_streams")]
    return sum(int(float(line.rpartition(" ")[2])) for line in lines)


def test_what_is_put_shows_soon(open_tab: OpenTab, alone: Suite) -> None:
    api = Api(alone)
    api.make("soon")
    tab = open_tab(alone)
    tab.open("q/soon")
    is_live(tab)
    tab.page.locator("summary", has_text="Filter").click()
    tab.page.fill("[name=containing]", "what I typed")
    started = time.monotonic()
    message = api.put("soon")
    box = tab.page.locator(f"input[value='{message}']")
    box.wait_for()
    took = time.monotonic() - started
    # The mark of one who is in the middle of something stays where it was.
    box.check()
    other = api.put("soon")
    tab.page.locator(f"input[value='{other}']").wait_for()
    assert box.is_checked()
    assert tab.page.input_value("[name=containing]") == "what I typed"
    assert took < 10 * SOON_S  # on a machine that is busy otherwise; see the benchmarks


def test_topics_and_schedules_are_live(open_tab: OpenTab, alone: Suite) -> None:
    api = Api(alone)
    api.make("reader")
    tab = open_tab(alone)
    tab.open("topics")
    is_live(tab)
    api.ask("PUT", "/_topics/gazette")
    tab.page.locator("tbody", has_text="gazette").wait_for()
    tab.open("topics/gazette")
    is_live(tab)
    api.ask("PUT", "/_topics/gazette/queues/reader")
    tab.page.locator("tbody", has_text="reader").wait_for()
    tab.open("schedules")
    is_live(tab)
    defined = json.dumps({"cron": "0 3 * * *", "queue": "reader"}).encode()
    api.ask("PUT", "/_schedules/hourly", defined, Content_Type="application/json")
    tab.page.locator("tbody", has_text="hourly").wait_for()


def test_a_script_that_comes_late_is_waited_for(open_tab: OpenTab, alone: Suite) -> None:
    tab = open_tab(alone)
    held: list[Any] = []
    tab.page.route("**/hx-sse*", lambda route: held.append(route))
    tab.page.goto(f"{alone.url}/_ui/", wait_until="commit")
    # Asked again and again from here: our pages let no script evaluate a text.
    eventually(lambda: tab.page.evaluate("Boolean(window.htmx)"))
    [late] = held
    late.continue_()
    is_live(tab)


def test_after_a_kill_of_mq_it_is_live_again(open_tab: OpenTab, alone: Suite) -> None:
    api = Api(alone)
    api.make("killed")
    tab = open_tab(alone)
    tab.open("q/killed")
    is_live(tab)
    alone.kill("mq")
    tab.page.locator("#mark[data-state=waiting]").wait_for()
    alone.restart("mq")
    message = api.put("killed")
    tab.page.locator(f"input[value='{message}']").wait_for()
    is_live(tab)
    # A connection that broke is told on the console, and rightly; so is one that nobody takes.
    expected = ("network error", "Failed to fetch")
    tab.faults = [f for f in tab.faults if not any(told in f for told in expected)]


_HIDE = """hidden => {
    Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
    Object.defineProperty(document, 'visibilityState',
        {value: hidden ? 'hidden' : 'visible', configurable: true});
    document.dispatchEvent(new Event('visibilitychange'));
}"""


def test_a_tab_that_nobody_sees_holds_no_stream(open_tab: OpenTab, alone: Suite) -> None:
    eventually(lambda: streams(alone) == 0)
    tab = open_tab(alone)
    tab.open()
    eventually(lambda: streams(alone) == 1)
    tab.page.evaluate(_HIDE, True)
    eventually(lambda: streams(alone) == 0)
    tab.page.evaluate(_HIDE, False)
    eventually(lambda: streams(alone) == 1)


def test_a_tab_that_is_opened_behind_another_holds_none(open_tab: OpenTab, alone: Suite) -> None:
    eventually(lambda: streams(alone) == 0)
    tab = open_tab(alone, own=True)
    tab.page.add_init_script(f"({_HIDE})(true)")
    tab.open()
    is_live(tab)
    eventually(lambda: streams(alone) == 0)
    tab.page.evaluate(_HIDE, False)
    eventually(lambda: streams(alone) == 1)


def test_updates_can_be_stopped(open_tab: OpenTab, alone: Suite) -> None:
    tab = open_tab(alone)
    tab.open()
    is_live(tab)
    tab.click("Stop updates")
    tab.page.locator("#mark[data-state=stopped]").wait_for()
    eventually(lambda: streams(alone) == 0)
    tab.click("Resume updates")
    is_live(tab)


def test_one_more_than_there_may_be_looks_again(open_tab: OpenTab, alone: Suite) -> None:
    eventually(lambda: streams(alone) == 0)
    tab = open_tab(alone)
    with ExitStack() as stack:
        for _ in range(MAX_STREAMS):
            wire = stack.enter_context(Wire(alone.url))
            wire.request("GET", "/_ui/", STREAM)
        eventually(lambda: streams(alone) == MAX_STREAMS)
        last = stack.enter_context(Wire(alone.url))
        answer = last.ask("GET", "/_ui/", STREAM)
        assert answer.status in (429, 503)
        assert int(answer.headers["Retry-After"]) > 0
        tab.open()
        tab.page.locator("#mark[data-state=waiting]", has_text="reconnecting").wait_for()
    is_live(tab)


def test_what_matters_is_said(open_tab: OpenTab, alone: Suite) -> None:
    api = Api(alone)
    api.make("said")
    tab = open_tab(alone)
    tab.page.clock.set_fixed_time(time.time())  # no ten seconds go by, however long it takes
    tab.open("q/said")
    tab.page.locator("#said", has_text="0 ready").wait_for(state="attached")
    api.put("said")
    tab.page.locator("td.body").wait_for()
    assert tab.page.locator("#said").text_content() == "0 ready, 0 in flight", "not so soon"


def test_a_page_says_what_is_wrong(open_tab: OpenTab, alone: Suite) -> None:
    tab = open_tab(alone)
    tab.open()
    banner = tab.page.locator(".banner", has_text="No mq-mover delivers messages")
    banner.wait_for(state="detached")
    alone.kill("mover")
    for report in (alone.root / "metrics").glob("*mover*"):
        report.unlink()  # in twenty seconds it would be too old
    banner.wait_for()
    alone.restart("mover")
    banner.wait_for(state="detached")
