"""A post with an own id is stored once if its server is killed and the client retries."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsmq.spool.layout.messages.message import pack_header
from fsmq.spool.layout.names import seal_of, staged_entry
from fsmq.spool.layout.uuids import uuid7
from tests.faults.inject import injected
from tests.harness.suite import Suite
from tests.http.helpers import Answer, Wire

BODY = b"pay 100"


def post(wire: Wire, own: str, attempt: str) -> Answer:
    headers = {"X-Message-Attribute-attempt": attempt}
    return wire.ask("POST", f"/q/messages?id={own}", headers, BODY)


def kill_during_a_post(suite: Suite, own: str) -> Path:
    """Kill mq between the sync of a message and its rename; the file that is left."""
    content = pack_header(None, {"attempt": "1"}) + BODY
    staged = Path("new") / staged_entry("q", f"{own}.h", seal_of(content))
    rule = "renameat2:signal=KILL"
    with injected(suite, rule, programs=["mq"], paths=[staged]), Wire(suite.url) as wire:
        with pytest.raises((AssertionError, ConnectionError)):
            post(wire, own, "1")
        suite["mq"].wait()
    left = suite.root / staged
    assert left.read_bytes() == content
    return left


@pytest.mark.parametrize("first", ["the retry", "a mover"])
def test_a_retry_with_another_attribute_is_stored_once(root: Path, first: str) -> None:
    own = uuid7()
    with Suite(root) as suite:
        with Wire(suite.url) as wire:
            assert wire.ask("PUT", "/q").status == 201
        left = kill_during_a_post(suite, own)
        suite.restart("mq")
        if first == "a mover":
            suite.restart("mover")
        with Wire(suite.url) as wire:
            assert post(wire, own, "2").status in (201, 409)
            got = wire.ask("GET", "/q/messages?wait=15")
            assert (got.id, got.body) == (f"{own}.h", BODY)
            assert wire.ask("DELETE", f"/q/messages/{got.id}").status == 202
            # A starting mover promotes complete files at once.
            suite.restart("mover")
            assert wire.ask("POST", "/q/messages?id=last", {}, b"last").status == 201
            assert wire.ask("GET", "/q/messages?wait=15").id == "last"
            assert wire.ask("GET", "/q/messages?wait=0.2").status == 204
        assert not left.exists()
