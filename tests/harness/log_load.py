"""Programs that publish to a log, claim from its channels and keep it up; and what must be true of
what they were told, whatever became of them."""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path
from subprocess import DEVNULL, Popen

from fsmq.spool import Spool
from fsmq.spool.fsck import check
from tests.harness.suite import HOME, PATIENCE_S

ORDERS = ("none", "key", "strict")
KINDS = ("publish", "publish", "none", "none", "key", "strict", "keep")

PROGRAM = """
import sys, time
from time import monotonic as now
from fsmq.spool import Spool, Unavailable
what, root, told = sys.argv[1:]
with Spool(root, delivers=False) as spool, open(told, "a", buffering=1) as file:
    log = spool.log("users")
    number = 0


    def work():
        if what == "publish":
            bodies = [f"{told} {time.time_ns()} {number} {n}" for n in range(number % 4 + 1)]
            print(now(), "begin", *[body.replace(" ", "/") for body in bodies], file=file)
            offsets = log.publish_many(bodies)
            print(now(), "end", offsets[0], *[body.replace(" ", "/") for body in bodies], file=file)
        elif what == "keep":
            spool.tend_logs()
        else:
            messages = log.channel(what).claim(5, visibility=0.5, wait=0.2)
            for message in messages:
                message.done()
                print(now(), "done", message.offset, file=file)

    while True:
        number += 1
        try:
            work()
        except Unavailable as error:
            print(now(), "refused", error, file=file)
            time.sleep(0.1)
"""


def prepare(root: Path, writers: str) -> None:
    """A log with a channel of each order."""
    with Spool(root) as spool:
        log = spool.log("users")
        log.create(writers=writers, segment_bytes=16_384)
        for order in ORDERS:
            log.channel(order).create("first", order=order)


def start(what: str, root: Path, told: Path) -> Popen[bytes]:
    """Start a program of one of the KINDS; it writes down what it is told."""
    command = [sys.executable, "-c", PROGRAM, what, str(root), str(told)]
    path = f"{HOME}:{os.environ.get('PYTHONPATH', '')}"
    environment = {**os.environ, "PYTHONPATH": path}
    return Popen(command, cwd=HOME, env=environment, stderr=DEVNULL)


class Told:
    """What programs were told, over all times that they ran."""

    def __init__(self, files: list[Path]) -> None:
        self._files = files
        self._read: dict[Path, int] = {}
        self.answered: dict[int, str] = {}
        self.begun: list[list[str]] = []
        self.done: dict[str, set[int]] = {}
        self.refused: list[str] = []

    def read(self, until: float = math.inf) -> None:
        """Take what is new. What was told after a moment (monotonic) does not count."""
        for file in self._files:
            lines = file.read_text().splitlines() if file.exists() else []
            for line in lines[self._read.get(file, 0) :]:
                at, kind, *words = line.split(" ")
                if kind == "refused":
                    self.refused.append(" ".join(words))
                elif kind == "begin":
                    self.begun.append(words)
                elif float(at) >= until:
                    continue
                elif kind == "end":
                    self.answered.update(enumerate(words[1:], int(words[0])))
                else:
                    self.done.setdefault(file.name.partition("-")[2], set()).add(int(words[0]))
            self._read[file] = len(lines)

    def judge(self, root: Path) -> None:
        """Compare with a log on which nobody works."""
        with Spool(root) as spool:
            spool.tend_logs()
            log = spool.log("users")
            found = {m.offset: m.body.decode().replace(" ", "/") for m in log.read()}
            assert sorted(found) == list(range(log.end()))
            assert {offset: found.get(offset) for offset in self.answered} == self.answered
            bodies = [found[offset] for offset in sorted(found)]
            assert len(set(bodies)) == len(bodies)
            places = {body: place for place, body in enumerate(bodies)}
            for batch in self.begun:  # contiguous, and in whole or not at all
                at = [places.get(body) for body in batch]
                first = at[0] or 0
                assert at == [None] * len(at) or at == list(range(first, first + len(at)))
            for name, offsets in self.done.items():
                channel = log.channel(name)
                again: set[int] = set()
                end = time.monotonic() + PATIENCE_S
                # The claims of the dead end, and then all that is left is handed out.
                while channel.state().position < log.end() and time.monotonic() < end:
                    messages = channel.claim(1000, wait=1.0)
                    again |= {message.offset for message in messages}
                    channel.done(*messages)
                assert not again & offsets
                assert channel.state().position == log.end()
        findings = check(root, offline=True, bodies=True).findings
        assert [
            one for one in findings if one.path.startswith("logs") and one.kind.value != "leftover"
        ] == []
