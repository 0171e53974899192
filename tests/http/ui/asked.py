"""What the tests of pages ask the API, to see what a page has done."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from tests.harness.suite import Suite


class Api:
    """The API of a suite. key: what it is asked with."""

    def __init__(self, suite: Suite, key: str = "") -> None:
        self._url = suite.url
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def ask(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[Any, bytes]:
        """Headers and body of an answer, which has to be no error."""
        asked = urllib.request.Request(self._url + path, body, method=method)
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
    """The text of a page, which has to be no error."""
    return api.ask("GET", f"/_ui/{path}")[1].decode()
