"""Logs of many hosts whose lock does not hold: writers are stopped before each of their calls.

Each host has its own spool, and no locks work, as when a server dropped the lock of a silent host.
One writer is stopped before a call, others publish, and it continues. Answered messages must be in
the log at the offset of the answer.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path

import pytest

from fsmq.spool import Spool
from fsmq.spool.errors import FsmqError, Unavailable
from fsmq.spool.log.logs import Logs
from fsmq.spool.log.retention import Retention
from fsmq.spool.log.segment.checkpoint import LockFile
from tests.harness.rounds import part_of

CALLS = ("open", "pwrite", "ftruncate", "stat", "fdatasync", "fsync", "listdir", "unlink", "rename")


@pytest.fixture(autouse=True)
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LockFile, "lock", lambda lock, patience_s=0.0: None)
    monkeypatch.setattr(LockFile, "unlock", lambda lock: None)
    monkeypatch.setattr(Logs, "held", lambda logs, name, **more: nullcontext())


class Stopped:
    """Work in a thread that is stopped before one of its calls until it may continue."""

    def __init__(self, work: Callable[[], None], call: int) -> None:
        self._work = work
        self._call = call
        self._seen = 0
        self._there = threading.Event()
        self._continue = threading.Event()
        self.was_stopped = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._there.wait(30)

    def _run(self) -> None:
        _stopped[threading.get_ident()] = self
        try:
            self._work()
        finally:
            del _stopped[threading.get_ident()]
            self._there.set()

    def count_call(self) -> None:
        self._seen += 1
        if self._seen == self._call:
            self.was_stopped = True
            self._there.set()
            assert self._continue.wait(60)

    def resume(self) -> None:
        self._continue.set()
        self._thread.join()


_stopped: dict[int, Stopped] = {}


@pytest.fixture(autouse=True)
def stops(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopping(call: Callable[..., object]) -> Callable[..., object]:
        def make(*args: object, **options: object) -> object:
            mine = _stopped.get(threading.get_ident())
            if mine is not None:
                mine.count_call()
            return call(*args, **options)

        return make

    for name in CALLS:
        monkeypatch.setattr(os, name, stopping(getattr(os, name)))


class Story:
    """Three hosts with one log, and their answers."""

    def __init__(self, root: Path, held: ExitStack) -> None:
        self.root = root
        spools = [held.enter_context(Spool(root, sync="none", delivers=False)) for _ in range(3)]
        self.logs = [spool.log("users") for spool in spools]
        self.logs[0].create(writers="hosts", segment_bytes=4096, retain_for=0)
        self.answered: dict[int, bytes] = {}
        self.removed = 0

    def publish(self, host: int, body: bytes, tries: int = 1) -> None:
        for _ in range(tries):
            try:
                offset = self.logs[host].publish(body)
            except Unavailable:
                continue
            assert offset not in self.answered
            self.answered[offset] = body
            return
        assert tries == 1, "nobody was in the way"

    def retire(self, host: int) -> None:
        """Remove all segments but the newest, as retention may."""
        for _ in range(3):
            try:
                log = self.logs[host]
                self.removed += Retention(log._logs, log._store).step()
            except FsmqError:
                continue

    def check(self) -> None:
        with Spool(self.root, sync="none", delivers=False) as spool:
            log = spool.log("users")
            offset = log.publish(b"last")
            assert offset not in self.answered
            found = {message.offset: message.body for message in log.read()}
            there = {o: body for o, body in self.answered.items() if o >= log.first()}
            assert {o: found.get(o) for o in there} == there
            assert log.first() == 0 or self.removed
            assert sorted(found) == list(range(log.first(), offset + 1))
            for log in self.logs:
                assert [found.get(m.offset) for m in log.read()] == [m.body for m in log.read()]


def begin(folder: Path, held: ExitStack, how: str) -> Story:
    story = Story(folder, held)
    if how != "new":
        story.publish(0, b"first", 3)
    if how == "was here":
        story.publish(1, b"second", 3)
    if how == "rolls":
        story.publish(0, bytes(5000), 3)
    return story


@pytest.mark.slow
@pytest.mark.parametrize("how", ["new", "in its turn", "was here", "rolls"])
@pytest.mark.parametrize("between", ["publishes", "rolls", "retention"])
def test_a_writer_is_stopped_before_a_call(tmp_path: Path, how: str, between: str) -> None:
    call = 0
    while True:
        call += 1
        with ExitStack() as held:
            story = begin(tmp_path / str(call), held, how)
            stopped = Stopped(lambda story=story: story.publish(0, b"stopped"), call)  # type: ignore[misc]
            for number in range(3):
                large = bytes(5000) if between != "publishes" else b""
                story.publish(1 + number % 2, b"%d" % number + large, 5)
            if between == "retention":
                story.retire(1)
            stopped.resume()
            story.publish(0, b"again", 5)
            story.check()
            if not stopped.was_stopped:
                break
    assert call > 10


PAIRS = [
    (how, first, second)
    for how in ("in its turn", "was here", "rolls")
    for first in range(1, 64)
    for second in range(1, 96)
]


@pytest.mark.slow
@pytest.mark.parametrize("in_order", [False, True])
def test_two_writers_are_stopped_before_a_call(tmp_path: Path, in_order: bool) -> None:
    for number, (how, first, second) in enumerate(part_of(PAIRS[::97], PAIRS)):
        with ExitStack() as held:
            story = begin(tmp_path / str(number), held, how)
            one = Stopped(lambda story=story: story.publish(0, b"one"), first)  # type: ignore[misc]
            two = Stopped(lambda story=story: story.publish(1, b"two"), second)  # type: ignore[misc]
            story.publish(2, b"between", 5)
            for stopped in (one, two) if in_order else (two, one):
                stopped.resume()
                story.publish(2, b"behind", 5)
            story.publish(0, b"again", 5)
            story.check()
