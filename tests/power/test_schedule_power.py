"""Power cuts under movers that put what a schedule says, a consumer, and who defines schedules.

Each moment has one message, which comes once; what was acknowledged stands. Two movers, as of two
hosts whose clocks differ, work at once; time passes fast, so that there is a moment every few
milliseconds.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fsmq.spool import FsmqError, NoSuchSchedule, Spool
from fsmq.spool.durability.sync import SyncMode
from fsmq.spool.fsck import Severity, check
from fsmq.spool.schedules.schedule_files import ScheduleFiles
from tests.harness.suite import eventually
from tests.power.disk import CannotMount, Cut, Disk

JOBS, TICKS = "jobs", "ticks"
DEFINED = ("one", "two", "three")
SPEED, AHEAD_S, HOLD_S = 25.0, 5.0, 60.0
ROUNDS, LOAD_S = 3, 0.6
Now = Callable[[], float]


def clock(began: float, ahead: float = 0.0) -> Now:
    """Unix seconds that pass fast. began: of ``time.monotonic()``."""
    return lambda: BEGIN + (time.monotonic() - began) * SPEED + ahead


BEGIN = float(int(time.time()))


class Log:
    """What one program has begun, and been told."""

    def __init__(self, path: Path) -> None:
        self._out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def begin(self, what: str, one: object, more: object = "-") -> None:
        os.write(self._out, f"begin {what} {one} {more} {time.monotonic()!r}\n".encode())

    def end(self, what: str, one: object, more: object = "-") -> None:
        os.write(self._out, f"end {what} {one} {more} {time.monotonic()!r}\n".encode())


@contextmanager
def until_the_cut(log: Log) -> Iterator[None]:
    try:
        yield
    except (FsmqError, OSError) as error:
        log.end("fault", type(error).__name__)


def put(root: Path, log: Log, sync: SyncMode, now: Now, seed: str) -> None:
    with until_the_cut(log), Spool(root, sync=sync, clock=now, delivers=False) as spool:
        while True:
            log.begin("put", TICKS)
            spool.run_schedules()
            log.end("put", TICKS)
            time.sleep(0.01)


def consume(root: Path, log: Log, sync: SyncMode, now: Now, seed: str) -> None:
    with until_the_cut(log), Spool(root, sync=sync, clock=now) as spool:
        queue = spool.queue(JOBS)
        while True:
            for message in queue.claim(3, visibility=HOLD_S, wait=0.05):
                moment = int(message.created_at or 0)
                log.begin("ack", moment)
                queue.ack(message)
                log.end("ack", moment)


def define(root: Path, log: Log, sync: SyncMode, now: Now, seed: str) -> None:
    chance = random.Random(seed)
    with until_the_cut(log), Spool(root, sync=sync, clock=now, delivers=False) as spool:
        for number in range(1_000_000):
            one, body = chance.choice((TICKS, *DEFINED)), f"{seed}-{number}"
            schedule = spool.schedule(one)
            verb = "configure" if one == TICKS else chance.choice(("define", "define", "delete"))
            log.begin(verb, one, body)
            with suppress(NoSuchSchedule):
                if verb == "configure":
                    schedule.configure(body=body)
                elif verb == "define":
                    schedule.define("@yearly", JOBS, body)
                else:
                    schedule.delete()
            log.end(verb, one, body)


PROGRAMS = (put, put, consume, define)
_ENOUGH = 2  # deeds of each of them, before the power is cut


@dataclass
class Known:
    """What must be, after all that was told. bodies: what may stand, of each schedule."""

    gone: set[int] = field(default_factory=set)  # moments whose messages are acknowledged
    fading: set[int] = field(default_factory=set)  # perhaps
    bodies: dict[str, set[str | None]] = field(default_factory=dict)

    def read(self, path: Path, cut: Cut) -> None:
        for line in path.read_text().splitlines():
            kind, what, one, more, at = line.split(" ")
            is_certain = kind == "end" and float(at) < cut.began
            if what == "fault":
                assert not is_certain, line
            elif what == "ack":
                (self.gone if is_certain else self.fading).add(int(one))
            elif what != "put":
                body = None if what == "delete" else more
                stands = self.bodies.setdefault(one, {None})
                self.bodies[one] = {body} if is_certain else stands | {body}
        self.fading -= self.gone


def inspect(root: Path, known: Known, began: float, done: int) -> int:
    """Hold the tree against what is known; up to which moment all is consumed now."""
    stands = clock(began)() + HOLD_S  # all claims have ended
    found: Counter[int] = Counter()
    with (
        Spool(root, clock=lambda: stands) as spool,
        Spool(root, clock=lambda: stands + AHEAD_S) as ahead,
    ):
        for one in (TICKS, *DEFINED):
            states = {s.name: s.settings for s in spool.schedules()}
            settings = states.get(one)
            body = None if settings is None else settings.body.decode()
            assert body in known.bodies.get(one, {None}), one
            known.bodies[one] = {body}
        for mover in (spool, ahead, spool, ahead):
            mover.run_schedules()
            while messages := spool.queue(JOBS).claim(100):
                found.update(int(m.created_at or 0) for m in messages)
                spool.queue(JOBS).ack(*messages)
    moments = set(range(done + 1, int(stands + AHEAD_S) + 1))
    assert set(found.values()) == {1}
    assert known.gone.isdisjoint(found)
    missing = moments - found.keys() - known.gone
    assert missing <= known.fading, sorted(missing)
    assert found.keys() <= moments
    findings = check(root, offline=True).findings
    assert [f for f in findings if f.severity is Severity.ERROR] == []
    return int(stands + AHEAD_S)


@pytest.mark.parametrize(("filesystem", "sync"), [("ext4", "auto"), ("xfs", "fsync")])
def test_each_moment_has_one_message(tmp_path: Path, filesystem: str, sync: SyncMode) -> None:
    try:
        with Disk(tmp_path / "disk", filesystem) as disk:
            story(disk, tmp_path, sync, ROUNDS, f"{filesystem}{sync}")
    except CannotMount as error:
        pytest.skip(str(error))


def story(disk: Disk, folder: Path, sync: SyncMode, rounds: int, seed: str) -> None:
    """So many loads with a cut behind each."""
    root, chance = disk.place / "mq", random.Random(seed)
    began = time.monotonic()
    with Spool(root, clock=clock(began)) as spool:
        spool.create_queue(JOBS)
        spool.schedule(TICKS).define("* * * * * *", JOBS, "first", catch_up="all")
        marker = ScheduleFiles(spool.context).marker(TICKS)
        assert marker is not None
        done = marker.done
    disk.sync()
    known = Known(bodies={TICKS: {"first"}})
    fork = multiprocessing.get_context("fork")
    acknowledged = 0
    for number in range(rounds):
        paths = [folder / f"{number}-{n}" for n in range(len(PROGRAMS))]
        running = [
            fork.Process(
                target=program,
                args=(
                    root,
                    Log(path),
                    sync,
                    clock(began, AHEAD_S * (n == 1)),
                    f"{seed}{number}{n}",
                ),
            )
            for n, (program, path) in enumerate(zip(PROGRAMS, paths, strict=True))
        ]
        for process in running:
            process.start()
        eventually(lambda paths=paths: all(is_under_way(path) for path in paths))
        time.sleep(LOAD_S * chance.random())
        cut = disk.cut_power()
        for process in running:
            process.kill()  # a consumer that waits for more would notice nothing
            process.join()
        disk.unmount()
        disk.mount()
        before = len(known.gone)
        for path in paths:
            known.read(path, cut)
        acknowledged += len(known.gone) - before
        done = inspect(root, known, began, done)
        disk.sync()
    assert acknowledged >= _ENOUGH * rounds
    assert disk.check() == ""


def is_under_way(log: Path) -> bool:
    return sum(line.startswith(b"end") for line in log.read_bytes().splitlines()) >= _ENOUGH
