"""``fsmq topics``, ``subscribe`` and ``publish``, on a folder and on a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.helpers import Command
from tests.suite import Suite


@pytest.fixture(params=["root", "server"])
def fsmq(request: pytest.FixtureRequest, root: Path) -> Command:
    """The command on a folder that nobody serves, or on a server."""
    if request.param == "root":
        command = Command(root)
        command("create", "jobs")
        return command
    suite: Suite = request.getfixturevalue("suite")
    return Command(suite.url)


def test_topics(fsmq: Command, tmp_path: Path) -> None:
    fsmq("subscribe", "news", "mail", "--create")
    made = fsmq.json("subscribe", "news", "audit", "--create", "--filter", '{"kind": ["a"]}')
    assert made == {"topic": "news", "queue": "audit", "filter": {"kind": ["a"]}, "created": True}
    assert fsmq.json("topics") == {"topics": ["news"]}
    assert fsmq.out("topics", "news") == 'audit  {"kind": ["a"]}\nmail\n'
    both = fsmq.json("publish", "news", "--body", "x", "-a", "kind=a", "--priority", "2")
    assert sorted(both["messages"]) == ["audit", "mail"]
    (tmp_path / "file").write_bytes(b"\0\xff")
    [line] = fsmq.out("publish", "news", tmp_path / "file").splitlines()
    queue, _ = line.split()
    assert queue == "mail"
    assert fsmq("publish", "news", stdin=b"piped").stdout.startswith(b"mail ")
    assert fsmq.json("subscribe", "news", "audit", "--end")["ended"] is True
    assert b"not subscribed" in fsmq("subscribe", "news", "audit", "--end").stderr
    fsmq("topics", "news", "--delete")
    assert fsmq.out("topics") == ""


def test_errors(fsmq: Command) -> None:
    missing = fsmq("publish", "none", "--body", "x", code=3)
    assert b"create it: fsmq topics none --create" in missing.stderr
    fsmq("topics", "t", "--create")
    assert b"fsmq create nowhere" in fsmq("subscribe", "t", "nowhere", code=3).stderr
    assert b"filter" in fsmq("subscribe", "t", "nowhere", "--filter", "{", code=2).stderr
    assert b"stored nowhere" in fsmq("publish", "t", "--body", "x").stderr
    fsmq("topics", "--create", code=2)
    fsmq("topics", "t", "--create", "--delete", code=2)
    fsmq("topics", "t", "--delete")
