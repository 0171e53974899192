"""``fsmq schedule``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.helpers import Command
from tests.harness.suite import Suite


@pytest.fixture
def fsmq(suite: Suite) -> Command:
    """The command on a server with the queue ``jobs``."""
    command = Command(suite.url)
    command("queue", "create", "jobs")
    return command


def test_schedules(fsmq: Command, tmp_path: Path) -> None:
    line = ("schedule", "create", "nightly", "30 3 * * *", "jobs")
    assert fsmq(*line, "--timezone", "Europe/Berlin", "--body", "x", "-a", "k=v").stderr == b""
    head, row = fsmq.out("schedule", "list").splitlines()
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
    assert "paused" in fsmq.out("schedule", "list")
    assert '"paused": true' in fsmq.out("schedule", "show", "nightly")
    fsmq("schedule", "resume", "nightly")
    assert "paused" not in fsmq.out("schedule", "list")
    assert fsmq.json("schedule", "list")["schedules"][0]["problem"] is None
    assert fsmq.json("schedule", "delete", "nightly") == {"schedule": "nightly", "deleted": True}
    assert fsmq.out("schedule", "list") == ""


def test_a_replaced_schedule_is_printed(fsmq: Command) -> None:
    line = ("schedule", "create", "replaced", "@daily", "jobs", "--body", "first")
    assert fsmq(*line).stderr == b""
    assert fsmq(*line).stderr == b""  # the same once more loses nothing
    output = fsmq("schedule", "create", "replaced", "@hourly", "jobs").stderr.decode()
    assert output.startswith("fsmq: replaced the schedule replaced, which was: ")
    was = json.loads(output.partition("which was: ")[2])
    assert (was["cron"], was["body"]) == ("@daily", "first")
    again = fsmq.json(*line)
    assert (again["created"], again["replaced"]["cron"]) == (False, "@hourly")
    assert "replaced" not in fsmq.json(*line)
    fsmq("schedule", "delete", "replaced")


def test_errors(fsmq: Command) -> None:
    missing = fsmq("schedule", "show", "none", code=3)
    assert b"no schedule named 'none'" in missing.stderr
    assert b"fsmq schedule list" in missing.stderr
    bad = fsmq("schedule", "create", "x", "99 * * * *", "jobs", code=2)
    assert b"minute is not valid" in bad.stderr
    reboot = fsmq("schedule", "create", "x", "@reboot", "jobs", code=2)
    assert b"@reboot is not supported" in reboot.stderr
    assert b"CRON QUEUE [FILE]" in fsmq("schedule", "create", "--help").stdout
    both = fsmq("schedule", "create", "x", "@daily", "jobs", "FILE", "--body", "y", code=2)
    assert b"not both" in both.stderr
    waits = fsmq("schedule", "create", "x", "@daily", "nowhere")
    assert b"puts nothing yet" in waits.stderr
    assert "no queue named 'nowhere'" in fsmq.out("schedule", "list")
    fsmq("schedule", "delete", "x")


def test_a_missing_mover_is_reported(root: Path, tmp_path: Path) -> None:
    alone, warning = Command(root), "schedules put nothing; start it: fsmq up"
    alone("queue", "create", "jobs", "max_deliveries=5", "dead_letter_queue=jobs.dead")
    assert alone("schedule", "list").stderr == b""
    alone("schedule", "create", "x", "@daily", "jobs")
    assert warning in alone("schedule", "list").stderr.decode()
    assert "no mover puts the messages of 1 schedule" in alone.out("doctor", code=1)
    with Suite(tmp_path / "other", mover=False, reaper=False) as half:
        server = Command(half.url)
        server("queue", "create", "jobs")
        server("schedule", "create", "x", "@daily", "jobs")
        assert warning in server("schedule", "list").stderr.decode()


def test_a_running_mover_is_not_reported(suite: Suite) -> None:
    Command(suite.url)("schedule", "create", "served", "@daily", "jobs")
    for place in (suite.url, suite.root):
        assert Command(place)("schedule", "list").stderr == b""
    Command(suite.url)("schedule", "delete", "served")
