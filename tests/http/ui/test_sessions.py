"""Sessions of pages: logins by key, cookies, and requests of other sites."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

import pytest

from fsmq.http.guard.keys import hash_line, new_token
from tests.harness.suite import Suite, eventually
from tests.http.keyfile import add_key, bearer

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
NAVIGATION = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    text: str

    @property
    def cookie(self) -> str:
        """The cookie as a browser sends it back."""
        return str(self.headers["Set-Cookie"]).partition(";")[0]


class Site:
    """A suite with keys, and requests to it."""

    def __init__(self, suite: Suite, file: Path, keys: dict[str, str]) -> None:
        self.suite, self.file, self.keys = suite, file, keys

    @property
    def origin(self) -> str:
        return self.suite.url

    def ask(
        self, method: str, path: str, headers: dict[str, str] | None = None, body: str = ""
    ) -> Answer:
        host, port = self.origin.removeprefix("http://").split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        connection.request(method, path, body or None, headers or {})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return Answer(answer.status, answer.headers, text)

    def log_in(self, key: str, **more: str) -> Answer:
        form = urlencode({"key": key, **more})
        return self.ask("POST", "/_ui/login", {**FORM, "Origin": self.origin}, form)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    file = folder / "keys.toml"
    keys = {
        "operator": add_key(file, "operator", "--admin=*", "--receive=*", "--send=*"),
        "looker": add_key(file, "looker", "--look=jobs"),
    }
    with Suite(folder / "root", mq_options=[f"--keys={file}", "--sync=none"]) as suite:
        site = Site(suite, file, keys)
        for queue in ("jobs", "secret"):
            site.ask("PUT", f"/{queue}", bearer(keys["operator"]))
        yield site


def test_without_a_key_pages_redirect_to_the_login(site: Site) -> None:
    for path in ("/_ui/", "/_ui/q/jobs", "/_ui/q/jobs/m/1"):
        answer = site.ask("GET", path)
        assert answer.status == 303
        assert answer.headers["Location"].partition("?")[0].endswith("login")
        assert "jobs" not in answer.text
    assert site.ask("GET", "/_ui/login").status == 200


def test_a_session_shows_what_its_key_may_see(site: Site) -> None:
    answer = site.log_in(site.keys["looker"], to="/_ui/q/jobs?state=new")
    assert answer.status == 303
    assert answer.headers["Location"] == "./q/jobs?state=new"
    flags = {flag.strip() for flag in answer.headers["Set-Cookie"].split(";")[1:]}
    assert {"HttpOnly", "SameSite=Lax"} <= flags
    assert not any(flag.startswith("Path") for flag in flags), "it would go to the API as well"

    def page() -> str:
        return site.ask("GET", "/_ui/queues", {"Cookie": answer.cookie}).text

    eventually(lambda: "q/jobs" in page())  # counts are some seconds old
    assert "secret" not in page()
    refused = site.ask("GET", "/_ui/q/secret", {"Cookie": answer.cookie})
    assert refused.status == 403
    assert "looker" in refused.text


@pytest.mark.parametrize(
    "to",
    [
        "//elsewhere/", "/\\elsewhere", "https://elsewhere/", "/jobs", "/_ui/../jobs",
        "/_ui/%2e%2e/jobs/messages", "/_ui/q/.%2E/../jobs", "/_ui/%2E%2e", "/_ui/..#x",
    ],
)  # fmt: skip
def test_a_login_redirects_only_to_pages(site: Site, to: str) -> None:
    assert site.log_in(site.keys["looker"], to=to).headers["Location"] == "./"


def test_an_unknown_key_is_refused_after_a_delay(site: Site) -> None:
    started = time.monotonic()
    answer = site.log_in("fsmq_" + "x" * 40)
    assert time.monotonic() - started > 0.4
    assert answer.status == 401
    assert "unknown key" in answer.text
    assert "Set-Cookie" not in answer.headers


def test_the_api_ignores_cookies_and_pages_accept_a_key(site: Site) -> None:
    cookie = site.log_in(site.keys["operator"]).cookie
    assert site.ask("GET", "/jobs", {"Cookie": cookie}).status == 401
    assert site.ask("GET", "/_ui/q/jobs", bearer(site.keys["operator"])).status == 200


def test_forged_cookies_are_refused(site: Site) -> None:
    name, value = site.log_in(site.keys["looker"]).cookie.split("=", 1)
    end, signature, _ = value.split(".")
    later = str(int(end) + 3600)
    for forged in (
        f"{end}.{signature}.operator",
        f"{later}.{signature}.looker",
        f"{end}.{signature[:-4]}AAAA.looker",
        f"{end}..looker",
        "x",
        f"{end}.%%%.looker",
    ):
        assert site.ask("GET", "/_ui/", {"Cookie": f"{name}={forged}"}).status == 303, forged


def test_a_session_ends_when_its_key_is_replaced(site: Site) -> None:
    token = add_key(site.file, "leaving", "--look=jobs")
    eventually(lambda: site.log_in(token).status == 303)
    cookie = site.log_in(token).cookie
    assert site.ask("GET", "/_ui/", {"Cookie": cookie}).status == 200
    site.file.write_text(site.file.read_text().replace(hash_line(token), hash_line(new_token())))
    eventually(lambda: site.ask("GET", "/_ui/", {"Cookie": cookie}).status == 303)


def test_a_cookie_is_valid_on_another_host(site: Site, tmp_path: Path) -> None:
    cookie = site.log_in(site.keys["looker"]).cookie
    options = [f"--keys={site.file}", "--sync=none", "--node=other"]
    root = site.suite.root
    with Suite(root, mq_options=options, mover=False, reaper=False, logs=tmp_path) as other:
        there = Site(other, site.file, site.keys)
        assert there.ask("GET", "/_ui/", {"Cookie": cookie}).status == 200


def test_another_site_can_only_link_to_pages(site: Site) -> None:
    cookie = {"Cookie": site.log_in(site.keys["operator"]).cookie, "Sec-Fetch-Site": "cross-site"}
    assert site.ask("GET", "/_ui/", {**cookie, **NAVIGATION}).status == 200
    for fetched in (
        {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
        {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
        {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty", "Origin": "http://elsewhere"},
    ):
        assert site.ask("GET", "/_ui/", {**cookie, **fetched}).status == 403, fetched
    assert site.ask("GET", "/", {**cookie, **NAVIGATION}).status == 403, "the API is no page"


def test_changes_need_the_origin_of_the_pages(site: Site) -> None:
    cookie = {"Cookie": site.log_in(site.keys["operator"]).cookie, **FORM}
    for headers in (
        {},
        {"Origin": "http://elsewhere"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site", **NAVIGATION},
        {"Sec-Fetch-Site": "none", **NAVIGATION},
    ):
        assert site.ask("POST", "/_ui/logout", {**cookie, **headers}, "x=1").status == 403, headers
    for headers in ({"Origin": site.origin}, {"Sec-Fetch-Site": "same-origin"}):
        assert site.ask("POST", "/_ui/logout", {**cookie, **headers}, "x=1").status == 303, headers


def test_every_page_has_security_headers(site: Site) -> None:
    cookie = {"Cookie": site.log_in(site.keys["operator"]).cookie}
    for path in ("/_ui/", "/_ui/login", "/_ui/q/jobs", "/_ui/q/none", "/_ui/nowhere"):
        headers = site.ask("GET", path, cookie).headers
        assert headers["Content-Security-Policy"].startswith(
            "default-src 'none'; script-src 'self'"
        )
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
