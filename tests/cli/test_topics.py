"""``fsmq topic``, ``subscribe``, ``unsubscribe`` and ``publish``."""

from __future__ import annotations

from pathlib import Path

from tests.cli.helpers import Command


def test_topics(fsmq: Command, tmp_path: Path) -> None:
    fsmq("subscribe", "news", "mail", "--create")
    made = fsmq.json("subscribe", "news", "audit", "--create", "--filter", '{"kind": ["a"]}')
    assert made == {"topic": "news", "queue": "audit", "filter": {"kind": ["a"]}, "created": True}
    assert fsmq.json("topic", "ls") == {"topics": ["news"]}
    assert fsmq.out("topic", "ls", "news") == 'audit  {"kind": ["a"]}\nmail\n'
    both = fsmq.json("publish", "news", "--body", "x", "-a", "kind=a", "--priority", "2")
    assert sorted(both["messages"]) == ["audit", "mail"]
    (tmp_path / "file").write_bytes(b"\0\xff")
    [line] = fsmq.out("publish", "news", tmp_path / "file").splitlines()
    queue, _ = line.split()
    assert queue == "mail"
    assert fsmq("publish", "news", stdin=b"piped").stdout.startswith(b"mail ")
    fsmq("create", "steps", "fifo=true")
    fsmq("unsubscribe", "news", "mail")
    fsmq("subscribe", "news", "steps", "--filter", '{"kind": ["step"]}')
    step = ("publish", "news", "-a", "kind=step", "--body", "s", "--dedup-id", "s1")
    assert b"group" in fsmq(*step, code=2).stderr
    assert fsmq.out(*step, "--group", "g") == fsmq.out(*step, "--group", "g")
    assert len(fsmq.out("get", "steps", "--count", "9", "--lines").splitlines()) == 1
    fsmq("publish", "--log", "none", "--group", "g", code=2)
    fsmq("unsubscribe", "news", "steps")
    assert fsmq.json("unsubscribe", "news", "audit")["ended"] is True
    assert b"not subscribed" in fsmq("unsubscribe", "news", "audit").stderr
    assert fsmq.json("topic", "create", "news") == {"topic": "news", "created": False}
    assert b"exists already" in fsmq("topic", "create", "news").stderr
    assert fsmq.json("topic", "delete", "news") == {"topic": "news", "deleted": True}
    assert fsmq.out("topic", "ls") == ""
    assert fsmq.json("topic", "create", "news") == {"topic": "news", "created": True}
    fsmq("topic", "delete", "news")


def test_the_forms_of_before_still_work(fsmq: Command) -> None:
    fsmq("topics", "old", "--create")
    fsmq("subscribe", "old", "mail", "--create")
    assert fsmq.json("topics") == {"topics": ["old"]}
    assert fsmq.out("topics", "old") == "mail\n"
    assert fsmq.json("subscribe", "old", "mail", "--end")["ended"] is True
    fsmq("topics", "old", "--delete")
    assert fsmq.out("topics") == ""
    shown = fsmq.out("--help") + fsmq.out("subscribe", "--help") + fsmq.out("get", "--help")
    for hidden in ("topics ", "--end", "--backoff-limit"):
        assert hidden not in shown


def test_errors(fsmq: Command) -> None:
    missing = fsmq("publish", "none", "--body", "x", code=3)
    assert b"create it: fsmq topic create none" in missing.stderr
    fsmq("topic", "create", "t")
    assert b"fsmq create nowhere" in fsmq("subscribe", "t", "nowhere", code=3).stderr
    for bad in ("{", "[" * 100_000):
        assert b"filter" in fsmq("subscribe", "t", "nowhere", "--filter", bad, code=2).stderr
    assert b"it was not stored" in fsmq("publish", "t", "--body", "x").stderr
    fsmq("topics", "--create", code=2)
    fsmq("topics", "t", "--create", "--delete", code=2)
    fsmq("topic", "delete", "t")
    fsmq("topic", "create", code=2)
