"""A user of a queue who remembers accepted messages, and suites without capabilities."""

from __future__ import annotations

import os
import shutil
import time
from types import TracebackType
from typing import Any

import pytest

from fsmq import Client
from tests.harness.suite import Suite, eventually
from tests.http.helpers import Answer, Wire

PROGRAMS = ("mq", "mover", "reaper")
# Without capabilities root is subject to modes and owners like other users.
UNPRIVILEGED = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]
needs_setpriv = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="needs root, and setpriv to drop its capabilities",
)


def unprivileged(suite: Suite) -> Suite:
    """Make the programs of a suite run without capabilities."""
    for name in PROGRAMS:
        suite[name].under = UNPRIVILEGED
    return suite


class User:
    """Posts, fetches and deletes on one connection.

    accepted: the bodies of acknowledged messages that were not deleted, by id.
    refused: bodies whose post was answered with 503.
    """

    def __init__(self, suite: Suite, queue: str) -> None:
        self.suite = suite
        self.queue = queue
        self.accepted: dict[str, bytes] = {}
        self.refused: set[bytes] = set()
        self._held: set[str] = set()
        self._wire = Wire(suite.url)
        self._number = 0

    def __enter__(self) -> User:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._wire.close()

    def ask(self, method: str, path: str, body: bytes = b"", /, **headers: str) -> Answer:
        return self._wire.ask(method, path, headers, body)

    def post(self, body: bytes = b"", **query: Any) -> Answer:
        self._number += 1
        body = body or f"{self.queue} {self._number}".encode()
        words = "&".join(f"{name}={value}" for name, value in query.items())
        answer = self.ask("POST", f"/{self.queue}/messages?{words}", body)
        if answer.status == 201:
            self.accepted[answer.id] = body
        elif answer.status == 503:
            self.refused.add(body)
        return answer

    def fetch(self, wait: float = 0.0, visibility: float = 30.0) -> Answer:
        path = f"/{self.queue}/messages?wait={wait}&visibility={visibility}"
        answer = self.ask("GET", path)
        if answer.status == 200:
            assert answer.body in {*self.accepted.values(), *self.refused}, answer
            self._held.add(answer.id)
        return answer

    def renew(self, message_id: str, visibility: float) -> Answer:
        return self.ask("PATCH", f"/{self.queue}/messages/{message_id}?visibility={visibility}")

    def delete(self, message_id: str) -> Answer:
        answer = self.ask("DELETE", f"/{self.queue}/messages/{message_id}")
        if answer.status == 202:
            self.accepted.pop(message_id, None)
        return answer

    def is_ready(self) -> bool:
        """Whether the server reports that it is ready."""
        answer = self.ask("GET", "/_health/ready")
        assert answer.status in (200, 503), answer
        return answer.status == 200

    def gets_everything(self, patience: float) -> None:
        """Fetch and delete all accepted messages, each of which must be whole."""
        end = time.monotonic() + patience
        for message_id in self._held:
            assert self.renew(message_id, 0).status in (204, 404)
        self._held.clear()
        missing = dict(self.accepted)
        with Client(self.suite.url, retry_for=0) as client:
            jobs = client.queue(self.queue)
            while missing:
                assert time.monotonic() < end, f"did not come: {missing}"
                messages = jobs.claim(count=1000, wait=0.5)
                for message in messages:
                    known = missing.pop(message.id, None)
                    assert known == message.body or message.body in self.refused, message
                if messages:
                    jobs.remove(*[message.id for message in messages])
        self.accepted = {}
        # A refused message may still be delivered.
        new = self.suite.root / "new"
        eventually(lambda: not [path for path in new.iterdir() if self.queue in path.name])


def refused(answer: Answer) -> bool:
    """Whether an answer is a 503 with Retry-After."""
    return (
        answer.status == 503
        and answer.json["type"] == "urn:fsmq:problem:unavailable"
        and int(answer.headers["Retry-After"]) >= 1
    )
