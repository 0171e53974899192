"""A publish makes the same system calls however many channels there are."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fsmq.spool import Spool
from tests.harness.suite import HOME

PROGRAM = """
import os, sys
from fsmq.spool import Spool
with Spool(sys.argv[1], sync="fsync", delivers=False) as spool:
    log = spool.log("users")
    log.publish(body := b"first", id=ID)
    for body in (b"x", b"y" * 5000):
        os.path.exists("/begin")
        log.publish(body, id=ID)
        os.path.exists("/end")
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("writers", ["host", "hosts"])
def test_a_publish_makes_the_same_calls_with_1000_channels(root: Path, writers: str) -> None:
    with Spool(root, sync="none") as spool:
        log = spool.log("users")
        log.create(writers=writers)
        none = calls(root)
        for number in range(1000):
            log.channel(f"c{number}", create=True)
        assert len(log.channels()) == 1000
        many = calls(root)
    assert [call for call, _ in many] == [call for call, _ in none]
    assert not [line for _, line in many if "channels" in line]
    assert 5 < len(none) < 70


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_publish_with_an_id_reads_no_messages_of_this_process(root: Path) -> None:
    with Spool(root, sync="none") as spool:
        spool.log("users", create=True)
        without = calls(root)
        assert [call for call, _ in calls(root, "str(len(body))")] == [c for c, _ in without]


def calls(root: Path, own: str = "None") -> list[tuple[str, str]]:
    """The system calls of two publishes in a new process. own: Python code for their ids."""
    program = PROGRAM.replace("ID", own)
    done = subprocess.run(
        ["strace", "-f", "-o", "/dev/stdout", sys.executable, "-c", program, str(root)],
        cwd=HOME,
        env={**os.environ, "PYTHONPATH": str(HOME)},
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[tuple[str, str]] = []
    is_publishing = False
    for line in done.stdout.splitlines():
        if '"/begin"' in line or '"/end"' in line:
            is_publishing = '"/begin"' in line
            continue
        match = re.match(r"\d+ +(\w+)\(", line)
        # Not the interpreter's memory management and locks.
        if is_publishing and match and match[1] not in ("brk", "mmap", "munmap", "futex"):
            found.append((match[1], line))
    return found
