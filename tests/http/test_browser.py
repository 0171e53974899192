"""Stored scripts do not run in a browser (Chromium).

Each body tries what it can where it runs: to change the title, to read and to delete at ``mq``, and
to tell another origin, which also serves a page that frames and includes what is stored. Browsers
come through a door that remembers what they ask for.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest

from tests.harness.chromium import CHROMIUM
from tests.harness.suite import Suite, eventually
from tests.http.helpers import Wire

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

RAN = "it ran"
# Headers that mark requests of other sites; old browsers do not send them.
TELLING = {"origin", "referer", "sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest"}
GUARDING = {"content-security-policy", "cross-origin-resource-policy", "x-content-type-options"}
SCRIPT = """
document.title = '{ran}';
fetch('{elsewhere}/ran', {{mode: 'no-cors'}});
fetch('/{queue}', {{method: 'DELETE'}});
fetch('/').then(answer => answer.text()).then(() => fetch('{elsewhere}/read', {{mode: 'no-cors'}}));
"""
HTML = """<!doctype html><title>stored</title>
<link rel="prefetch" href="{elsewhere}/prefetch">
<link rel="stylesheet" href="{elsewhere}/style">
<script src="{elsewhere}/script"></script>
<script>{script}</script>
<body onload="{script}">
<img src="{elsewhere}/image"><iframe src="{elsewhere}/frame"></iframe>
"""
SVG = """<svg xmlns="http://www.w3.org/2000/svg" onload="{script}">
<script>{script}</script><image href="{elsewhere}/image"/></svg>"""
XML = """<x:html xmlns:x="http://www.w3.org/1999/xhtml"><x:body onload="{script}">
<x:script>{script}</x:script><x:img src="{elsewhere}/image"/></x:body></x:html>"""
# The last is a script with another content type, in case a browser sniffs it.
BODIES = {
    "text/html": HTML,
    "image/svg+xml": SVG,
    "application/xml": XML,
    "text/javascript": "{script}",
    "text/plain": "{script}",
}
RUNNING = ("text/html", "image/svg+xml", "application/xml")
# Ways to embed another address in a page.
TAKEN_IN = """<iframe src="{url}"></iframe><script src="{url}"></script>
<link rel="stylesheet" href="{url}"><img src="{url}">
"""


class Asked(NamedTuple):
    """A request to a server, and the status of its answer."""

    method: str
    path: str
    status: int


class Remembering(ThreadingHTTPServer):
    """A server that records its requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[Asked] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Remembering:
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *of: Any) -> None:
        self.shutdown()
        self.server_close()

    def answer(self, asked: _Handler) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body."""
        raise NotImplementedError


class Elsewhere(Remembering):
    """Another origin with one page, which embeds other addresses."""

    takes_in: Iterable[str] = ()

    def answer(self, asked: _Handler) -> tuple[int, Mapping[str, str], bytes]:
        if asked.path != "/page":
            return 404, {}, b""
        page = "".join(TAKEN_IN.format(url=url) for url in self.takes_in)
        page = f"<!doctype html><title>elsewhere</title>{page}"
        return 200, {"Content-Type": "text/html"}, page.encode()


class Door(Remembering):
    """A proxy of mq that can drop some headers of both sides."""

    def __init__(self, port: int, without: Collection[str] = ()) -> None:
        super().__init__()
        self._port = port
        self._without = without

    def answer(self, asked: _Handler) -> tuple[int, Mapping[str, str], bytes]:
        behind = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
        behind.request(asked.command, asked.path, headers=self._kept(asked.headers))
        answer = behind.getresponse()
        body = answer.read()
        behind.close()
        return answer.status, self._kept(answer.headers), body

    def _kept(self, headers: Mapping[str, str]) -> dict[str, str]:
        ours = {*self._without, "connection", "content-length", "transfer-encoding"}
        return {name: value for name, value in headers.items() if name.lower() not in ours}


class _Handler(BaseHTTPRequestHandler):
    server: Remembering

    def do_GET(self) -> None:
        status, headers, body = self.server.answer(self)
        if self.path != "/favicon.ico":  # which the browser asks for by itself
            self.server.asked.append(Asked(self.command, self.path, status))
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_DELETE = do_GET  # noqa: N815  # the library's

    def log_message(self, *of: Any) -> None:
        pass


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    """The one page of a browser, for all tests."""
    # Chromium's sandbox does not work for root; tests open their own pages only.
    options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=options)
        yield running.new_page()
        running.close()


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    with Elsewhere() as server:
        yield server


class Stored:
    """The bodies in a queue, by their types."""

    def __init__(self, suite: Suite, queue: str, elsewhere: str) -> None:
        self._suite = suite
        self.queue = queue
        script = SCRIPT.format(ran=RAN, elsewhere=elsewhere, queue=queue)
        self.paths = {}
        with Wire(suite.url) as wire:
            wire.ask("PUT", f"/{queue}")
            for kind, body in BODIES.items():
                text = body.format(script=script, elsewhere=elsewhere).encode()
                target = f"/{queue}/messages"
                answer = wire.ask("POST", target, {"Content-Type": kind}, text)
                self.paths[kind] = f"{target}/{answer.id}"

    def are_there(self) -> bool:
        with Wire(self._suite.url) as wire:
            return all(wire.ask("GET", path).status == 200 for path in self.paths.values())


@pytest.fixture
def stored(suite: Suite, queue: str, elsewhere: Elsewhere) -> Stored:
    return Stored(suite, queue, elsewhere.url)


# A present browser, and one without those headers, where only the answer's headers help.
browsers = pytest.mark.parametrize("untold", [frozenset(), TELLING], ids=["new", "old"])


def visit(page: Any, url: str) -> tuple[str, set[str]]:
    """Open a page: its title when it is loaded, and the requests that were not blocked.

    A script that stands in the page has run by then, or never will.
    """
    requests: list[Any] = []

    def remember(request: Any) -> None:
        requests.append(request)

    page.on("request", remember)
    page.goto(url)
    page.remove_listener("request", remember)
    return page.title(), {one.url for one in requests if one.failure != "csp"}


@browsers
def test_a_stored_script_does_not_run_when_opened(
    page: Any, suite: Suite, elsewhere: Elsewhere, stored: Stored, untold: Collection[str]
) -> None:
    with Door(suite.port, untold) as door:
        for path in stored.paths.values():
            title, requests = visit(page, door.url + path)
            assert title != RAN
            assert requests == {door.url + path}
    assert door.asked == [("GET", path, 200) for path in stored.paths.values()]
    assert elsewhere.asked == []
    assert stored.are_there()


@browsers
def test_a_stored_script_does_not_run_when_embedded(
    page: Any, suite: Suite, elsewhere: Elsewhere, stored: Stored, untold: Collection[str]
) -> None:
    paths = list(stored.paths.values())
    with Door(suite.port, untold) as door:
        elsewhere.takes_in = [door.url + path for path in paths]
        title, requests = visit(page, f"{elsewhere.url}/page")
        assert title == "elsewhere"
        assert requests == {f"{elsewhere.url}/page", *elsewhere.takes_in}
    assert set(door.asked) == {("GET", path, 200 if untold else 403) for path in paths}
    assert elsewhere.asked == [("GET", "/page", 200)]
    assert stored.are_there()


def test_without_the_headers_the_script_runs(
    page: Any, suite: Suite, elsewhere: Elsewhere, queue: str
) -> None:
    with Door(suite.port, TELLING | GUARDING) as door:
        for kind in RUNNING:
            del door.asked[:], elsewhere.asked[:]
            # One message for each page: a DELETE of an earlier one can still be on its way.
            own = f"{queue}.{kind.replace('/', '.').replace('+', '.')}"
            page.goto(door.url + Stored(suite, own, elsewhere.url).paths[kind])
            eventually(lambda: {"/ran", "/read", "/image"} <= {one.path for one in elsewhere.asked})
            eventually(lambda path=f"/{own}": ("DELETE", path) in [one[:2] for one in door.asked])
        elsewhere.takes_in = [door.url + Stored(suite, queue, elsewhere.url).paths["text/plain"]]
        page.goto(f"{elsewhere.url}/page")
        assert page.title() == RAN
