"""``fsmq consumers``: who works in batches, and to forget one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsmq.spool import Spool
from fsmq.spool.consumers.consumer import Consumer
from tests.cli.helpers import Command, completed


@pytest.fixture
def fsmq(root: Path) -> Command:
    command = Command(root)
    command("create", "jobs")
    return command


def test_consumers_are_listed_and_forgotten(fsmq: Command, root: Path) -> None:
    assert b"there are no consumers" in fsmq("consumers").stderr
    with Spool(root) as spool:
        jobs = spool.queue("jobs", create=True)
        ids = jobs.put_many([b"1", b"2"])
        spool.deliver()
        with Consumer(spool, "letters", visibility=1), Consumer(spool, "orders") as orders:
            orders.claim("s", 0, ["jobs"], 2)
            assert fsmq.out("consumers").splitlines() == [
                "CONSUMER  IN USE  BATCHES  MESSAGES",
                "letters   yes           0         0",
                "orders    yes           1         2",
            ]
            in_use = fsmq("consumers", "orders", "--forget", code=69).stderr
            assert b"another program works as the consumer 'orders': stop it" in in_use
        one = {"consumer": "orders", "in_use": False, "batches": 1, "messages": 2}
        assert fsmq.json("consumers", "orders") == one
        assert fsmq.json("consumers")["consumers"][1] == one
        assert completed("bash", ["fsmq", "consumers", "le"], fsmq) == ["plain,letters"]
        assert fsmq.json("consumers", "letters", "--forget")["forgotten"] is True
        assert "2 messages will return" in fsmq.out("consumers", "orders", "--forget")
        assert fsmq.json("consumers") == {"consumers": []}
        assert {m.id for m in jobs.peek(5, state="delay")} == set(ids)


def test_what_is_wrong_is_said(fsmq: Command, tmp_path: Path) -> None:
    assert b"no consumer named 'x'" in fsmq("consumers", "x", code=3).stderr
    outside = fsmq("consumers", "../queues", "--forget", code=3).stderr
    assert b"no consumer named '../queues'" in outside
    assert b"Name the consumer" in fsmq("consumers", "--forget", code=2).stderr
    url = fsmq("consumers", FSMQ_AT="http://127.0.0.1:1", code=2).stderr
    assert b"consumers works on the folder itself" in url
    assert b"there is no spool" in fsmq("consumers", FSMQ_AT=str(tmp_path), code=78).stderr
