"""Hostile contents are shown as text, and requests of other sites are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fsmq.spool.layout.messages.message import NewMessage
from fsmq.spool.spool import Spool
from tests.harness.rounds import part_of
from tests.harness.suite import Suite, eventually
from tests.http.keyfile import add_key
from tests.http.test_browser import Remembering

from .asked import Api
from .browser import OpenTab, Tab, needs_chromium

pytestmark = needs_chromium
TEXTS = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    "</textarea></code></pre><svg onload=alert(1)>",
    "{{ 7 * 7 }}{% include 'login.html' %}${7*7}",
    "<hx-partial hx-target='body'><img src=http://127.0.0.1:1/x></hx-partial>",
    "<div hx-get='/_ui/' hx-trigger='load' hx-on:click='alert(1)'>",
    "<iframe srcdoc='<script>parent.alert(1)</script>'></iframe>",
    "</title><base href='http://127.0.0.1:1/'><link rel=stylesheet href=http://127.0.0.1:1/s>",
    "javascript:alert(1)",
    "\u202e\u2066moc.elpmaxe\u2069",
    "\x1b[31m\x07&#x3c;script&#x3e;&lt;b&gt;",
    "<!--", "]]>", "`${alert(1)}`", "%3Cscript%3E", "{\"__proto__\": {\"x\": \"<b>\"}}",
)  # fmt: skip
QUEUES = (":@..", "__proto__", "script", "-rf", "constructor", "@", "a..b", "none:null")


def put(spool: Spool, queue: str, text: str) -> str:
    """Put a message with a text in every field that takes any text; its id."""
    plain = "".join(sign for sign in text if sign.isprintable())[:100].strip()
    kind = "".join(sign for sign in text if " " <= sign <= "~").strip() or None
    message = NewMessage(text.encode(), content_type=kind, attributes={"x": plain})
    return str(spool.queue(queue).put_many([message])[0])


def visible(queue: str, message: str, state: str = "ready") -> list[str]:
    name = quote(queue, safe="")
    return [
        f"q/{name}?state={state}",
        f"q/{name}/m/{quote(message, safe='')}",
        f"q/{name}/send?again={quote(message, safe='')}",
    ]


@pytest.fixture
def tab(open_tab: OpenTab, suite: Suite) -> Tab:
    return open_tab(suite)


def test_contents_of_messages_are_shown_as_text(tab: Tab, spool: Spool) -> None:
    spool.create_queue("bodies")
    found = {put(spool, "bodies", text): text for text in TEXTS}
    tab.open("q/bodies")
    tab.wait_until_live()
    for message, text in found.items():
        tab.open(f"q/bodies/m/{message}")
        shown = tab.page.locator("main pre").text_content()
        if text[:1] != "{" and "\x1b" not in text:
            assert shown == text
    for path in visible("bodies", message):
        tab.open(path)
    assert tab.page.locator("main iframe, main script, main base, main img").count() == 0


def test_names_are_shown_as_text(tab: Tab, suite: Suite, spool: Spool) -> None:
    for name in QUEUES:
        spool.create_queue(name)
        message = put(spool, name, name)
        for path in visible(name, message)[1:]:
            tab.open(path)
            assert name in tab.page.title() or path.endswith(message), path
    rows = tab.page.locator("tbody tr")
    api = Api(suite)
    eventually(lambda: api.ask("GET", "/_ui/queues")[1].count(b"<tr id=") >= len(QUEUES))
    eventually(
        lambda: tab.open("queues") and rows.count() >= len(QUEUES)
    )  # another process of mq may answer
    links = {
        name: tab.page.get_by_role("link", name=name, exact=True).evaluate("link => link.href")
        for name in QUEUES
    }
    for name, link in links.items():
        tab.page.goto(link)
        tab.page.locator("h1", has_text=name).wait_for()
        assert name in tab.page.title()


def test_parameters_are_shown_as_text(tab: Tab, spool: Spool) -> None:
    spool.create_queue("asked")
    for number, text in enumerate(TEXTS):
        given = quote(text)
        paths = (
            f"?find={given}", f"?match={given}&sort=name", f"?did={given}&n={given}",
            f"q/asked?containing={given}&after={given}", f"q/{given}", f"q/asked/m/{given}",
            f"topics/{given}", f"login?to={given}",
        )  # fmt: skip
        # One path for each text, in turn: all use the same templates.
        for path in part_of(paths[number % len(paths) :][:1], paths):
            tab.open(path)
        assert tab.page.locator("main iframe, main script, main base, main img").count() == 0


@settings(max_examples=part_of(6, 15), suppress_health_check=list(HealthCheck))
@given(text=st.text(max_size=200), name=st.text(max_size=40))
def test_arbitrary_text_runs_no_script(tab: Tab, spool: Spool, text: str, name: str) -> None:
    spool.create_queue("any")
    body = text.encode("utf-8", "replace").decode()
    message = put(spool, "any", body)
    tab.open(f"q/any/m/{message}")
    tab.open(f"?find={quote(name.encode('utf-8', 'replace'))}")
    assert tab.page.locator("script:not([src])").count() == 0


def test_a_body_is_downloaded_and_not_opened(suite: Suite, spool: Spool) -> None:
    spool.create_queue("files")
    message = put(spool, "files", TEXTS[0])
    headers, body = Api(suite).ask("GET", f"/_ui/q/files/m/{message}/body")
    assert body == TEXTS[0].encode()
    assert headers["Content-Type"] == "application/octet-stream"
    assert headers["Content-Disposition"].startswith("attachment")
    assert "sandbox" in headers["Content-Security-Policy"]


# -- other sites -----------------------------------------------------------------------------------


class Elsewhere(Remembering):
    """A page of another origin."""

    content = ""

    def answer(self, asked: Any) -> Any:
        return 200, {"Content-Type": "text/html"}, self.content.encode()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Suite, str]]:
    folder: Path = tmp_path_factory.mktemp("guarded")
    key = add_key(folder / "keys", "operator", "--admin=*", "--receive=*", "--send=*")
    options = [f"--keys={folder / 'keys'}", "--sync=none"]
    with Suite(folder / "root", mq_options=options) as running:
        yield running, key


def test_another_site_can_only_link_to_pages(open_tab: OpenTab, guarded: tuple[Suite, str]) -> None:
    suite, key = guarded
    Api(suite, key).make("theirs")
    tab = open_tab(suite, own=True)
    tab.open("login")
    tab.page.fill("[name=key]", key)
    tab.page.click("main form button")
    tab.page.locator("h1", has_text="Overview").wait_for()
    ours = f"{suite.url}/_ui/q/theirs"
    with Elsewhere() as site:
        # Cookies ignore ports: the browser sends our cookie, and mq has to refuse.
        site.content = f"""<!doctype html><title>elsewhere</title>
<form id="f" method="post" action="{ours}"><input name="do" value="pause"><button>Go</button></form>
<a href="{ours}">link</a><iframe src="{ours}"></iframe><img src="{ours}">"""
        statuses: dict[str, int] = {}
        tab.page.on(
            "response", lambda one: statuses.__setitem__(one.request.resource_type, one.status)
        )
        tab.page.goto(f"{site.url}/page")
        fetched = "u => fetch(u, {credentials: 'include'}).then(r => 'read', e => 'refused')"
        posted = (
            "u => fetch(u, {method: 'POST', credentials: 'include', mode: 'no-cors',"
            " body: new URLSearchParams({do: 'pause'})}).then(r => r.type, e => 'refused')"
        )
        assert tab.page.evaluate(fetched, ours) == "refused"
        tab.page.evaluate(posted, ours)
        framed = [frame for frame in tab.page.frames if frame.parent_frame]
        assert all("theirs" not in frame.locator("body").inner_text() for frame in framed)
        tab.page.click("#f button")
        tab.page.wait_for_load_state()
        assert Api(suite, key).look("theirs")["settings"]["paused"] is None
        tab.page.goto(f"{site.url}/page")
        tab.page.click("a")
        tab.page.locator("h1", has_text="theirs").wait_for()
    # The attempts of the other site were noted as faults.
    tab.faults.clear()
