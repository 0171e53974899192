"""No verb takes another file for a closed standard input, output or error."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fsmq import Client
from fsmq.spool import Spool
from tests.cli.helpers import FSMQ, commands
from tests.harness.forkserver import environment
from tests.harness.rounds import part_of
from tests.harness.suite import HOME, eventually

# Arguments with which verbs end by themselves; the others print what they lack.
_ON_JOBS = ["put", "ack", "renew", "release", "bury", "remove", "peek"]
_ON_JOBS += [f"queue {verb}" for verb in ("show", "config", "pause", "resume", "history")]
USES = {
    **{verb: ["jobs"] for verb in _ON_JOBS},
    "get": ["jobs", "--ack"],
    "queue create": ["other"],
    "queue purge": ["jobs", "--yes"],
    "queue delete": ["jobs", "--yes"],
    "topic create": ["news"],
    "topic publish": ["news"],
    "log create": ["visits"],
    "top": ["--once", "--interval=100ms"],
    "fsck": ["--pause=0"],
    "key create": ["app", "--existing", "--keys=/dev/null"],
    "completion": ["bash"],
    "pipeline report": ["--help"],
    "bench": ["--help"],
}
VERBS = [verb for verb, _ in commands() if verb != "up"]
# Verbs that read or print in their own way.
SOME = ["put", "get", "ack", "peek", "queue list", "key create", "top", "topic publish"]


def fsmq(closed: int, *arguments: str, root: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a verb with one of the three files closed."""
    return subprocess.run(
        ["sh", "-c", f'exec "$0" "$@" {closed}>&-', *FSMQ, *arguments],
        cwd=HOME,
        env=environment(FSMQ_AT=str(root)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    )


@pytest.mark.parametrize("closed", [0, 1, 2])
@pytest.mark.parametrize("verb", part_of(SOME, VERBS))
def test_a_verb_with_a_closed_file_loses_no_message(root: Path, verb: str, closed: int) -> None:
    with Spool(root, sync="none") as spool:
        spool.queue("jobs", create=True).put(b"precious")
    done = fsmq(closed, *verb.split(), *USES.get(verb, []), root=root)
    assert done.returncode != 70, done.stderr
    assert b"Traceback" not in done.stderr
    if closed == 0:
        assert verb not in ("put", "ack", "remove") or b"standard input is closed" in done.stderr
    with Spool(root, sync="none", create=False) as spool:
        spool.deliver()
        removes = verb in ("queue purge", "queue delete") or (verb == "get" and closed != 1)
        if not removes:
            assert b"precious" in [message.body for message in spool.queue("jobs").peek(9)]


def test_a_message_that_was_not_printed_is_not_acknowledged(root: Path) -> None:
    with Spool(root, sync="none") as spool:
        spool.queue("jobs", create=True).put(b"precious")
    done = fsmq(1, "get", "jobs", "--ack", root=root)
    assert (done.returncode, b"standard output is closed" in done.stderr) == (69, True)
    assert fsmq(2, "get", "jobs", "--ack", root=root).stdout == b"precious"


def test_a_message_is_put_although_its_id_was_not_printed(root: Path) -> None:
    done = fsmq(1, "put", "jobs", "--create", "--body", "x", root=root)
    assert (done.returncode, b"standard output is closed" in done.stderr) == (69, True)
    assert fsmq(0, "get", "jobs", "--ack", root=root).stdout == b"x"


@pytest.mark.parametrize("closed", ["0>&-", "1>&-", "2>&-", "0>&- 1>&- 2>&-"])
@pytest.mark.parametrize("program", ["up", "mq"])
def test_programs_run_with_closed_files(root: Path, closed: str, program: str) -> None:
    module = ["-m", "fsmq.cli", "up"] if program == "up" else ["-m", "fsmq.daemons.mq"]
    socket = root.parent / "port"
    command = [sys.executable, *module, f"--root={root}", "--port=0"]
    process = subprocess.Popen(
        ["sh", "-c", f'exec "$0" "$@" {closed}', *command],
        cwd=HOME,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=socket.open("wb"),
    )
    try:
        port = eventually(lambda: port_of(root))
        with Client(f"http://127.0.0.1:{port}") as client:
            client.queue("jobs", create=True).put(b"x")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def port_of(root: Path) -> str | None:
    """The port in the heartbeat of mq."""
    try:
        [beat] = [path for path in (root / "peers").iterdir() if path.name[0] != "."]
        return beat.read_text().partition(":")[2].split()[0] or None
    except (OSError, ValueError, IndexError):
        return None
