"""``fsmq log``, ``fsmq channel``, and ``fsmq get LOG/CHANNEL``."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from fsmq.spool import ClaimVoid, Spool
from tests.cli.helpers import Command, completed
from tests.harness.suite import Suite


@pytest.fixture
def log(fsmq: Command, queue: str) -> str:
    assert fsmq.json("log", "create", queue, "retain_for=1d")["created"] is True
    return queue


def test_a_log_is_created_published_to_read_and_deleted(
    fsmq: Command, log: str, tmp_path: Path
) -> None:
    assert b"exists already" in fsmq("log", "create", log).stderr
    shown = fsmq.json("log", "config", log, "max_bytes=1M", "retain_bytes=none")
    assert (shown["settings"]["retain_for"], shown["settings"]["max_bytes"]) == (86_400, 1 << 20)
    assert shown["next"] == 0
    assert fsmq.out("log", "publish", log, "--body", "one", "--key", "k", "-a", "a=b") == "0\n"
    assert fsmq.out("log", "publish", log, "--lines", stdin=b"two\nthree\nfo") == "1\n2\n3\n"
    assert fsmq.out("log", "publish", log, "--null", stdin=b"ur\0fi\nve") == "4\n5\n"
    (tmp_path / "file").write_bytes(b"\xff")
    for _ in range(2):
        output = fsmq.lines("log", "publish", log, tmp_path / "file", "--id", "own")
        assert output == [{"log": log, "offset": 6}]
    assert fsmq("log", "read", log).stdout == b"onetwothreefourfi\nve\xff"
    assert fsmq.out("log", "read", log, "--from", "1", "-n", "2", "--lines") == "two\nthree\n"
    [last] = fsmq.lines("log", "read", log, "--from", "6")
    assert (last["offset"], last["id"], last["body_base64"]) == (6, "own", "/w==")
    [first] = fsmq.lines("log", "read", log, "--from", "2020-01-01T00:00Z", "-n", "1")
    assert (first["key"], first["attributes"]) == ("k", {"a": "b"})
    fsmq("log", "read", log, "--from", "last", code=1)
    listed = {found["log"]: found for found in fsmq.json("log", "list")["logs"]}
    assert (listed[log]["first"], listed[log]["next"]) == (0, 7)
    assert any(line.startswith(log) for line in fsmq.out("log", "list").splitlines())
    assert "retain_for" in fsmq.out("log", "show", log)
    assert fsmq.json("log", "delete", log, "--yes") == {"log": log, "deleted": True}
    assert log not in fsmq.out("log", "list")


def test_an_old_claim_does_not_settle_a_new_one(root: Path) -> None:
    """A new channel of the same name has claimed the same offset."""
    with Spool(root, sync="none") as spool:
        log = spool.log("users", create=True)
        log.publish(b"x")
        channel = log.channel("mailer")
        channel.create("first")
        [old] = channel.claim()
        channel.delete()
        channel.create("first")
        [new] = channel.claim()
        assert channel.ack_each([old, "0", 7]) == ["ended", "removed", "missing"]
        for verb in (channel.release, channel.renew):
            with pytest.raises(ClaimVoid):
                verb(old)
        assert channel.ack_each([new]) == ["removed"]


def test_a_channel_is_created_claimed_from_and_deleted(fsmq: Command, log: str) -> None:
    fsmq("log", "publish", log, "--lines", stdin=b"0\n1\n2\n3\n")
    made = fsmq.json("channel", "create", log, "c", "--from", "first", "order=none")
    assert made == {"log": log, "channel": "c", "created": True}
    assert b"exists already" in fsmq("channel", "create", log, "c").stderr
    of = f"{log}/c"
    [claimed] = fsmq.lines("get", of, "--visibility", "1m")
    assert (claimed["queue"], claimed["id"], claimed["body"]) == (of, "0", "0")
    assert fsmq.out("get", of, "--lines", "-n", "2", "--ack") == "1\n2\n"
    fsmq("renew", of, "0", "--visibility", "10m")
    fsmq("release", of, "0", "--claim", claimed["claim"])
    assert fsmq.lines("get", of)[0]["deliveries"] == 2
    assert b"not in flight" in fsmq("renew", of, "0", "--claim", claimed["claim"], code=3).stderr
    assert fsmq.lines("ack", of, "0") == [{"queue": of, "id": "0", "done": True}]
    fsmq("ack", of, "9", code=3)
    fsmq("ack", of, "x", code=2)
    state = fsmq.json("channel", "show", log, "c")
    assert (state["position"], state["lag"]) == (3, 1)
    [row] = fsmq.json("channel", "list", log)["channels"]
    assert (row["channel"], row["lag"]) == ("c", 1)
    fsmq("channel", "pause", log, "c")
    assert fsmq.out("channel", "list", log).splitlines()[1].endswith("paused")
    fsmq("get", of, code=1)
    fsmq("channel", "resume", log, "c")
    assert fsmq.json("channel", "seek", log, "c", "2")["position"] == 2
    fsmq("channel", "config", log, "c", f"dead_letter_queue={log}.dead")
    assert fsmq.out("get", of) == "2"
    fsmq("bury", of, "2", "--reason", "too late")
    [got] = fsmq.lines("get", f"{log}.dead", "--wait", "10")
    [letter] = fsmq.lines("peek", f"{log}.dead", got["id"])
    facts = (letter["body"], letter["dead_letter"]["queue"], letter["dead_letter"]["reason"])
    assert facts == ("2", f"logs/{of}", "too late")
    fsmq("channel", "delete", log, "c", "--yes")
    assert b"has no channels" in fsmq("channel", "list", log).stderr


def test_exec_keeps_the_order_of_a_channel(fsmq: Command, log: str, tmp_path: Path) -> None:
    fsmq("channel", "create", log, "c", "order=key")
    for number in range(6):
        fsmq("log", "publish", log, "--key", "ab"[number % 2], "--body", str(number))
    out = tmp_path / "out"
    script = (
        "test $FSMQ_DELIVERIES = 1 -a $FSMQ_ID = 2 && exit 1;"
        f' echo "$FSMQ_MESSAGE_KEY$FSMQ_ID" >> {out}'
    )
    fsmq("get", f"{log}/c", "--exec", script, "-c", "3", "--count", "7", "--backoff", "10ms")
    lines = out.read_text().split()
    assert [line for line in lines if line[0] == "a"] == ["a0", "a2", "a4"]
    assert [line for line in lines if line[0] == "b"] == ["b1", "b3", "b5"]
    assert fsmq.json("channel", "show", log, "c")["lag"] == 0


def test_missing_logs_and_wrong_options_are_refused(fsmq: Command, log: str) -> None:
    none = fsmq("log", "read", "none", code=3).stderr
    assert none == b"fsmq: there is no log named 'none'\n      create it: fsmq log create none\n"
    none = fsmq("get", f"{log}/none", code=3).stderr
    assert f"create it: fsmq channel create {log} none".encode() in none
    for wrong in (
        ("log", "config", log, "retain=1"),
        ("log", "config", log, "retain_for"),
        ("log", "create", log, "--delete"),
        ("channel", "create", log, "c", "--pause"),
        ("channel", "show", log, "c", "--from", "first"),
        ("channel", "create", log, "c", "--from", "yesterday"),
        ("log", "read", log, "--from", "2020-01-01T00:00"),
        ("log", "publish", log, "--delay", "5", "--body", "x"),
        ("log", "publish", log, "--lines", "--id", "x"),
        ("log", "publish", "--body", "x"),
        ("topic", "publish", "news", "--key", "x", "--body", "x"),
    ):
        fsmq(*wrong, code=2)


def test_names_are_completed(suite: Suite, queue: str) -> None:
    command = Command(suite.url)
    command("log", "create", queue)
    command("channel", "create", queue, "mailer")
    assert f"plain,{queue}" in completed("bash", ["fsmq", "log", "read", queue[:3]], command)
    assert "plain,mailer" in completed("bash", ["fsmq", "channel", "seek", queue, "ma"], command)
    offered = completed("bash", ["fsmq", "channel", "create", queue, "c", "ord"], command)
    assert offered == ["plain,order="]


def test_follow_prints_new_messages(suite: Suite, queue: str) -> None:
    command = Command(suite.url)
    command("log", "create", queue)
    command("log", "publish", queue, "--body", "x")
    started = time.monotonic()
    [line] = command("log", "read", queue, "--follow", "-n", "1", "--json").stdout.splitlines()
    assert json.loads(line)["body"] == "x"
    assert time.monotonic() - started < 20


def test_the_doctor_reports_messages_that_cannot_be_buried(fsmq: Command, log: str) -> None:
    dead = f"{log}.dead"
    fsmq("queue", "create", dead, "max_message_bytes=1")
    given = ["order=none", "max_deliveries=1", f"dead_letter_queue={dead}"]
    fsmq("channel", "create", log, "mail", "--from", "first", *given)
    fsmq.out("log", "publish", log, "--body", "large")
    fsmq("get", f"{log}/mail", "--visibility", "0s")
    fsmq("get", f"{log}/mail", code=1)
    findings = [f for f in fsmq.json("doctor", code=None)["findings"] if f["name"] == "channels"]
    texts = [found["text"] for found in findings if log in found["text"]]
    assert texts == [f"channel mail of log {log} cannot bury message 0"]
    assert "unburied at 0" in fsmq.out("channel", "list", log)
