"""Consumers recognise repeated puts by the own id."""

from __future__ import annotations

import json

from fsmq import Client
from tests.harness.suite import Suite
from tests.http.helpers import Wire


def test_a_retry_after_the_ack_has_the_same_own_id(suite: Suite, queue: str) -> None:
    ids = set()
    with Client(suite.url) as client, Wire(suite.url) as wire:
        for ttl in (50, 60):
            client.queue(queue).put(b"50", id="order-4711", priority=3, ttl=ttl)
            [message] = client.queue(queue).claim(1, wait=15)
            assert message.own_id == "order-4711"
            seen = wire.ask("GET", f"/{queue}/messages/{message.id}")
            assert seen.headers["X-Message-Own-Id"] == "order-4711"
            shown = wire.ask("GET", f"/{queue}/peek?state=in_flight")
            assert json.loads(shown.body)["messages"][0]["own_id"] == "order-4711"
            message.ack()
            ids.add(message.id)
    assert len(ids) == 2


def test_a_plain_own_id_has_no_extra_header(suite: Suite, queue: str) -> None:
    with Wire(suite.url) as wire:
        assert wire.ask("POST", f"/{queue}/messages?id=a@b", {}, b"x").status == 201
        answer = wire.ask("GET", f"/{queue}/messages?wait=15")
        assert answer.headers["X-Message-Id"] == "a@b"
        assert answer.headers.get("X-Message-Own-Id") is None
