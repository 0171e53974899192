"""``fsmq topic``."""

from __future__ import annotations

from pathlib import Path

from tests.cli.helpers import Command


def test_topics(fsmq: Command, tmp_path: Path) -> None:
    fsmq("topic", "subscribe", "news", "mail", "--create")
    made = fsmq.json(
        "topic", "subscribe", "news", "audit", "--create", "--filter", '{"kind": ["a"]}'
    )
    assert made == {"topic": "news", "queue": "audit", "filter": {"kind": ["a"]}, "created": True}
    assert fsmq.json("topic", "list") == {"topics": ["news"]}
    assert fsmq.out("topic", "show", "news") == 'audit  {"kind": ["a"]}\nmail\n'
    both = fsmq.json("topic", "publish", "news", "--body", "x", "-a", "kind=a", "--priority", "2")
    assert sorted(both["messages"]) == ["audit", "mail"]
    (tmp_path / "file").write_bytes(b"\0\xff")
    [line] = fsmq.out("topic", "publish", "news", tmp_path / "file").splitlines()
    queue, _ = line.split()
    assert queue == "mail"
    assert fsmq("topic", "publish", "news", stdin=b"piped").stdout.startswith(b"mail ")
    fsmq("queue", "create", "steps", "fifo=true")
    fsmq("topic", "unsubscribe", "news", "mail")
    fsmq("topic", "subscribe", "news", "steps", "--filter", '{"kind": ["step"]}')
    step = ("topic", "publish", "news", "-a", "kind=step", "--body", "s", "--dedup-id", "s1")
    assert b"group" in fsmq(*step, code=2).stderr
    assert fsmq.out(*step, "--group", "g") == fsmq.out(*step, "--group", "g")
    assert len(fsmq.out("get", "steps", "--count", "9", "--lines").splitlines()) == 1
    fsmq("log", "publish", "none", "--group", "g", code=2)
    fsmq("topic", "unsubscribe", "news", "steps")
    assert fsmq.json("topic", "unsubscribe", "news", "audit")["ended"] is True
    assert b"not subscribed" in fsmq("topic", "unsubscribe", "news", "audit").stderr
    assert fsmq.json("topic", "create", "news") == {"topic": "news", "created": False}
    assert b"exists already" in fsmq("topic", "create", "news").stderr
    assert fsmq.json("topic", "delete", "news") == {"topic": "news", "deleted": True}
    assert fsmq.out("topic", "list") == ""
    assert fsmq.json("topic", "create", "news") == {"topic": "news", "created": True}
    fsmq("topic", "delete", "news")


def test_errors(fsmq: Command) -> None:
    missing = fsmq("topic", "publish", "none", "--body", "x", code=3)
    assert b"create it: fsmq topic create none" in missing.stderr
    fsmq("topic", "create", "t")
    assert b"fsmq queue create nowhere" in fsmq("topic", "subscribe", "t", "nowhere", code=3).stderr
    for bad in ("{", "[" * 100_000):
        assert (
            b"filter" in fsmq("topic", "subscribe", "t", "nowhere", "--filter", bad, code=2).stderr
        )
    assert b"it was not stored" in fsmq("topic", "publish", "t", "--body", "x").stderr
    fsmq("topic", "delete", "t")
    fsmq("topic", "create", code=2)
