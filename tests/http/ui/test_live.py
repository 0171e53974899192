"""Live pages: changes are shown, and broken streams are opened again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fsmq.http.ui.streams import MAX_STREAMS
from tests.harness.suite import Suite, eventually
from tests.http.helpers import Wire

from .asked import Api
from .browser import OpenTab, Tab, needs_chromium

pytestmark = needs_chromium
STREAM = {"Accept": "text/event-stream"}
# How long a change may take to be shown.
SOON_S = 3.0


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    """A suite with one process of mq, which tests kill and whose streams they count."""
    root: Path = tmp_path_factory.mktemp("live") / "mq"
    with Suite(root, mq_options=["--processes=1", "--sync=none"]) as running:
        yield running


@pytest.fixture
def tab(open_tab: OpenTab, alone: Suite) -> Tab:
    return open_tab(alone)


def streams(suite: Suite) -> int:
    """The number of streams in the metrics of mq."""
    text = Api(suite).ask("GET", "/_metrics")[1].decode()
    lines = [line for line in text.splitlines() if line.startswith("fsmq_ui_streams")]
    return sum(int(float(line.rpartition(" ")[2])) for line in lines)


def test_a_new_message_is_shown_and_input_is_kept(tab: Tab, alone: Suite) -> None:
    api = Api(alone)
    api.make("soon")
    tab.open("q/soon")
    tab.wait_until_live()
    tab.page.locator("summary", has_text="Filter").click()
    tab.page.fill("[name=containing]", "what I typed")
    started = time.monotonic()
    message = api.put("soon")
    box = tab.page.locator(f"input[value='{message}']")
    box.wait_for()
    took = time.monotonic() - started
    # An update keeps a checked box and typed text.
    box.check()
    other = api.put("soon")
    tab.page.locator(f"input[value='{other}']").wait_for()
    assert box.is_checked()
    assert tab.page.input_value("[name=containing]") == "what I typed"
    assert took < 10 * SOON_S  # with room for a busy machine; benchmarks measure it


def test_topics_and_schedules_are_live(tab: Tab, alone: Suite) -> None:
    api = Api(alone)
    api.make("reader")
    tab.open("topics")
    tab.wait_until_live()
    api.ask("PUT", "/_topics/gazette")
    tab.page.locator("tbody", has_text="gazette").wait_for()
    tab.open("topics/gazette")
    tab.wait_until_live()
    api.ask("PUT", "/_topics/gazette/queues/reader")
    tab.page.locator("tbody", has_text="reader").wait_for()
    tab.open("schedules")
    tab.wait_until_live()
    defined = json.dumps({"cron": "0 3 * * *", "queue": "reader"}).encode()
    api.ask("PUT", "/_schedules/hourly", defined, Content_Type="application/json")
    tab.page.locator("tbody", has_text="hourly").wait_for()


def test_a_page_waits_for_a_late_script(tab: Tab, alone: Suite) -> None:
    held: list[Any] = []
    tab.page.route("**/hx-sse*", lambda route: held.append(route))
    tab.page.goto(f"{alone.url}/_ui/", wait_until="commit")
    # Polled from here: the content security policy forbids wait_for_function.
    eventually(lambda: tab.page.evaluate("Boolean(window.htmx)"))
    [late] = held
    late.continue_()
    tab.wait_until_live()


def test_a_page_is_live_again_after_a_kill_of_mq(tab: Tab, alone: Suite) -> None:
    api = Api(alone)
    api.make("killed")
    tab.open("q/killed")
    tab.wait_until_live()
    alone.kill("mq")
    tab.page.locator("#mark[data-state=waiting]").wait_for()
    alone.restart("mq")
    message = api.put("killed")
    tab.page.locator(f"input[value='{message}']").wait_for()
    tab.wait_until_live()
    # The console reports broken and refused connections, as expected here.
    expected = ("network error", "Failed to fetch")
    tab.faults = [f for f in tab.faults if not any(text in f for text in expected)]


_HIDE = """hidden => {
    Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
    Object.defineProperty(document, 'visibilityState',
        {value: hidden ? 'hidden' : 'visible', configurable: true});
    document.dispatchEvent(new Event('visibilitychange'));
}"""


def test_a_hidden_tab_closes_its_stream(tab: Tab, alone: Suite) -> None:
    eventually(lambda: streams(alone) == 0)
    tab.open()
    eventually(lambda: streams(alone) == 1)
    tab.page.evaluate(_HIDE, True)
    eventually(lambda: streams(alone) == 0)
    tab.page.evaluate(_HIDE, False)
    eventually(lambda: streams(alone) == 1)


def test_a_tab_opened_in_the_background_opens_no_stream(open_tab: OpenTab, alone: Suite) -> None:
    eventually(lambda: streams(alone) == 0)
    tab = open_tab(alone, own=True)
    tab.page.add_init_script(f"({_HIDE})(true)")
    tab.open()
    tab.wait_until_live()
    eventually(lambda: streams(alone) == 0)
    tab.page.evaluate(_HIDE, False)
    eventually(lambda: streams(alone) == 1)


def test_updates_can_be_stopped(tab: Tab, alone: Suite) -> None:
    tab.open()
    tab.wait_until_live()
    tab.click("Stop updates")
    tab.page.locator("#mark[data-state=stopped]").wait_for()
    eventually(lambda: streams(alone) == 0)
    tab.click("Resume updates")
    tab.wait_until_live()


def test_a_page_beyond_the_limit_of_streams_reconnects(tab: Tab, alone: Suite) -> None:
    eventually(lambda: streams(alone) == 0)
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
    tab.wait_until_live()


def test_a_screen_reader_is_not_told_too_often(tab: Tab, alone: Suite) -> None:
    api = Api(alone)
    api.make("said")
    tab.page.clock.set_fixed_time(time.time())  # announcements are ten seconds apart
    tab.open("q/said")
    tab.page.locator("#said", has_text="0 ready").wait_for(state="attached")
    api.put("said")
    tab.page.locator("td.body").wait_for()
    assert tab.page.locator("#said").text_content() == "0 ready, 0 in flight", "not so soon"


def test_a_missing_mover_is_reported_while_it_lasts(tab: Tab, alone: Suite) -> None:
    tab.open()
    banner = tab.page.locator(".banner", has_text="No mq-mover delivers messages")
    banner.wait_for(state="detached")
    alone.kill("mover")
    for report in (alone.root / "metrics").glob("*mover*"):
        report.unlink()  # instead of waiting until it is too old
    banner.wait_for()
    alone.restart("mover")
    banner.wait_for(state="detached")
