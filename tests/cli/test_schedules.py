"""``fsmq schedule``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.helpers import Command
from tests.harness.suite import Suite


@pytest.fixture
def fsmq(suite: Suite) -> Command:
    """The command on a server with a queue."""
    command = Command(suite.url)
    command("create", "jobs")
    return command


def test_schedules(fsmq: Command, tmp_path: Path) -> None:
    line = ("schedule", "add", "nightly", "30 3 * * *", "jobs")
    assert fsmq(*line, "--timezone", "Europe/Berlin", "--body", "x", "-a", "k=v").stderr == b""
    head, row = fsmq.out("schedule", "ls").splitlines()
    assert head.split() == ["schedule", "next", "queue", "cron", "timezone", "problem"]
    assert row.startswith("nightly  ")
    assert row.endswith("jobs   30 3 * * *  Europe/Berlin")
    assert len(fsmq.out("schedule", "next", "nightly", "-n", "3").splitlines()) == 3
    assert fsmq.json("schedule", "next", "nightly")["schedule"] == "nightly"
    (tmp_path / "file").write_bytes(b"\0\xff")
    again = fsmq.json(*line, tmp_path / "file", "--catch-up", "all", "--delay", "5m")
    assert (again["created"], again["settings"]["delay"]) == (False, 300)
    assert again["settings"]["body_base64"] == "AP8="
    message_id = fsmq.out("schedule", "run", "nightly").strip()
    assert fsmq.json("peek", "jobs", message_id)["state"] in ("new", "delayed")
    fsmq("schedule", "pause", "nightly")
    assert "paused" in fsmq.out("schedule", "ls")
    assert '"paused": true' in fsmq.out("schedule", "show", "nightly")
    fsmq("schedule", "resume", "nightly")
    assert "paused" not in fsmq.out("schedule", "ls")
    assert fsmq.json("schedule", "ls")["schedules"][0]["problem"] is None
    assert fsmq.json("schedule", "rm", "nightly") == {"schedule": "nightly", "deleted": True}
    assert fsmq.out("schedule", "ls") == ""


def test_errors(fsmq: Command) -> None:
    missing = fsmq("schedule", "show", "none", code=3)
    assert b"no schedule named 'none'" in missing.stderr
    assert b"fsmq schedule ls" in missing.stderr
    bad = fsmq("schedule", "add", "x", "99 * * * *", "jobs", code=2)
    assert b"minute is not valid" in bad.stderr
    both = fsmq("schedule", "add", "x", "@daily", "jobs", "FILE", "--body", "y", code=2)
    assert b"not both" in both.stderr
    waits = fsmq("schedule", "add", "x", "@daily", "nowhere")
    assert b"puts nothing yet" in waits.stderr
    assert "no queue named 'nowhere'" in fsmq.out("schedule", "ls")
    fsmq("schedule", "rm", "x")
