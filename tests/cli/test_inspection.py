"""``fsmq peek`` with filters, ``fsmq find`` and ``fsmq life``, on a folder and on a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.helpers import Command
from tests.harness.suite import Suite, eventually


@pytest.fixture(scope="module")
def both(suite: Suite) -> dict[str, Command]:
    return {"root": Command(suite.root), "server": Command(suite.url)}


@pytest.mark.parametrize("where", ["root", "server"])
def test_find_and_life_follow_a_message(both: dict[str, Command], where: str) -> None:
    fsmq, queue = both[where], f"jobs-{where}"
    both["server"]("queue", "create", queue, "max_deliveries=5", f"dead_letter_queue={queue}.dead")
    message_id = both["server"].out("put", queue, "--body=five!", "--attribute=color=red").strip()
    assert fsmq.out("peek", queue, "--attribute=color=red", "--raw", "--contains=five") == "five!"
    fsmq("peek", queue, "--attribute=color=blue", code=1)
    fsmq("peek", queue, "--older-than=1h", code=1)
    assert fsmq.out("find", message_id).splitlines()[1].split() == [
        queue,
        message_id,
        "ready",
        "0",
        "-",
    ]
    both["server"]("get", queue, "--wait=10", "--visibility=1h")
    [place] = fsmq.json("find", message_id)["places"]
    assert (place["queue"], place["state"], place["deliveries"]) == (queue, "in_flight", 1)
    both["server"]("bury", queue, message_id)
    both["server"]("remove", f"{queue}.dead", message_id)
    fsmq("find", message_id, code=3)

    def has_gone() -> bool:
        steps = fsmq.lines("life", f"{queue}/{message_id}", code=None)
        return {"removed", "reaped"} <= {step["event"] for step in steps}

    eventually(has_gone)
    lines = fsmq.out("life", f"{queue}/{message_id}").splitlines()
    assert all(line.startswith("+") for line in lines[1:])
    whole = "\n".join(lines)
    for part in (
        "accepted         by native",
        "delivered        by native",
        "claimed, 1 of 5",
        "for 60.0 min",
        f"to {queue}.dead",
    ):
        assert part in whole, whole


def test_unknown_messages_are_reported(tmp_path: Path) -> None:
    fsmq = Command(tmp_path / "mq")
    fsmq("queue", "create", "jobs")
    nothing = fsmq("life", "jobs/x", code=3)
    assert b"not in the journal" in nothing.stderr
    fsmq("life", "jobs", code=2)
    assert fsmq("life", "jobs", "x", code=3).stderr == nothing.stderr
    fsmq("find", "a:b", code=2)
    fsmq("put", "jobs", "--lines", stdin=b"a1\na2\na3\n")
    fsmq("get", "jobs", "--count=3")
    found = fsmq("peek", "jobs", "--state=in_flight", "--contains=a", "--count=2", "--raw")
    assert (found.stdout, b"go on with --after" in found.stderr) == (b"a1a2", True)


def test_errors_of_backup_and_restore_name_the_problem(tmp_path: Path) -> None:
    fsmq = Command(tmp_path / "mq")
    fsmq("put", "jobs", "--create", "--body=a")
    snapshot = fsmq.json("backup", tmp_path / "snapshots")["snapshot"]
    output = fsmq("restore", snapshot, "--root", tmp_path / "mq", code=78).stderr
    output += fsmq("queue", "list", "--at", snapshot, code=78).stderr
    output += fsmq("backup", tmp_path / "more", "--root", tmp_path / "none", code=78).stderr
    for what in ("is a spool already", "is a snapshot", "there is no spool in"):
        assert what in output.decode()
    assert b"probe" not in output


def test_a_text_in_place_of_a_file_suggests_body(tmp_path: Path) -> None:
    fsmq = Command(tmp_path / "mq")
    output = fsmq("put", "jobs", "some text", "--create", code=2).stderr.decode()
    assert output.splitlines() == [
        "fsmq: cannot read some text: no such file",
        "      a text? --body 'some text'",
    ]


def test_a_restore_of_an_incomplete_snapshot_exits_with_1(tmp_path: Path) -> None:
    fsmq = Command(tmp_path / "mq")
    fsmq("put", "jobs", "--create", "--lines", stdin=b"a\nb\n")
    snapshot = Path(fsmq.json("backup", tmp_path / "snapshots")["snapshot"])
    fsmq("restore", snapshot, "--root", tmp_path / "whole")
    next((snapshot / "queues/jobs").iterdir()).unlink()
    done = fsmq("restore", snapshot, "--root", tmp_path / "part", code=1)
    error = "fsmq: queues/jobs is not as it was backed up: it has 1 file, not 2"
    assert error in done.stderr.decode()
    restored = fsmq.json("restore", snapshot, "--root", tmp_path / "third", code=1)
    assert restored["changed"] == {"queues/jobs": "it has 1 file, not 2"}


@pytest.mark.parametrize("where", ["root", "server"])
def test_cluster_and_history_are_shown(both: dict[str, Command], where: str) -> None:
    fsmq = both[where]
    fsmq("queue", "create", "charted")
    shown = fsmq.out("cluster")
    for part in ("LAST BEAT", "mover", "reaper", "inodes", "history/"):
        assert part in shown
    assert [host["alive"] for host in fsmq.json("cluster")["hosts"]] == [True]
    rows = eventually(lambda: fsmq.json("queue", "history", "charted", code=None)["moments"])
    assert rows[-1]["ready"] == 0
    assert "REDELIVERED" in fsmq.out("queue", "history", "charted", "--since=1h", "--step=2m")
    fsmq("queue", "history", "charted", "--since=1h", "--step=1s", code=2)
    assert "inodes" in {finding["name"] for finding in fsmq.json("doctor", code=None)["findings"]}
