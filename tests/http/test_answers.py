"""Answers that carry messages, of every route that a server has."""

from __future__ import annotations

from pathlib import Path

from fsmq.spool.layout.messages.message import pack_header
from tests.harness.suite import Suite
from tests.http.helpers import Wire
from tests.http.stock import Stock, Stored

SANDBOX = "sandbox; default-src 'none'"
# Paths whose answers are known to contain stored data: the test has to find them.
TELLING = {
    "/{queue}/messages",
    "/{queue}/messages/{id}",
    "/{queue}/peek",
    "/queue/1/{queue}/poll",
    "/queue/1/{queue}/peek",
    "/dedupq/1/{queue}/poll",
    "/dedupq/1/{queue}/peek",
    "/queues/{queue}/messages/{number}",
    "/queues/{queue}/message/{id}",
    "/v1/queues/{queue}/messages/{number}",
    "/v1/queues/{queue}/message/{id}",
    "/_logs/{log}/messages",
    "/_logs/{log}/channels/{channel}/messages",
}


def test_stored_html_is_answered_with_headers_that_disarm_it(root: Path) -> None:
    page = b"<script>fetch('/q', {method: 'DELETE'})</script>"
    stored = Stored(pack_header("text/html", {}) + page, headed=True)
    told = set()
    with Suite(root, mq_options=["--sync=none"], mover=False, reaper=False) as suite:
        for asked in Stock(suite, stored, each=1):
            with Wire(suite.url) as wire:
                answer = wire.ask(asked.method, asked.target)
            if b"<script>" in answer.body:
                told.add(asked.pattern)
                assert answer.headers["Content-Security-Policy"] == SANDBOX, asked
                assert answer.headers["X-Content-Type-Options"] == "nosniff", asked
                assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin", asked
    assert told == TELLING
