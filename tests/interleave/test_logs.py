"""Verbs of a log that are stopped before each of their system calls while others use the log.

Another process acts, or gives up if it would have to wait; then the verb continues. All answers
must hold at the end.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from fsmq.spool import Spool
from fsmq.spool.errors import (
    ClaimVoid,
    InvalidValue,
    LogFull,
    NoSuchChannel,
    NoSuchLog,
    NotInFlight,
    Unavailable,
    as_unavailable,
)
from fsmq.spool.fsck import check
from fsmq.spool.log.channel import Channel
from fsmq.spool.log.log import Log
from tests.interleave.gate import Actor, Gate
from tests.replay.place import scratch
from tests.spool.helpers import Clock

BEGIN = 6
# Errors that the other verb may cause: the log is locked or gone, or the claim is void.
_REFUSALS = (InvalidValue, Unavailable, LogFull, NoSuchLog, NoSuchChannel, NotInFlight, ClaimVoid)


@dataclass
class Answers:
    """The answers of all processes."""

    published: dict[int, bytes] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    sought: bool = False
    deleted: bool = False


@dataclass
class Process:
    """A process that uses the log. number: makes its messages unique."""

    spool: Spool
    number: int
    answers: Answers
    published: int = 0

    @property
    def log(self) -> Log:
        return self.spool.log("users")

    @property
    def channel(self) -> Channel:
        return self.log.channel("mailer")

    def publish(self, messages: int = 1) -> None:
        bodies = [b"%d %d" % (self.number, self.published + n) for n in range(messages)]
        self.published += messages
        offsets = self.log.publish_many(bodies)
        self.answers.published.update(zip(offsets, bodies, strict=True))

    def publish_batch(self) -> None:
        self.publish(2)

    def roll(self) -> None:
        with as_unavailable("roll"), self.log._store.writing() as tail:
            tail.roll_if_used()
        self.publish()

    def claim_and_done(self) -> None:
        messages = self.channel.claim(2)
        self.channel.ack(*messages)
        self.answers.done |= {message.offset for message in messages}

    def claim(self) -> None:
        self.channel.claim(2)

    def done(self) -> None:
        self.channel.ack(0)
        self.answers.done.add(0)

    def release(self) -> None:
        self.channel.release(1)

    def seek(self) -> None:
        self.answers.sought = True
        self.channel.seek(3)

    def settle(self) -> None:
        self.spool.open_logs.store("users").settle()

    def read(self) -> None:
        for message in self.log.read():
            was = self.answers.published.setdefault(message.offset, message.body)
            assert was == message.body, "an offset means two messages"

    def start(self) -> None:
        """Start a program that maintains all logs, and end it."""
        with Spool(self.spool.tree.root, sync="fsync", workers=1) as another:
            another.deliver()
            another.tend_logs()
            list(another.log("users").read())

    def delete(self) -> None:
        self.answers.deleted = True
        self.log.delete()

    def to_many_hosts(self) -> None:
        self.log.configure(writers="hosts")
        self.publish()

    def to_one_host(self) -> None:
        self.log.configure(writers="host")
        self.publish()


Step = Callable[[Process], None]
VERBS: tuple[Step, ...] = (
    Process.publish,
    Process.publish_batch,
    Process.roll,
    Process.claim,
    Process.claim_and_done,
    Process.done,
    Process.release,
    Process.seek,
    Process.settle,
)
OTHERS: tuple[Step, ...] = (
    Process.publish_batch,
    Process.roll,
    Process.claim_and_done,
    Process.done,
    Process.seek,
    Process.read,
    Process.delete,
    Process.to_many_hosts,
    Process.to_one_host,
    Process.start,
)
# The verbs that depend on the mode of writers.
_OF_HOSTS = (Process.publish, Process.publish_batch, Process.roll, Process.settle)


CASES = [*(("host", verb) for verb in VERBS), *(("hosts", verb) for verb in _OF_HOSTS)]
_SOME = 3  # others for each verb; the soak has all


def explore(folder: Path, writers: str, verb: Step, others: Iterable[Step] = OTHERS) -> int:
    """Run all schedules of a verb with each of the others; their number."""
    schedules = 0
    gate = Gate()
    with gate.open():
        for other in others:
            for stop in count():
                schedules += 1
                try:
                    if run(gate, folder / f"{schedules}", writers, verb, other, stop):
                        break
                except AssertionError as error:
                    names = f"{verb.__name__} x {other.__name__} at call {stop}"
                    raise AssertionError(f"{names}: {error}") from error
    return schedules


def run(gate: Gate, root: Path, writers: str, verb: Step, other: Step, stop: int) -> bool:
    """Run a schedule; whether the verb ended before the stop."""
    clock, answers = Clock(), Answers()
    spools = [Spool(root, sync="fsync", workers=1, clock=clock, delivers=False) for _ in range(3)]
    try:
        first, second, last = (Process(spool, n, answers) for n, spool in enumerate(spools))
        first.log.create(writers=writers, segment_bytes=4096)
        first.publish(3)
        first.publish(3)
        first.channel.create("first", order="none", visibility_timeout=100)
        first.channel.claim(2)
        second.read()
        actor = Actor(gate, lambda: verb(first))
        is_over = actor.run(stop)
        refused(lambda: other(second))
        while not actor.run():
            pass
        if actor.error is not None and not isinstance(actor.error, _REFUSALS):
            raise AssertionError(f"it raised {actor.error!r}") from actor.error
        if not answers.deleted:
            judge(last, clock)
    finally:
        for spool in spools:
            spool.close()
        shutil.rmtree(root)
    return is_over


def refused(step: Callable[[], None]) -> bool:
    try:
        step()
    except _REFUSALS:
        return True
    return False


def judge(last: Process, clock: Clock) -> None:
    answers = last.answers
    last.publish()
    found = {message.offset: message.body for message in last.log.read()}
    assert sorted(found) == list(range(len(found))), "there are gaps"
    for offset, body in answers.published.items():
        assert found.get(offset) == body, f"{offset} is {found.get(offset)!r}, not {body!r}"
    assert len(set(found.values())) == len(found), "a message is stored twice"
    clock.advance(1000)
    got: list[int] = []
    while messages := last.channel.claim(100):
        got += [message.offset for message in messages]
        last.channel.ack(*messages)
    assert len(set(got)) == len(got), "a message is delivered twice"
    if not answers.sought:
        assert not answers.done & set(got), "an acknowledged message is delivered"
        assert set(found) - set(got) <= answers.done | {0}, "a message is not delivered"
    findings = check(last.spool.tree, offline=True, bodies=True).findings
    assert not [one for one in findings if one.kind.value != "leftover"], findings


@pytest.mark.parametrize(
    ("writers", "verb"),
    CASES,
    ids=lambda given: given if isinstance(given, str) else given.__name__,
)
def test_no_interleaving_breaks_a_promise(writers: str, verb: Step) -> None:
    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        begin = CASES.index((writers, verb))
        some = [OTHERS[(begin + n * _SOME) % len(OTHERS)] for n in range(_SOME)]
        assert explore(Path(folder), writers, verb, some) > len(some)
