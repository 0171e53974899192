"""The verbs, on a folder without programs and on a server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from datetime import datetime
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from fsmq import Spool
from fsmq.spool.layout.claim_names import claim_seen
from fsmq.wire import moment
from tests.cli.helpers import FSMQ, Command, environment
from tests.harness.certificates import HAS_OPENSSL, make
from tests.harness.suite import Suite, eventually

BINARY = bytes(range(256)) * 300


@pytest.fixture(params=["root", "server"])
def fsmq(request: pytest.FixtureRequest) -> Command:
    """The command with the queue ``jobs``, on a folder without programs or on a server."""
    if request.param == "root":
        alone: Command = request.getfixturevalue("alone")
        return alone
    suite: Suite = request.getfixturevalue("suite")
    (suite.root / "queues" / "jobs").mkdir(exist_ok=True)
    command = Command(suite.url)
    command("queue", "purge", "jobs", "--yes")
    return command


def test_a_verb_loads_no_web_server() -> None:
    # It would take most of the time to load, and scripts run verbs in loops.
    load = "import sys, fsmq.cli.place.server, fsmq.cli.group; from fsmq.cli import main"
    verbs = (
        "groups = [main]\n"
        "for of in groups:\n"
        "    found = [of.get_command(None, name) for name in of.list_commands(None)]\n"
        "    groups += [one for one in found if isinstance(one, fsmq.cli.group.Fsmq)]\n"
        "assert len(groups) > 5"
    )
    report = "print(*({'aiohttp', 'prometheus_client'} & sys.modules.keys()))"
    done = subprocess.run(
        [*FSMQ[:1], "-c", f"{load}\n{verbs}\n{report}"],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == []


def test_a_message_goes_through_a_pipe_byte_for_byte(fsmq: Command) -> None:
    message_id = fsmq.out("put", "jobs", stdin=BINARY).strip()
    assert fsmq("get", "jobs", "--wait=20").stdout == BINARY
    eventually(lambda: fsmq.counts("jobs") == {"in_flight": 1})
    assert fsmq.out("ack", "jobs", message_id) == ""
    eventually(lambda: fsmq.counts("jobs") == {})
    assert fsmq("get", "jobs", code=1).stdout == b""


def test_files_are_put_and_saved(fsmq: Command, tmp_path: Path) -> None:
    for name, body in {"one": b"1", "two": BINARY}.items():
        (tmp_path / name).write_bytes(body)
    ids = fsmq.out("put", "jobs", tmp_path / "one", "-", tmp_path / "two", stdin=b"-").split()
    saved = []
    while len(saved) < 3:
        printed = fsmq.out("get", "jobs", "-n9", "--wait=20", "--ack", "--save", tmp_path / "out")
        saved += printed.split()
    assert saved == ids
    bodies = [(tmp_path / "out" / message_id).read_bytes() for message_id in ids]
    assert bodies == [b"1", b"-", BINARY]
    eventually(lambda: fsmq.counts("jobs") == {})


def test_lines_are_put_and_printed_unchanged(alone: Command) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(700)) + b"\nlast"
    assert len(alone.out("put", "jobs", "--lines", stdin=lines).split()) == 702
    printed = alone("get", "jobs", "--count=1000", "--lines", "--ack").stdout
    assert printed == lines + b"\n"
    assert alone.counts("jobs") == {}


def test_a_line_is_stored_before_the_pipe_ends(alone: Command) -> None:
    process = alone.start("put", "jobs", "--lines", stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"now\nand the")
    process.stdin.flush()
    assert process.stdout.readline()
    assert alone("get", "jobs", "--ack").stdout == b"now"
    process.stdin.write(b" rest")
    process.communicate()
    assert alone("get", "jobs", "--ack").stdout == b"and the rest"


def test_options_of_put_are_printed_by_get(fsmq: Command) -> None:
    options = ["--priority=3", "--ttl=1h", "--content-type=text/plain", "-atrace=8f2", "-auser=a=b"]
    [put] = fsmq.lines("put", "jobs", "--body=hëllo", *options)
    [got] = fsmq.lines("get", "jobs", "--wait=20", "--visibility=5m")
    assert (got["queue"], got["id"], got["body"]) == ("jobs", put["id"], "hëllo")
    assert (got["content_type"], got["priority"], got["deliveries"]) == ("text/plain", 3, 1)
    assert got["attributes"] == {"trace": "8f2", "user": "a=b"}
    assert got["created_at"] < got["deadline"] < got["expires_at"]
    # The visibility timeout of jobs is 30 s.
    assert fsmq.lines("peek", "jobs", put["id"])[0]["deadline"] == got["deadline"]
    [renewed] = fsmq.lines("renew", "jobs", put["id"], "--visibility=2h")
    assert renewed["deadline"] > got["deadline"]
    fsmq("release", "jobs", put["id"])
    [again] = fsmq.lines("get", "jobs", "--wait=20")
    assert again["deliveries"] == 2
    assert fsmq.lines("ack", "jobs", put["id"]) == [
        {"queue": "jobs", "id": put["id"], "done": True}
    ]


def test_a_body_on_the_command_line_can_be_binary(alone: Command) -> None:
    alone("put", "jobs", os.fsdecode(b"--body=\xff\n\xfe"))
    assert alone("get", "jobs", "--ack").stdout == b"\xff\n\xfe"
    alone("topic", "subscribe", "news", "jobs", "--create")
    alone("topic", "publish", "news", os.fsdecode(b"--body=\xfd"))
    assert alone("get", "jobs", "--ack").stdout == b"\xfd"


def test_put_and_release_take_a_delay(fsmq: Command) -> None:
    put = fsmq.out("put", "jobs", "--body=x", "--delay=1h").strip()
    fsmq("get", "jobs", code=1)
    eventually(lambda: fsmq.counts("jobs") == {"delayed": 1})
    fsmq("renew", "jobs", put, "--visibility=0.1")
    assert fsmq.out("get", "jobs", "--wait=20") == "x"
    fsmq("release", "jobs", put, "--delay=1h")
    eventually(lambda: fsmq.counts("jobs") == {"delayed": 1})
    assert fsmq.out("peek", "jobs", "--state=delayed").splitlines()[1].split()[2] == "x"


def test_a_line_that_is_too_long_is_named(alone: Command) -> None:
    alone("queue", "config", "jobs", "max_message_bytes=3")
    done = alone("put", "jobs", "--lines", code=2, stdin=b"ab\n" * 251 + b"abcd\n")
    assert len(done.stdout.split()) == 250
    output = done.stderr.decode()
    assert (
        "message 252 of the input: the body of 4 bytes is too large: the limit is 3 bytes" in output
    )
    assert "250 messages of this input are stored" in output


def test_a_duplicate_id_is_refused(fsmq: Command) -> None:
    fsmq("put", "jobs", "--id=once", "--body=x")
    assert b"already holds" in fsmq("put", "jobs", "--id=once", "--body=y", code=4).stderr
    assert fsmq.out("get", "jobs", "--wait=20", "--ack") == "x"


def test_peek_claims_nothing(alone: Command) -> None:
    ids = alone.out("put", "jobs", "--lines", stdin=b"a\nb\nc\n").split()
    assert alone.out("get", "jobs") == "a"
    assert [m["id"] for m in alone.lines("peek", "jobs")] == ids[1:]
    assert [m["state"] for m in alone.lines("peek", "jobs", *ids)] == [
        "in_flight",
        "ready",
        "ready",
    ]
    assert alone("peek", "jobs", "--raw", "-n1").stdout == b"b"
    shown = alone.out("peek", "jobs").splitlines()
    assert shown[0].split()[:3] == ["ID", "STATE", "BODY"]
    assert shown[1].split()[:3] == [ids[1], "ready", "b"]
    done = alone("peek", "jobs", ids[0], "nope", code=3)
    assert b"nope: it is in no state" in done.stderr
    assert len(done.stdout.splitlines()) == 2


def test_ids_are_read_from_a_pipe_and_missing_ones_reported(alone: Command) -> None:
    ids = alone.out("put", "jobs", "--lines", stdin=b"a\nb\n").split()
    done = alone(
        "remove", "jobs", "--json", code=3, stdin="\n".join([ids[0], "nope", ids[1]]).encode()
    )
    assert [json.loads(line)["done"] for line in done.stdout.splitlines()] == [True, False, True]
    assert b"nope: it is not there" in done.stderr
    assert b"nope" in alone("release", "jobs", "nope", code=3).stderr
    assert b"nope" in alone("renew", "jobs", "nope", code=3).stderr


def test_peek_shows_how_often_a_dead_letter_was_delivered(fsmq: Command) -> None:
    fsmq("queue", "create", "failing.dead")
    config = ("max_deliveries=2", "dead_letter_queue=failing.dead")
    fsmq("queue", "create", "failing", *config)
    fsmq("put", "failing", stdin=b"hello")
    for _ in range(2):
        message = json.loads(fsmq.out("get", "failing", "--wait=20", "--json"))
        fsmq("release", "failing", message["id"])
    eventually(lambda: fsmq.counts("failing.dead") == {"ready": 1})
    head, row = fsmq.out("peek", "failing.dead").splitlines()
    at = head.index("DELIVERIES") + len("DELIVERIES")
    assert row[:at].split()[-1] == "2"


def test_an_own_id_that_is_not_the_whole_id_is_named(fsmq: Command) -> None:
    asked = ("--id=bob", "--priority=3", "--attribute", "a=b")
    whole = fsmq.out("put", "jobs", *asked, stdin=b"hello").strip()
    assert whole == "p03.@bob@.h"
    hint = b"its whole id is p03.@bob@.h"
    for verb in ("ack", "release", "peek", "redrive"):
        assert hint in fsmq(verb, "jobs", "bob", code=3).stderr
    fsmq("queue", "create", "other")
    assert hint in fsmq("mv", "jobs", "other", "bob", code=3).stderr
    assert hint in fsmq("life", "jobs/bob", code=3).stderr
    assert b"whole id" not in fsmq("ack", "jobs", "bill", code=3).stderr
    fsmq("remove", "jobs", whole)


@pytest.mark.parametrize("at", ["folder", "server"])
def test_only_a_message_in_flight_is_acknowledged(suite: Suite, at: str) -> None:
    fsmq, queue = Command(suite.url if at == "server" else suite.root), f"settled-{at}"
    fsmq("queue", "create", queue)
    held = fsmq.out("put", queue, "--body=x").strip()
    [claimed] = fsmq.lines("get", queue, "--wait=20", "--visibility=1h")
    ready = fsmq.out("put", queue, "--body=x").strip()
    late = fsmq.out("put", queue, "--body=x", "--delay=1h").strip()
    eventually(lambda: fsmq.counts(queue) == {"ready": 1, "in_flight": 1, "delayed": 1})
    done = fsmq("ack", queue, ready, "nope", late, held, code=3)
    told = done.stderr.decode().splitlines()
    how = f"not in flight; to remove it all the same: fsmq remove {queue}"
    assert told == [
        f"fsmq: {ready}: it is ready, {how} {ready}",
        "fsmq: nope: it is not there",
        f"fsmq: {late}: it is delayed, {how} {late}",
    ]
    assert claimed["id"] == held
    eventually(lambda: fsmq.counts(queue) == {"ready": 1, "delayed": 1})
    assert b"nope: it is not there" in fsmq("remove", queue, ready, "nope", late, code=3).stderr
    eventually(lambda: fsmq.counts(queue) == {})


@pytest.mark.parametrize("renewed", [False, True])
def test_a_look_tells_the_name_of_a_claim(root: Path, renewed: bool) -> None:
    with Spool(root, sync="none") as spool:
        jobs = spool.queue("jobs", create=True)
        for _ in range(20):
            jobs.put(b"x", id="one")
            [message] = jobs.claim(visibility=60)
            jobs.release(message)
            [message] = jobs.claim(visibility=60)
            if renewed:
                jobs.renew(message, visibility=90)
            seen = jobs.find("one")
            assert seen is not None
            assert seen.deadline is not None
            assert claim_seen(seen.deliveries, seen.deadline) == message.claim
            # As a server tells it: to the millisecond.
            at = datetime.fromisoformat(moment(seen.deadline)).timestamp()
            assert claim_seen(seen.deliveries, at) == message.claim
            assert jobs.ack_each([message]) == ["removed"]


def test_a_closed_pipe_loses_no_message(alone: Command) -> None:
    body = b"x" * 100_000
    for _ in range(3):
        alone("put", "jobs", stdin=body)
    reading, writing = os.pipe()
    os.close(reading)
    process = alone.start("get", "jobs", "--count=3", "--ack", stdout=writing, stderr=PIPE)
    os.close(writing)
    assert b"released" in process.communicate()[1]
    assert process.returncode == 69
    assert alone.counts("jobs") == {"ready": 3}


@pytest.mark.parametrize("of", ["jobs", "users/c"])
def test_what_cannot_be_printed_is_not_delivered(alone: Command, root: Path, of: str) -> None:
    """Else it could be skipped or buried, and nobody has ever got it."""
    with Spool(root) as spool:
        log = spool.log("users", create=True)
        log.channel("c").create("first", order="none", max_deliveries=1, on_poison="skip")
        log.publish_many([b"1", b"2"])
    alone("put", "jobs", "--lines", stdin=b"1\n2\n")
    with open("/dev/full", "wb") as full:
        process = alone.start("get", of, "--count=2", stdout=full, stderr=PIPE)
    assert b"released" in process.communicate()[1]
    assert [m["deliveries"] for m in alone.lines("get", of, "--count=2", "--json")] == [1, 1]


def test_queues_are_listed_and_shown(alone: Command) -> None:
    alone("queue", "create", "mail", "visibility_timeout=5m", "max_message_bytes=64K")
    alone("put", "jobs", "--lines", stdin=b"a\nb\n")
    assert alone.out("get", "jobs") == "a"
    listed = {row["queue"]: row for row in alone.json("queue", "list")["queues"]}
    assert listed["jobs"]["messages"] == {"new": 0, "ready": 1, "in_flight": 1, "delayed": 0}
    assert 0 <= listed["jobs"]["oldest_seconds"] < 60
    assert listed["mail"]["oldest_seconds"] is None
    head, jobs, mail = alone.out("queue", "list").splitlines()
    assert head.split() == ["QUEUE", "READY", "IN", "FLIGHT", "DELAYED", "NEW", "OLDEST"]
    assert jobs.split()[:5] == ["jobs", "1", "1", "0", "0"]
    assert len(head) == len(jobs) == len(mail)
    assert alone.out("queue", "list", "m*", "--names") == "mail\n"
    alone("queue", "list", "x*", code=1)
    stat = alone.json("queue", "show", "mail")
    assert stat["settings"]["visibility_timeout"] == 300
    assert stat["settings"]["max_message_bytes"] == 65536
    shown = dict(line.split(None, 1) for line in alone.out("queue", "show", "mail").splitlines())
    assert (shown["queue"], shown["visibility_timeout"], shown["retention"]) == (
        "mail",
        "5m",
        "none",
    )


def test_settings_are_changed_reset_and_refused(alone: Command) -> None:
    alone("queue", "config", "jobs", "max_deliveries=2", "dead_letter_queue=dead", "retention=7d")
    assert alone.json("queue", "config", "jobs")["settings"]["retention"] == 604800
    alone("queue", "config", "jobs", "retention=default", "visibility_timeout=1.5")
    settings = alone.json("queue", "config", "jobs")["settings"]
    assert (settings["retention"], settings["visibility_timeout"]) == (None, 1.5)
    for wrong, says in {
        "max_deliveries=100": b"max_deliveries: must be a whole number from 1 to 99",
        "retention=often": b"retention: 'often' is not a span of time: 30, 1.5, 500ms",
        "visibility=3": b"visibility: unknown setting; did you mean visibility_timeout?",
        "retention": b"give SETTING=VALUE",
    }.items():
        assert says in alone("queue", "config", "jobs", wrong, code=2).stderr


def test_messages_are_buried_and_moved_back(alone: Command) -> None:
    alone("queue", "config", "jobs", "max_deliveries=9", "dead_letter_queue=dead")
    ids = alone.out("put", "jobs", "--lines", stdin=b"a\nb\nc\n").split()
    alone("get", "jobs", "-n3")
    alone("bury", "jobs", *ids)
    assert alone.counts("dead") == {"ready": 3}
    assert [row["dead_letters_of"] for row in alone.json("queue", "list")["queues"]] == [
        ["jobs"],
        [],
    ]
    head, dead = alone.out("queue", "list", "d*").splitlines()
    assert (head.split()[-3:], dead.split()[-1]) == (["DEAD", "LETTERS", "OF"], "jobs")
    assert b"max_deliveries" not in alone("bury", "jobs", ids[0], code=3).stderr
    alone("mv", "dead", "jobs", ids[1])
    assert alone.counts("jobs") == {"ready": 1}
    assert alone.json("mv", "dead", "jobs") == {
        "source": "dead",
        "target": "jobs",
        "moved": 2,
        "conflicts": 0,
    }
    assert alone.out("get", "jobs", "-n3", "--lines") == "a\nb\nc\n"


def test_the_priority_of_ready_messages_is_changed(alone: Command) -> None:
    first, second = alone.out("put", "jobs", "--lines", stdin=b"a\nb\n").split()
    later = alone.out("priority", "jobs", "7", first).strip()
    assert later == f"p07.{first}"
    output = alone("priority", "jobs", "9", second, "--json", "nope", code=3)
    lines = [json.loads(line) for line in output.stdout.splitlines()]
    assert [line.get("new_id") for line in lines] == [f"p09.{second}", None]
    assert alone.out("get", "jobs", "-n2", "--lines") == "a\nb\n"
    assert b"priority" in alone("priority", "jobs", "100", first, code=2).stderr


def test_mv_skips_claimed_messages_and_reports_conflicts(alone: Command) -> None:
    claimed = alone.out("put", "jobs", "--body=claimed").strip()
    assert alone.out("get", "jobs") == "claimed"
    alone("put", "jobs", "--id=same", "--body=x")
    assert alone.out("mv", "jobs", "other", "--create") == "1 message moved from jobs to other\n"
    alone("put", "jobs", "--id=same", "--body=y")
    assert b"1 message stayed" in alone("mv", "jobs", "other", code=4).stderr
    assert b"in flight" in alone("mv", "jobs", "other", claimed, code=3).stderr
    alone("mv", "jobs", "other", claimed, "--in-flight")
    assert b"no queue named 'nowhere'" in alone("mv", "jobs", "nowhere", code=3).stderr


def test_purge_and_delete_need_confirmation(alone: Command) -> None:
    alone("put", "jobs", "--lines", stdin=b"a\nb\n")
    alone("get", "jobs")
    assert b"give --yes" in alone("queue", "purge", "jobs", code=2).stderr
    assert sum(alone.counts("jobs").values()) == 2
    assert alone.out("queue", "purge", "jobs", "--yes") == "2 messages removed from jobs\n"
    assert alone.counts("jobs") == {}
    assert alone.json("queue", "delete", "jobs", "-y") == {
        "queue": "jobs",
        "deleted": True,
        "messages": 0,
    }
    assert alone.out("queue", "list", "--names") == ""


def test_errors_say_what_to_do(alone: Command, tmp_path: Path) -> None:
    output = alone("get", "mail", code=3).stderr.decode()
    assert (
        output == "fsmq: there is no queue named 'mail'\n      create it: fsmq queue create mail\n"
    )
    assert "; did you mean jobs?\n" in alone("get", "jbos", code=3).stderr.decode()
    # The advice repeats --at.
    output = alone("get", "jbos", f"--at={tmp_path}/mq", code=3).stderr.decode()
    assert f"create it: fsmq queue create jbos --at {tmp_path}/mq\n" in output
    output = alone("queue", "list", "--at", tmp_path / "nowhere", code=78).stderr.decode()
    assert "there is no spool in" in output
    assert f"fsmq up --root {tmp_path}/nowhere" in output
    assert not (tmp_path / "nowhere").exists()
    for verb in ("list", "create"):
        output = alone("queue", verb, "jobs", "--at", "localhost:8080", code=2).stderr.decode()
        assert "--at http://localhost:8080" in output
    assert b"did you mean get?" in alone("gte", code=2).stderr
    assert b"10y" in alone("put", "jobs", "--delay=10y", code=2).stderr
    assert b"queue:" in alone("put", "../x", code=2).stderr
    assert b"cannot read" in alone("put", "jobs", tmp_path / "nofile", code=2).stderr


def test_a_full_disk_at_stdout_is_reported(alone: Command) -> None:
    alone("put", "jobs", "--body=x")
    for words in (["queue", "list"], ["get", "jobs", "--ack"]):
        with open("/dev/full", "wb") as full:
            process = alone.start(*words, stdout=full, stderr=PIPE)
        assert b"No space left" in process.communicate()[1]
        assert process.returncode == 69
    assert alone.counts("jobs") == {"ready": 1}


def test_put_creates_queue_and_spool_only_with_create(tmp_path: Path) -> None:
    command = Command(tmp_path / "new")
    command("put", "jobs", "--body=x", code=78)
    command("put", "jobs", "--body=x", "--create")
    assert command.counts("jobs") == {"ready": 1}


def test_options_for_the_place_override_variables(tmp_path: Path) -> None:
    for name in ("option", "at", "root"):
        Command(tmp_path / name)("queue", "create", name)
    command = Command(tmp_path / "at")
    assert command.out("queue", "list", "--names", FSMQ_ROOT=str(tmp_path / "root")) == "at\n"
    assert command.out("queue", "list", "--names", "--at", tmp_path / "option") == "option\n"
    assert command.out("queue", "list", "--names", "--root", tmp_path / "option") == "option\n"
    assert Command("").out("queue", "list", "--names", FSMQ_ROOT=str(tmp_path / "root")) == "root\n"
    url = Command("http://127.0.0.1:1")
    assert b"log in to its host" in url("fsck", code=2).stderr
    assert "1 queue" in url.out("fsck", FSMQ_ROOT=str(tmp_path / "root"))


def test_ctrl_c_while_waiting_ends_at_once(alone: Command) -> None:
    # A program that a shell starts in the background ignores Ctrl-C.
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = alone.start("get", "jobs", "--wait=60", preexec_fn=heed)
    # It waits as soon as it watches for events.
    eventually(lambda: has_watches(process.pid))
    process.send_signal(signal.SIGINT)
    # A shell says 130 for both: Python ends by the signal if that came while a string was compiled,
    # as dataclasses and named tuples do when a module is imported.
    assert process.wait(50) in (130, -signal.SIGINT)


def has_watches(pid: int) -> bool:
    try:
        return any(
            os.readlink(f) == "anon_inode:inotify" for f in Path(f"/proc/{pid}/fd").iterdir()
        )
    except FileNotFoundError:
        return False  # a file was closed during the listing


def test_help_lists_verbs() -> None:
    listed = Command("").out("--help")
    for verb in ("put", "get", "ack", "mv", "fsck", "up"):
        assert f"  {verb} " in listed
    assert "65     buried" in Command("").out("get", "--help")


def test_verbs_work_on_a_server(suite: Suite) -> None:
    url = Command(suite.url)
    url(
        "queue",
        "create",
        "web",
        "max_deliveries=9",
        "dead_letter_queue=web.dead",
        "visibility_timeout=5m",
    )
    ids = url.out("put", "web", "--lines", stdin=b"a\nb\nc\nd\n").split()
    assert url.out("get", "web", "--wait=9") == "a"
    eventually(lambda: url.counts("web") == {"ready": 3, "in_flight": 1})
    assert [m["id"] for m in url.lines("peek", "web")] == ids[1:]
    assert [m["id"] for m in url.lines("peek", "web", "--state=in_flight")] == ids[:1]
    done = url("remove", "web", "--json", ids[1], "nope", ids[2], code=3)
    assert [json.loads(line)["done"] for line in done.stdout.splitlines()] == [True, False, True]
    changed = url.out("priority", "web", "5", ids[3]).strip()
    assert url.out("priority", "web", "0", changed).strip() == ids[3]
    url("bury", "web", ids[0])
    eventually(lambda: url.counts("web.dead") == {"ready": 1})

    def row() -> Any:
        [found] = url.json("queue", "list", "web")["queues"]
        return found if found["messages"]["ready"] == 1 else None

    assert eventually(row)["oldest_seconds"] < 60  # the counts may be a second old
    output = url("mv", "web.dead", "web.kept", ids[0], "nope", "--create", code=3).stderr
    assert b"1 message did not move" in output
    eventually(lambda: url.counts("web.kept") == {"ready": 1})
    assert url.out("get", "web", "--exec", "tr a-z A-Z; echo", "--count=1") == "D\n"
    eventually(lambda: url.counts("web") == {})  # counts may be a second old
    health = {f["name"]: f["health"] for f in url.json("doctor", code=None)["findings"]}
    assert health["mq"] == "ok"
    url("queue", "delete", "web", "-y")
    url("queue", "show", "web", code=3)


def test_an_unreachable_server_is_reported() -> None:
    done = Command("http://127.0.0.1:1")("--version")
    assert done.stdout.startswith(b"fsmq ")
    output = Command("http://127.0.0.1:1")("queue", "list", code=69).stderr.decode()
    assert output.startswith("fsmq: http://127.0.0.1:1: Connection refused\n")
    assert "is mq running there?" in output
    assert b"url:" in Command("http://")("queue", "list", code=2).stderr


def test_a_redrive_on_a_server_says_where_it_goes_on(suite: Suite) -> None:
    (suite.root / "queues" / "failed").mkdir()
    begun = Command(suite.url)("redrive", "failed")
    moves = Command(suite.url).out("move", "list")
    assert begun.stdout.decode().strip() in moves  # the reference alone, for scripts
    assert b"in the background: see fsmq move list" in begun.stderr


def test_a_misspelt_queue_of_a_put_has_a_suggestion(fsmq: Command) -> None:
    fsmq("queue", "create", "jobs")
    assert "did you mean jobs?" in fsmq("put", "jbos", "--body=x", code=3).stderr.decode()


def test_an_error_names_the_place_that_nobody_chose(alone: Command) -> None:
    alone("queue", "create", "there")
    told = alone("get", "mail", code=3).stderr.decode()
    assert "named 'mail'\n" in told
    code = (
        "import sys, pathlib\n"
        "from fsmq.cli.place import place\n"
        "place.DEFAULT_ROOT = pathlib.Path(sys.argv.pop(1))\n"
        "from fsmq.cli import main\n"
        "main(prog_name='fsmq')"
    )
    env = {k: v for k, v in environment().items() if k not in ("FSMQ_AT", "FSMQ_ROOT")}
    command = [*FSMQ[:1], "-c", code, alone.at, "get", "mail"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr == (
        f"fsmq: there is no queue named 'mail' in {alone.at}\n"
        "      create it: fsmq queue create mail; or give another place with --at or FSMQ_AT\n"
    )


def test_the_error_of_a_setting_has_the_word_of_the_command_line(fsmq: Command) -> None:
    told = fsmq("queue", "config", "jobs", "max_in_flight=null", code=2).stderr.decode()
    assert ", or none" in told
    assert ", or null" not in told
    fsmq("queue", "config", "jobs", "max_in_flight=none")


@pytest.mark.skipif(not HAS_OPENSSL, reason="there is no openssl to make a certificate with")
def test_an_unknown_authority_is_told_and_can_be_trusted(root: Path, tmp_path: Path) -> None:
    certificate, key = make(tmp_path, "server")
    options = [f"--tls-cert={certificate}", f"--tls-key={key}"]
    with Suite(root, mq_options=options) as suite:
        fsmq = Command(suite.url.replace("http://", "https://"))
        told = fsmq("queue", "list", code=69).stderr.decode()
        assert "SSL_CERT_FILE=" in told
        assert "is mq running" not in told
        fsmq("queue", "create", "jobs", SSL_CERT_FILE=str(certificate))
        assert fsmq.out("queue", "list", "--names", SSL_CERT_FILE=str(certificate)) == "jobs\n"
