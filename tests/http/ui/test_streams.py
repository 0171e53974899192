"""Streams: one rendering for all viewers, sent only when it has changed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fsmq.http.guard.access import Identity
from fsmq.http.guard.keys import Grants
from fsmq.http.ui import streams
from fsmq.http.ui.streams import Live, Streams, Viewer
from fsmq.spool.errors import NoSuchQueue
from fsmq.spool.layout.duty_cycle import DutyCycle
from tests.harness.suite import Suite
from tests.http.helpers import Wire

PATIENCE_S = 30.0


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_THROTTLE", DutyCycle(1.0, least_s=0.001))


class Page:
    """A page that counts its renderings. text: its contents, without which it fails."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.number = 0

    async def __call__(self) -> str:
        self.number += 1
        if not self.text:
            raise NoSuchQueue("jobs")
        return self.text.replace("NOW", str(self.number))

    async def again(self) -> None:
        """Wait until its current text has been rendered."""
        after = self.number + 2
        async with asyncio.timeout(PATIENCE_S):
            while self.number < after:
                await asyncio.sleep(0.001)


def viewer() -> tuple[Viewer, Any]:
    """A viewer, and its request."""
    request = SimpleNamespace(
        identity=Identity("someone", None),
        call=SimpleNamespace(is_gone=False),
        service=SimpleNamespace(stopping=False),
    )
    return Viewer(cast(Any, request)), request


async def begun(page: Page) -> Live:
    live = Live(page, asyncio.Event(), {})
    await live.first()
    return live


async def test_changed_ages_alone_send_no_event() -> None:
    page = Page('<td><span data-since="1795277400.0">NOW s</span></td><td>1</td>')
    live = await begun(page)
    first = live.event
    watching, _ = viewer()
    live.viewers.add(watching)
    await page.again()
    assert live.event is first
    assert not watching.awake.is_set()
    page.text = page.text.replace("<td>1<", "<td>2<")
    await page.again()
    assert b"<td>2<" in live.event
    assert watching.awake.is_set()
    live.close()


async def test_escaped_markup_is_not_taken_for_an_age() -> None:
    page = Page("&lt;span data-since=&#34;1.0&#34;&gt;NOW")
    live = await begun(page)
    first = live.event
    await page.again()
    assert live.event != first
    live.close()


async def test_a_name_that_is_no_text_is_shown_as_such() -> None:
    live = await begun(Page("<td>\udcff</td>"))
    assert live.event == b"data: <td>?</td>\n\n"
    live.close()


@pytest.mark.parametrize("end", ["key", "connection", "stop"])
async def test_a_viewer_who_left_is_woken(end: str) -> None:
    page = Page("the same")
    live = await begun(page)
    watching, request = viewer()
    live.viewers.add(watching)
    await page.again()
    assert not watching.awake.is_set()
    match end:
        case "key":
            request.identity.stale = True
        case "connection":
            request.call.is_gone = True
        case "stop":
            request.service.stopping = True
    async with asyncio.timeout(PATIENCE_S):
        await watching.awake.wait()
    assert watching.is_over
    live.close()


async def test_streams_end_when_their_page_fails() -> None:
    page = Page("there")
    live = await begun(page)
    watching, _ = viewer()
    live.viewers.add(watching)
    page.text = ""
    async with asyncio.timeout(PATIENCE_S):
        await watching.awake.wait()
    assert live.is_over


async def test_a_page_that_fails_at_first_raises_its_error() -> None:
    with pytest.raises(NoSuchQueue):
        await begun(Page(""))


def test_a_key_is_forgotten_when_its_last_page_closes() -> None:
    opened = Streams()
    metrics = SimpleNamespace(set=lambda *_: None)
    request: Any = SimpleNamespace(
        identity=Identity("someone", Grants()),
        spool=SimpleNamespace(context=SimpleNamespace(metrics=metrics)),
    )
    with opened._counted(request), opened._counted(request):
        assert opened._open == {"someone": 2}
    assert list(opened._open) == []


async def test_the_cost_of_a_page_is_forgotten_when_it_closes() -> None:
    costs: dict[Live, float] = {}
    pages = [Live(Page("one"), asyncio.Event(), costs), Live(Page("two"), asyncio.Event(), costs)]
    for live in pages:
        await live.first()
    assert set(costs) == set(pages)
    for live in pages:
        live.close()
    async with asyncio.timeout(PATIENCE_S):
        while costs:
            await asyncio.sleep(0.001)


def test_a_viewer_who_leaves_does_not_end_the_page_of_others(tmp_path: Path) -> None:
    """Not even the first one, for whose request the page was rendered."""
    suite = Suite(tmp_path / "mq", mq_options=["--sync=none"], mover=False, reaper=False)
    with suite, Wire(suite.url) as first, Wire(suite.url) as second:
        with Wire(suite.url) as asking:
            assert asking.ask("PUT", "/q").status == 201
            for viewer in (first, second):
                viewer.request("GET", "/_ui/q/q", {"Accept": "text/event-stream"})
                assert viewer.answer(head=True).status == 200
            first.close()
            assert asking.ask("POST", "/q/messages", {}, b"what came since").status == 201
        seen = b""
        while b"what came since" not in seen:
            more = second.socket.recv(65_536)
            assert more, suite.logs("mq")
            seen += more
        assert not [one for one in suite.logs("mq") if one.get("level") == "error"]
