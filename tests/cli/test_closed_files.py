"""Standard input, output or error are closed: no verb takes another file for one of them."""

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

# A way to use each verb that needs no terminal and ends by itself; the others say what they lack.
USES = {
    "put": ["jobs"],
    "get": ["jobs", "--ack"],
    "ack": ["jobs"],
    "renew": ["jobs"],
    "release": ["jobs"],
    "bury": ["jobs"],
    "peek": ["jobs"],
    "queue show": ["jobs"],
    "queue create": ["other"],
    "queue config": ["jobs"],
    "queue pause": ["jobs"],
    "queue resume": ["jobs"],
    "queue purge": ["jobs", "--yes"],
    "queue delete": ["jobs", "--yes"],
    "queue history": ["jobs"],
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
# Those that read or print in ways of their own.
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
def test_every_verb_with_one_closed(root: Path, verb: str, closed: int) -> None:
    with Spool(root, sync="none") as spool:
        spool.queue("jobs", create=True).put(b"precious")
    done = fsmq(closed, *verb.split(), *USES.get(verb, []), root=root)
    assert done.returncode != 70, done.stderr
    assert b"Traceback" not in done.stderr
    if closed == 0:
        assert verb not in ("put", "ack") or b"standard input is closed" in done.stderr
    with Spool(root, sync="none", create=False) as spool:
        spool.deliver()
        if verb not in ("queue purge", "queue delete") and (verb, closed) not in (
            ("get", 0),
            ("get", 2),
        ):
            assert b"precious" in [message.body for message in spool.queue("jobs").peek(9)]


def test_nothing_is_acknowledged_that_was_printed_nowhere(root: Path) -> None:
    with Spool(root, sync="none") as spool:
        spool.queue("jobs", create=True).put(b"precious")
    done = fsmq(1, "get", "jobs", "--ack", root=root)
    assert (done.returncode, b"standard output is closed" in done.stderr) == (69, True)
    assert fsmq(2, "get", "jobs", "--ack", root=root).stdout == b"precious"


def test_what_is_put_is_put_though_its_id_is_printed_nowhere(root: Path) -> None:
    done = fsmq(1, "put", "jobs", "--create", "--body", "x", root=root)
    assert (done.returncode, b"standard output is closed" in done.stderr) == (69, True)
    assert fsmq(0, "get", "jobs", "--ack", root=root).stdout == b"x"


@pytest.mark.parametrize("closed", ["0>&-", "1>&-", "2>&-", "0>&- 1>&- 2>&-"])
@pytest.mark.parametrize("program", ["up", "mq"])
def test_programs_serve_all_the_same(root: Path, closed: str, program: str) -> None:
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
    """As mq tells the other hosts."""
    try:
        [beat] = [path for path in (root / "peers").iterdir() if path.name[0] != "."]
        return beat.read_text().partition(":")[2].split()[0] or None
    except (OSError, ValueError, IndexError):
        return None
