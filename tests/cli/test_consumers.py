"""``fsmq consumer``: consumers are listed, shown and forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsmq.spool import Spool
from fsmq.spool.consumers.consumer import Consumer
from tests.cli.helpers import Command, completed


@pytest.fixture
def fsmq(alone: Command) -> Command:
    return alone


def test_consumers_are_listed_and_forgotten(fsmq: Command, root: Path) -> None:
    assert b"there are no consumers" in fsmq("consumer", "list").stderr
    with Spool(root) as spool:
        jobs = spool.queue("jobs", create=True)
        ids = jobs.put_many([b"1", b"2"])
        spool.deliver()
        letters = Consumer(spool, "letters", visibility=1, reads=["jobs", "m*"])
        with letters, Consumer(spool, "orders") as orders:
            orders.claim("s", 0, ["jobs"], 2)
            spool.queue("mail", create=True).put_many([b"waits", b"too"])
            output = [line.split() for line in fsmq.out("consumer", "list").splitlines()]
            assert output[0][3:] == ["BATCHES", "MESSAGES", "BEHIND", "BYTES", "OLDEST"]
            assert output[1][:7] == ["letters", "yes", "0", "0", "2", "8", "B"]
            assert output[2] == ["orders", "yes", "1", "2", "-", "-", "-"]
            behind = fsmq.json("consumer", "show", "letters")["behind"]
            assert (behind["messages"], behind["bytes"]) == (2, 8)
            assert behind["oldest_seconds"] >= 0
            assert behind["queues"]["jobs"] == {"messages": 0, "bytes": 0, "oldest_seconds": None}
            in_use = fsmq("consumer", "forget", "orders", code=69).stderr
            assert b"another program works as the consumer 'orders': stop it" in in_use
        one = {"consumer": "orders", "in_use": False, "batches": 1, "messages": 2, "behind": None}
        assert fsmq.json("consumer", "show", "orders") == one
        assert fsmq.json("consumer", "list")["consumers"][1] == one
        assert completed("bash", ["fsmq", "consumer", "show", "le"], fsmq) == ["plain,letters"]
        assert fsmq.json("consumer", "forget", "letters")["forgotten"] is True
        assert "2 messages will return" in fsmq.out("consumer", "forget", "orders")
        assert fsmq.json("consumer", "list") == {"consumers": []}
        assert {m.id for m in jobs.peek(5, state="delay")} == set(ids)


def test_errors_name_the_missing_consumer_or_spool(fsmq: Command, tmp_path: Path) -> None:
    assert b"no consumer named 'x'" in fsmq("consumer", "show", "x", code=3).stderr
    outside = fsmq("consumer", "forget", "../queues", code=3).stderr
    assert b"no consumer named '../queues'" in outside
    url = fsmq("consumer", "list", FSMQ_AT="http://127.0.0.1:1", code=2).stderr
    assert b"consumer list works on the folder itself" in url
    assert b"there is no spool" in fsmq("consumer", "list", FSMQ_AT=str(tmp_path), code=78).stderr
