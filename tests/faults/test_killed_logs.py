"""Programs that publish, claim, merge and keep up logs are killed at any moment.

What was answered is there, at its offset; what was done stays done; nothing needs a repair.
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path
from subprocess import Popen

import pytest

from fsmq.spool import Spool
from fsmq.spool.fsck import check
from tests.harness.suite import HOME

PROGRAM = """
import sys, time
from fsmq.spool import Spool
what, root, told = sys.argv[1:4]
with Spool(root, delivers=False) as spool, open(told, "a", buffering=1) as file:
    log = spool.log("users")
    number = 0
    while True:
        if what == "publish":
            number += 1
            bodies = [f"{told} {time.time_ns()} {number} {n}" for n in range(number % 4 + 1)]
            print("begin", *[body.replace(" ", "/") for body in bodies], file=file)
            offsets = log.publish_many(bodies)
            print("end", offsets[0], *[body.replace(" ", "/") for body in bodies], file=file)
        elif what == "keep":
            spool.tend_logs()
        else:
            messages = log.channel(what).claim(5, visibility=0.5, wait=0.2)
            for message in messages:
                message.done()
                print("done", message.offset, file=file)
"""


def start(what: str, root: Path, told: Path) -> Popen[bytes]:
    command = [sys.executable, "-c", PROGRAM, what, str(root), str(told)]
    return Popen(command, cwd=HOME, env={**os.environ, "PYTHONPATH": str(HOME)})


@pytest.mark.parametrize("writers", ["host", "hosts"])
def test_killed_programs_lose_nothing(tmp_path: Path, writers: str) -> None:
    root, rng = tmp_path / "mq", random.Random(5)
    with Spool(root) as spool:
        log = spool.log("users")
        log.create(writers=writers, segment_bytes=16_384)
        for order in ("none", "key", "strict"):
            log.channel(order).create("first", order=order)
    kinds = ["publish", "publish", "none", "none", "key", "strict", "keep"]
    files = [tmp_path / f"{number}-{what}" for number, what in enumerate(kinds)]
    running = [start(what, root, file) for what, file in zip(kinds, files, strict=True)]
    end, killed = time.monotonic() + 9, 0
    try:
        while time.monotonic() < end:
            number = rng.randrange(len(kinds))
            file = files[number]
            size = file.stat().st_size if file.exists() else 0
            deadline = time.monotonic() + 1.0
            while kinds[number] != "keep" and time.monotonic() < deadline:
                if file.exists() and file.stat().st_size > size:
                    break  # it is at work
                time.sleep(rng.random() * 0.02)
            running[number].kill()
            running[number].wait()
            killed += 1
            running[number] = start(kinds[number], root, file)
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert killed > 10
    judge(root, files)


def judge(root: Path, files: list[Path]) -> None:
    answered: dict[int, str] = {}
    begun: list[list[str]] = []
    done: dict[str, set[int]] = {}
    for file in files:
        for line in file.read_text().splitlines() if file.exists() else ():
            kind, *words = line.split(" ")
            if kind == "begin":
                begun.append(words)
            elif kind == "end":
                answered.update(enumerate(words[1:], int(words[0])))
            else:
                done.setdefault(file.name.partition("-")[2], set()).add(int(words[0]))
    with Spool(root) as spool:
        spool.tend_logs()
        log = spool.log("users")
        found = {m.offset: m.body.decode().replace(" ", "/") for m in log.read()}
        assert sorted(found) == list(range(log.end()))
        assert len(answered) > 30
        assert {offset: found[offset] for offset in answered} == answered
        bodies = [found[offset] for offset in sorted(found)]
        assert len(set(bodies)) == len(bodies)
        places = {body: place for place, body in enumerate(bodies)}
        for batch in begun:  # contiguous, and in whole or not at all
            at = [places.get(body) for body in batch]
            assert at == [None] * len(at) or at == list(range(at[0] or 0, (at[0] or 0) + len(at)))
        for name, offsets in done.items():
            channel = log.channel(name)
            time.sleep(0.6)  # the claims of the dead end
            again = set()
            while messages := channel.claim(1000):
                again |= {message.offset for message in messages}
                channel.done(*messages)
            assert not again & offsets
            assert channel.state().position == log.end()
    findings = check(root, offline=True, bodies=True).findings
    assert [f for f in findings if f.path.startswith("logs") and f.kind.value != "leftover"] == []
