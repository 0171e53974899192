"""`fsmq get --exec`: the exit code of its command settles a message."""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from fsmq.spool import Spool
from tests.cli.helpers import FSMQ, Command, environment
from tests.harness.suite import PATIENCE_S, Suite, eventually

Worker = subprocess.Popen[bytes]
Start = Callable[..., Worker]
# `fsmq` whose worker learns late that its command has begun: when the test opens a fifo.
LATE = """
import subprocess
from fsmq.cli import main

class Late(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        if arguments[0][0] == "/bin/sh":
            open("begun").close()

subprocess.Popen = Late
main(prog_name="fsmq")
"""


@pytest.fixture
def fsmq(root: Path) -> Command:
    """The command on a folder with the queue ``jobs`` and dead letters; no program runs."""
    command = Command(root)
    command("queue", "create", "jobs", "max_deliveries=3", "dead_letter_queue=dead")
    return command


@pytest.fixture
def worker(fsmq: Command, tmp_path: Path) -> Iterator[Start]:
    """Starts workers, on ``jobs`` unless told otherwise, each for a command of the shell."""
    running: list[Worker] = []

    def start(
        command: str,
        *options: str,
        cwd: Path = tmp_path,
        at: str | None = None,
        program: Sequence[str] = FSMQ,
        of: str = "jobs",
    ) -> Worker:
        running.append(
            subprocess.Popen(
                [*program, "get", of, "--exec", command, *options],
                cwd=cwd,
                env=environment(FSMQ_AT=at or fsmq.at),
                stderr=subprocess.PIPE,
            )
        )
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def ended(process: Worker, code: int = 0) -> str:
    """Wait for the end of a worker; its stderr."""
    output = process.communicate(timeout=60)[1].decode()
    assert process.returncode == code, output
    return output


def next_line(process: Worker) -> bytes:
    """The next line that a worker prints on stderr."""
    assert process.stderr is not None
    assert select.select([process.stderr], [], [], PATIENCE_S)[0], "the worker prints nothing"
    return process.stderr.readline()


def test_a_command_gets_the_body_and_facts_of_a_message(
    fsmq: Command, worker: Start, tmp_path: Path
) -> None:
    body = bytes(range(256)) * 1000
    message_id = fsmq.out("put", "jobs", "-atrace-id=8f2", "--priority=7", stdin=body).strip()
    facts = "$FSMQ_ID $FSMQ_QUEUE $FSMQ_DELIVERIES $FSMQ_PRIORITY $FSMQ_ATTRIBUTE_TRACE_ID"
    output = ended(worker(f'cat > body; echo "{facts}" > facts', "--count=1"))
    assert output == ""
    assert (tmp_path / "body").read_bytes() == body
    assert (tmp_path / "facts").read_text() == f"{message_id} jobs 1 7 8f2\n"
    eventually(lambda: fsmq.counts("jobs") == {})


def test_a_command_inherits_the_spool_of_its_worker(
    fsmq: Command, worker: Start, root: Path
) -> None:
    fsmq("put", "jobs", "--body=x")
    relative = os.path.relpath(root)
    put = f"cd /; {shlex.join(FSMQ)} put jobs.done --create"
    ended(worker(put, "--count=1", f"--at={relative}", cwd=Path.cwd(), at="/nowhere"))
    assert fsmq.counts("jobs.done") == {"ready": 1}


def test_a_failure_is_retried_with_backoff_and_then_buried(
    fsmq: Command, worker: Start, tmp_path: Path
) -> None:
    fsmq("put", "jobs", "--body=x")
    process = worker("date +%s.%N >> tries; exit 9", "--count=3", "--backoff=0.4")
    output = ended(process).splitlines()
    assert [line.partition(": ")[2].partition(": ")[2] for line in output] == [
        "exit code 9, delivery 1: again in 0.4 s",
        "exit code 9, delivery 2: again in 0.8 s",
        "exit code 9, delivery 3: its deliveries are used up",
    ]
    tries = [float(line) for line in (tmp_path / "tries").read_text().split()]
    assert tries[1] - tries[0] >= 0.4
    assert tries[2] - tries[1] >= 0.8
    eventually(lambda: (fsmq.counts("jobs"), fsmq.counts("dead")) == ({}, {"ready": 1}))
    assert reasons(fsmq, "dead") == ["max_deliveries: exit code 9"]


def reasons(command: Command, dead: str) -> list[str]:
    """The reasons of the messages in a dead-letter queue."""
    return [letter["dead_letter"]["reason"] for letter in command.lines("peek", dead)]


def test_a_dead_letter_of_a_server_names_the_last_failure(suite: Suite, worker: Start) -> None:
    server = Command(suite.url)
    server("put", "jobs", "--create", "--body=x")
    server("queue", "config", "jobs", "max_deliveries=1", "dead_letter_queue=jobs.dead")
    ended(worker("kill -9 $$", "--count=1", at=suite.url))
    eventually(lambda: server.counts("jobs.dead") == {"ready": 1})
    assert reasons(server, "jobs.dead") == ["max_deliveries: signal 9"]
    server("queue", "delete", "jobs", "--yes")
    server("queue", "delete", "jobs.dead", "--yes")


def test_exit_code_65_buries_the_message(fsmq: Command, worker: Start) -> None:
    fsmq("put", "jobs", "--body=x")
    assert "exit code 65: buried: moved" in ended(worker("exit 65", "--count=1"))
    eventually(lambda: (fsmq.counts("jobs"), fsmq.counts("dead")) == ({}, {"ready": 1}))


def test_exit_code_65_is_a_failure_without_a_dead_letter_queue(
    fsmq: Command, worker: Start
) -> None:
    fsmq("queue", "config", "jobs", "max_deliveries=default", "dead_letter_queue=default")
    fsmq("put", "jobs", "--body=x")
    output = ended(worker("exit 65", "--count=1", "--backoff=1h", "--backoff-max=2h"))
    assert "cannot be buried" in output
    assert "again in 3600 s" in output
    eventually(lambda: fsmq.counts("jobs") == {"delayed": 1})


@pytest.mark.parametrize("command", ["", " \n"])
def test_an_empty_command_acknowledges_nothing(fsmq: Command, command: str) -> None:
    fsmq("put", "jobs", "--body=x")
    done = fsmq("get", "jobs", "--exec", command, "--wait=1", code=2)
    assert b"'--exec'" in done.stderr
    assert fsmq.counts("jobs") == {"ready": 1}


@pytest.mark.parametrize("code", [126, 127])
def test_a_command_that_cannot_be_run_ends_the_worker(
    fsmq: Command, worker: Start, tmp_path: Path, code: int
) -> None:
    fsmq("put", "jobs", "--lines", stdin=b"a\nb\nc\n")
    (tmp_path / "plain").touch(mode=0o600)
    command = "./plain" if code == 126 else "./not-there"
    output = ended(worker(command, "--concurrency=2"), 78)
    assert f"fsmq: the command cannot be run: exit code {code}, it is not " in output
    assert fsmq.counts("jobs") == {"ready": 3}
    assert {m["deliveries"] for m in fsmq.lines("peek", "jobs", "--count=3")} == {0}


def test_a_command_that_cannot_be_run_delivers_no_message_of_a_channel(
    fsmq: Command, worker: Start, root: Path
) -> None:
    with Spool(root) as spool:
        log = spool.log("users", create=True)
        channel = log.channel("c")
        channel.create("first", order="none", max_deliveries=1, on_poison="skip")
        log.publish("x")
        ended(worker("./not-there", of="users/c"), 78)
        assert [message.deliveries for message in channel.claim()] == [1]


def test_a_command_that_cannot_be_run_ends_the_worker_of_a_server(
    suite: Suite, worker: Start
) -> None:
    """Its other slots may claim the released message once more."""
    server = Command(suite.url)
    server("put", "jobs", "--create", "--body=x")
    output = ended(worker("./not-there", "--concurrency=2", at=suite.url), 78)
    assert "exit code 127" in output
    eventually(lambda: server.counts("jobs") == {"ready": 1})
    assert [m["deliveries"] for m in server.lines("peek", "jobs")] == [1]
    server("queue", "purge", "jobs", "--yes")


@pytest.mark.parametrize("options", [["--exec", "true", "--visibility=9"], ["--wait=9"]])
def test_an_unreachable_server_is_reported_at_once(options: list[str]) -> None:
    at = "http://127.0.0.1:1"
    process = Command(at).start("get", "jobs", *options, stderr=subprocess.PIPE)
    try:
        output = next_line(process).decode()
        assert output == f"fsmq: cannot connect, trying again: {at}: Connection refused\n"
    finally:
        process.kill()
        process.communicate()


def test_concurrency_limits_the_running_commands(
    fsmq: Command, worker: Start, tmp_path: Path
) -> None:
    fsmq("put", "jobs", "--lines", stdin=b"a\nb\nc\nd\n")
    # Each waits for three to run; a fourth must not start.
    (tmp_path / "gate").mkdir()
    wait = "while [ $(ls gate | wc -l) -lt 3 ]; do sleep 0.02; done; sleep 0.3; ls gate | wc -l"
    script = f"touch gate/$FSMQ_ID; {wait} >> seen"
    ended(worker(script, "--count=3", "--concurrency=3"))
    assert (tmp_path / "seen").read_text() == "3\n3\n3\n"
    eventually(lambda: sum(fsmq.counts("jobs").values()) == 1)


def test_a_claim_is_renewed_while_the_command_runs(
    fsmq: Command, worker: Start, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "gate")
    message_id = fsmq.out("put", "jobs", "--body=x").strip()
    process = worker("read go < gate", "--visibility=4", "--count=1")
    delay = Path(fsmq.at) / "delay" / f"jobs:{message_id}"
    eventually(delay.exists)
    first = delay.stat().st_mtime
    # Renewed at least twice.
    eventually(lambda: delay.stat().st_mtime > first + 2.5)
    (tmp_path / "gate").write_text("go\n")
    assert ended(process) == ""
    eventually(lambda: fsmq.counts("jobs") == {})


def test_stop_removed_ends_the_command_of_a_removed_message(
    fsmq: Command, worker: Start, tmp_path: Path
) -> None:
    message_id = fsmq.out("put", "jobs", "--body=x").strip()
    script = "trap 'touch ended; exit 0' TERM; touch started; sleep 1000 & wait"
    process = worker(script, "--count=1", "--stop-removed")
    eventually((tmp_path / "started").exists)
    fsmq("ack", "jobs", message_id)
    assert ended(process) == f"fsmq: {message_id}: it was removed: its command is ended\n"
    assert (tmp_path / "ended").exists()


def test_a_lost_claim_is_left_to_the_other_consumer(
    fsmq: Command, worker: Start, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "gate")
    message_id = fsmq.out("put", "jobs", "--body=x").strip()
    process = worker("touch started; read go < gate", "--count=1", "--visibility=1h")
    eventually((tmp_path / "started").exists)
    fsmq("release", "jobs", message_id)
    [other] = fsmq.lines("get", "jobs", "--wait=20")
    assert (other["id"], other["deliveries"]) == (message_id, 2)
    (tmp_path / "gate").write_text("go\n")
    assert "the claim was lost; another consumer may have it" in ended(process)
    assert fsmq.counts("jobs") == {"in_flight": 1}
    fsmq("ack", "jobs", message_id, "--claim", "c1-00", code=3)
    fsmq("ack", "jobs", message_id, "--claim", other["claim"])
    assert fsmq.counts("jobs") == {}


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_message_that_is_claimed_again_is_renewed(
    fsmq: Command, worker: Start, tmp_path: Path, concurrency: int
) -> None:
    """Otherwise no command that takes longer than a claim would ever finish."""
    gates, started = ([tmp_path / f"{name}{n}" for n in (1, 2)] for name in ("gate", "started"))
    for gate in gates:
        os.mkfifo(gate)
    message_id = fsmq.out("put", "jobs", "--body=x").strip()
    script = "touch started$FSMQ_DELIVERIES; read go < gate$FSMQ_DELIVERIES"
    process = worker(script, "--visibility=2", "--count=2", f"--concurrency={concurrency}")
    eventually(started[0].exists)
    fsmq("release", "jobs", message_id)
    next_line(process)  # a renewal has found the claim ended
    if concurrency == 2:
        eventually(started[1].exists)
    gates[0].write_text("go\n")
    assert b"the claim was lost" in next_line(process)
    eventually(started[1].exists)
    delay = Path(fsmq.at) / "delay" / f"jobs:{message_id}"
    first = delay.stat().st_mtime
    eventually(lambda: delay.stat().st_mtime > first + 2.5)
    gates[1].write_text("go\n")
    assert ended(process) == ""


def test_a_stop_lets_the_command_finish(fsmq: Command, worker: Start, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    fsmq("put", "jobs", "--lines", stdin=b"a\nb\n")
    process = worker("touch started; read go < gate; touch done")
    eventually((tmp_path / "started").exists)
    process.send_signal(signal.SIGTERM)
    assert b"a second signal ends it" in next_line(process)  # the signal was handled
    (tmp_path / "gate").write_text("go\n")
    ended(process)
    assert (tmp_path / "done").exists()
    # The second message was not claimed.
    assert fsmq.lines("get", "jobs")[0]["body"] == "b"


def test_a_signal_sent_twice_at_once_counts_once(
    fsmq: Command, worker: Start, tmp_path: Path
) -> None:
    """`timeout` signals the program and its group."""
    os.mkfifo(tmp_path / "gate")
    fsmq("put", "jobs", "--body=x")
    process = worker("touch started; read go < gate; touch done")
    eventually((tmp_path / "started").exists)
    for _ in range(2):
        process.send_signal(signal.SIGTERM)
    (tmp_path / "gate").write_text("go\n")
    ended(process)
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize("is_late", [False, True])
def test_a_second_signal_ends_the_command_and_releases(
    fsmq: Command, worker: Start, tmp_path: Path, is_late: bool
) -> None:
    """Also when the worker has just started its command and does not know it yet."""
    os.mkfifo(tmp_path / "begun")
    fsmq("put", "jobs", "--body=x")
    program = [sys.executable, "-c", LATE] if is_late else FSMQ
    process = worker("touch started; exec sleep 60", program=program)
    eventually((tmp_path / "started").exists)
    process.send_signal(signal.SIGINT)
    assert b"a second signal ends it" in next_line(process)
    process.send_signal(signal.SIGTERM)
    if is_late:
        (tmp_path / "begun").write_text("")
    ended(process, 130)
    eventually(lambda: fsmq.counts("jobs") == {"ready": 1})


def test_a_kill_of_a_worker_ends_its_command_and_redelivers(
    fsmq: Command, worker: Start, tmp_path: Path
) -> None:
    fsmq("put", "jobs", "--body=x")
    process = worker("echo $$ > pid; exec sleep 60", "--visibility=1")
    pid = eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    process.kill()
    process.wait()
    eventually(lambda: not Path(f"/proc/{pid}").exists() or is_zombie(int(pid)))
    assert fsmq.lines("get", "jobs", "--wait=60")[0]["deliveries"] == 2


def is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_worker_ends_when_its_queue_is_deleted(fsmq: Command, worker: Start) -> None:
    process = worker("true")
    started = time.monotonic()
    fsmq("put", "jobs", "--body=x")
    eventually(lambda: fsmq.counts("jobs") == {})
    fsmq("queue", "delete", "jobs", "-y")
    assert "there is no queue named 'jobs'" in ended(process, 3)
    assert time.monotonic() - started < 30


def test_a_worker_survives_a_restart_of_its_server(tmp_path: Path) -> None:
    with Suite(tmp_path / "mq") as suite:
        command = Command(suite.url)
        command("queue", "create", "jobs")
        script = "cat; echo >> started; until [ -e go ]; do sleep 0.1; done"
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = command.start("get", "jobs", "--exec", script, cwd=tmp_path, **pipes)
        try:
            command("put", "jobs", "--body=first ")
            eventually((tmp_path / "started").exists)
            suite.kill("mq")
            # mq is down: nothing can be acknowledged or claimed.
            (tmp_path / "go").touch()
            suite.restart("mq")
            command("put", "jobs", "--body=second")
            # Counts may be old: wait for both commands first.
            eventually(lambda: len((tmp_path / "started").read_text()) >= 2)
            eventually(lambda: command.counts("jobs") == {})
            process.terminate()
            assert process.communicate(timeout=60)[0] == b"first second"
            assert process.returncode == 0
        finally:
            process.kill()
            process.communicate()


# -- several queues --------------------------------------------------------------------------------


@pytest.fixture(params=["folder", "server"])
def several(request: pytest.FixtureRequest, root: Path) -> Iterator[Command]:
    """The command on a spool with three queues whose messages have the same ids."""
    names = ("high", "low", "tenant-a")
    with Spool(root) as spool:
        for name in names:
            queue = spool.queue(name, create=True)
            for number in range(3):
                queue.put(name, id=str(number))
        spool.queue("high").configure(max_deliveries=3, dead_letter_queue="dead")

        def all_ready() -> bool:
            spool.deliver()
            return all(spool.queue(name).counts().ready == 3 for name in names)

        eventually(all_ready)
    if request.param == "folder":
        yield Command(root)
        return
    with Suite(root) as suite:
        yield Command(suite.url)


def test_exec_takes_messages_of_several_queues(several: Command, tmp_path: Path) -> None:
    done = tmp_path / "done"
    command = f'echo "$FSMQ_QUEUE $(cat)" >> {shlex.quote(str(done))}'
    several("get", "high,low", "--exec", command, "--count", "4")
    assert done.read_text().split("\n") == ["high high"] * 3 + ["low low"] + [""]
    several("get", "tenant-*:9,low:1", "--exec", command, "-c", "4", "--wait", "0.5")
    assert sorted(done.read_text().split("\n")[4:-1]) == ["low low"] * 2 + ["tenant-a tenant-a"] * 3
    eventually(lambda: several.counts("low") == several.counts("tenant-a") == {})


def test_exec_settles_each_message_in_its_queue(several: Command) -> None:
    exits = 'case "$FSMQ_QUEUE" in high) exit 65;; low) exit 1;; esac'
    done = several(
        "get", "high,low,t*", "--exec", exits, "--count", "9", "-c", "9", "--backoff", "1h"
    )
    assert b"buried" in done.stderr
    # Counts of a server may be a little old.
    left = {"high": {}, "tenant-a": {}, "low": {"delayed": 3}, "dead": {"ready": 3}}
    eventually(lambda: {queue: several.counts(queue) for queue in left} == left)


def test_get_acknowledges_in_several_queues(several: Command) -> None:
    printed = several.out("get", "low,high", "-n", "4", "--lines", "--ack").splitlines()
    assert printed == ["low"] * 3 + ["high"]
    [one] = several.lines("get", "low,t*")
    assert (one["queue"], one["body"]) == ("tenant-a", "tenant-a")
    assert several.counts("high") == {"ready": 2}
    assert several.counts("low") == {}
    assert several.counts("tenant-a") == {"ready": 2, "in_flight": 1}
    several("get", "low,x*", code=1)
    several("get", "low,none", code=3)
    several("get", "low,low", code=2)


def test_a_worker_tells_once_that_it_waits(fsmq: Command, worker: Start) -> None:
    process = worker("cat >/dev/null", "--count=2")
    assert next_line(process) == b"fsmq: waiting for messages in jobs\n"
    fsmq("put", "jobs", "--lines", stdin=b"a\nb\n")
    assert ended(process) == ""
    done = fsmq("get", "jobs", "--exec", "cat", "--wait=1100ms")
    assert done.stderr == b""
