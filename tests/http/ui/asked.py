"""The API and forms, for tests that check what pages show and do."""

from __future__ import annotations

import http.client
import json
import re
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlencode

from tests.harness.suite import Suite
from tests.http.keyfile import bearer


class Api:
    """The API of a suite. key: sent with each request."""

    def __init__(self, suite: Suite, key: str = "") -> None:
        self.url = suite.url
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def ask(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[Any, bytes]:
        """Headers and body of an answer; an error status raises HTTPError."""
        asked = urllib.request.Request(self.url + path, body, method=method)
        for name, value in (self._headers | headers).items():
            asked.add_header(name.replace("_", "-"), value)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return answer.headers, answer.read()

    def make(self, queue: str, **settings: object) -> None:
        self.ask("PUT", f"/{queue}")
        if settings:
            self.change(queue, **settings)

    def change(self, queue: str, **settings: object) -> None:
        self.ask(
            "PATCH", f"/{queue}", json.dumps(settings).encode(), Content_Type="application/json"
        )

    def put(self, queue: str, body: bytes = b"hello", query: str = "", **headers: str) -> str:
        found, _ = self.ask("POST", f"/{queue}/messages{query}", body, **headers)
        return str(found["X-Message-Id"])

    def claim(self, queue: str, query: str = "?wait=15") -> str:
        found, _ = self.ask("GET", f"/{queue}/messages{query}")
        return str(found["X-Message-Id"])

    def look(self, queue: str) -> Any:
        """A queue, its settings and its counts."""
        return json.loads(self.ask("GET", f"/{queue}")[1])

    def counts(self, queue: str) -> dict[str, int]:
        found: dict[str, int] = self.look(queue)["messages"]
        return {
            state: number for state, number in found.items() if number and state != "unfinished"
        }


def page(api: Api, path: str) -> str:
    """The text of a page; an error status raises HTTPError."""
    return api.ask("GET", f"/_ui/{path}")[1].decode()


def post(api: Api, path: str, *form: tuple[str, str]) -> str:
    """Send a form; the text of the page to which the answer redirects."""
    headers = {"Content_Type": "application/x-www-form-urlencoded", "Origin": api.url}
    return api.ask("POST", f"/_ui/{path}", urlencode(form).encode(), **headers)[1].decode()


def page_or_error(api: Api, path: str) -> str:
    """The text of a page, also of one with an error status."""
    try:
        return page(api, path)
    except HTTPError as error:
        return error.read().decode()


class Site(NamedTuple):
    """A suite, its keys by name, and a message and a move in it."""

    suite: Suite
    keys: dict[str, str]
    message: str = ""
    move: str = ""

    def ask(
        self,
        key: str,
        method: str,
        path: str,
        form: Mapping[str, str] | Sequence[tuple[str, str]] | None = None,
    ) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.suite.port, timeout=60)
        headers = {**bearer(self.keys[key]), "Origin": self.suite.url}
        if form is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        connection.request(method, f"/_ui/{path}", urlencode(form or {}), headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text


def buttons(text: str) -> set[str]:
    """The actions of the buttons on a page."""
    return set(re.findall(r'name="do" value="(\w+)"', text))
