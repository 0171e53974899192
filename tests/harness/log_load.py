"""Programs that publish to a log, claim from its channels and maintain it, and a check that the log
agrees with the answers that they got, even if they were killed."""

from __future__ import annotations

import math
import multiprocessing
import os
import random
import signal
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TextIO

from fsmq.spool import Spool, Unavailable
from fsmq.spool.fsck import check
from fsmq.spool.log.channel import Channel
from tests.harness.starting import failing_now_and_then, start_once
from tests.harness.suite import PATIENCE_S

ORDERS = ("none", "key", "strict")
# The quiet ones write nothing down.
QUIET = ("keep", "start")
KINDS = ("publish", "publish", "none", "none", "key", "strict", *QUIET)
_WHOLE = "."  # at the end of each complete line
_FORK = multiprocessing.get_context("fork")  # saves the imports at each start


def work(kind: str, root: Path, told: Path, *, hold_s: float = 0.5) -> None:
    """Do one of the KINDS until killed, and write down the answers. hold_s: length of claims."""
    with Spool(root, delivers=False) as spool, told.open("a", buffering=1) as file:
        file.write("\n")  # ends an incomplete line of a killed program
        worker, chance = _Worker(kind, spool, str(told), file, hold_s), random.Random()
        while True:
            try:
                with failing_now_and_then(chance):
                    worker.step()
            except Unavailable as error:
                worker.note("refused", error)
                time.sleep(0.1)


class _Worker:
    def __init__(self, kind: str, spool: Spool, name: str, file: TextIO, hold_s: float) -> None:
        self._kind = kind
        self._spool = spool
        self._log = spool.log("users")
        self._name = name
        self._file = file
        self._hold_s = hold_s
        self._steps = 0

    def note(self, *words: object) -> None:
        print(time.monotonic(), *words, _WHOLE, file=self._file)

    def step(self) -> None:
        self._steps += 1
        if self._kind == "publish":
            self._publish()
        elif self._kind == "start":
            start_once(self._spool.tree.root)
            time.sleep(0.02)
        elif self._kind == "keep":
            self._spool.tend_logs()
        else:
            channel = self._log.channel(self._kind)
            for message in channel.claim(5, visibility=self._hold_s, wait=0.2):
                message.ack()
                self.note("done", message.offset)

    def _publish(self) -> None:
        number = self._steps
        bodies = [f"{self._name} {time.time_ns()} {number} {n}" for n in range(number % 4 + 1)]
        told = [body.replace(" ", "/") for body in bodies]
        self.note("begin", *told)
        offsets = self._log.publish_many(bodies)
        self.note("end", offsets[0], *told)


def prepare(root: Path, writers: str) -> None:
    """Create a log with a channel of each order."""
    with Spool(root) as spool:
        log = spool.log("users")
        log.create(writers=writers, segment_bytes=16_384)
        for order in ORDERS:
            log.channel(order).create("first", order=order)


def start(kind: str, root: Path, told: Path) -> BaseProcess:
    """Start a program of one of the KINDS, which writes the answers that it gets to a file."""
    process = _FORK.Process(target=_work_silently, args=(kind, root, told), daemon=True)
    process.start()
    return process


def _work_silently(kind: str, root: Path, told: Path) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)  # a simulated power cut causes errors anywhere
    work(kind, root, told)


def end(process: BaseProcess) -> None:
    """Kill it and wait for its end."""
    process.kill()
    process.join()


class Told:
    """The answers that programs got, over all their runs."""

    def __init__(self, files: list[Path]) -> None:
        self._files = files
        self._read: dict[Path, int] = {}
        self.answered: dict[int, str] = {}
        self.begun: list[list[str]] = []
        self.done: dict[str, set[int]] = {}
        self.refused: list[str] = []

    def read(self, until: float = math.inf) -> None:
        """Read new lines, without answers after a time (monotonic)."""
        for file in self._files:
            text = file.read_text() if file.exists() else ""
            lines = text.rpartition("\n")[0].split("\n")
            for line in lines[self._read.get(file, 0) :]:
                if not line.endswith(f" {_WHOLE}"):
                    continue
                at, kind, *words = line.split(" ")[:-1]
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
        """Compare with a log that no program uses."""
        with Spool(root) as spool:
            spool.tend_logs()
            log = spool.log("users")
            found = {m.offset: m.body.decode().replace(" ", "/") for m in log.read()}
            assert sorted(found) == list(range(log.end()))
            assert {offset: found.get(offset) for offset in self.answered} == self.answered
            bodies = [found[offset] for offset in sorted(found)]
            assert len(set(bodies)) == len(bodies)
            places = {body: place for place, body in enumerate(bodies)}
            for batch in self.begun:  # contiguous, and whole or missing
                at = [places.get(body) for body in batch]
                first = at[0] or 0
                assert at == [None] * len(at) or at == list(range(first, first + len(at)))
            for name, offsets in self.done.items():
                channel = log.channel(name)
                again: set[int] = set()
                end = time.monotonic() + PATIENCE_S
                # The claims of killed programs end, and the rest is delivered.
                while channel.state().position < log.end() and time.monotonic() < end:
                    messages = channel.claim(1000, wait=1.0)
                    again |= {message.offset for message in messages}
                    channel.ack(*messages)
                assert not again & offsets
                assert channel.state().position == log.end()
        findings = check(root, offline=True, bodies=True).findings
        assert [
            one for one in findings if one.path.startswith("logs") and one.kind.value != "leftover"
        ] == []


def many_messages(root: Path, writers: str, seconds: float, seed: str) -> tuple[int, list[str]]:
    """Run publishers that are killed and stopped, and a channel that follows them.

    Returns the number of messages, and the errors: each message that was answered has to be there
    once, at its offset, and in the channel.
    """
    chance, folder = random.Random(seed), root.parent
    with Spool(root) as spool:
        spool.log("users").create(writers=writers, segment_bytes=65_536)
        spool.log("users").channel("all").create("first", order="none")
    files = [folder / f"{number}-publish" for number in range(3)]
    programs = [start("publish", root, file) for file in files]
    keeper = start("keep", root, folder / "keep")
    got: dict[int, bytes] = {}
    found: list[str] = []
    end_at = time.monotonic() + seconds
    try:
        with Spool(root, delivers=False) as spool:
            channel = spool.log("users").channel("all")
            while time.monotonic() < end_at:
                found += _follow(channel, got)
                if chance.random() < 0.02:
                    number = chance.randrange(len(programs))
                    programs[number] = _disturb(programs[number], chance, root, files[number])
    finally:
        for process in (*programs, keeper):
            end(process)
    with Spool(root) as spool:
        channel = spool.log("users").channel("all")
        for _ in range(2):
            while more := len(got):
                found += _follow(channel, got)
                if len(got) == more:
                    break
        lost = channel.state().lost
        stored = {m.offset: m.body for m in spool.log("users").read("first")}
    told = Told(files)
    told.read()
    found += [f"the channel counts {lost} as lost"] if lost else []
    for offset, body in told.answered.items():
        is_stored = stored.get(offset, b"").decode().replace(" ", "/") == body
        if not is_stored or got.get(offset) != stored[offset]:
            found.append(f"{offset}: {body} was answered, {stored.get(offset)!r} is stored")
    if len(set(stored.values())) < len(stored):
        found.append("messages are stored twice")
    return len(stored), found


def _follow(channel: Channel, got: dict[int, bytes]) -> list[str]:
    """Claim and acknowledge new messages; the errors among them."""
    messages = channel.claim(500, visibility=60.0)
    again = [f"{m.offset} was handed out twice" for m in messages if m.offset in got]
    got.update((m.offset, m.body) for m in messages)
    channel.ack(*messages)
    return again


def _disturb(process: BaseProcess, chance: random.Random, root: Path, told: Path) -> BaseProcess:
    """Kill it and start another, or stop it for a moment."""
    if chance.random() < 0.5:
        end(process)
        return start("publish", root, told)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(chance.uniform(0.0, 0.7))
    os.kill(process.pid, signal.SIGCONT)
    return process
