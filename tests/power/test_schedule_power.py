"""Power cuts under movers that run schedules, a consumer, and a program that defines schedules.

Each scheduled time has one message, which is delivered once; acknowledged definitions are kept. Two
movers with different clocks, as on two hosts, run at once; time passes fast, so that a scheduled
time comes every few milliseconds.
"""

from __future__ import annotations

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
from fsmq.spool.schedules.schedule_files import ScheduleFiles
from tests.harness.spool_errors import errors_in
from tests.power.disk import Cut, Disk, cut_power_under

JOBS, TICKS = "jobs", "ticks"
DEFINED = ("one", "two", "three")
SPEED, AHEAD_S, HOLD_S = 25.0, 5.0, 60.0
ROUNDS, LOAD_S = 3, 0.6
Now = Callable[[], float]


def clock(began: float, ahead: float = 0.0) -> Now:
    """A clock that runs fast. began: the start of the test by ``time.monotonic()``."""
    return lambda: BEGIN + (time.monotonic() - began) * SPEED + ahead


BEGIN = float(int(time.time()))


class Log:
    """The notes of a program: starts and ends of its actions."""

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
_ENOUGH = 2  # actions of each program before the power is cut


@dataclass
class Known:
    """The state after all answers. bodies: the possible bodies of each schedule."""

    gone: set[int] = field(default_factory=set)  # scheduled times whose messages are acknowledged
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
                possible = self.bodies.setdefault(one, {None})
                self.bodies[one] = {body} if is_certain else possible | {body}
        self.fading -= self.gone


def inspect(root: Path, known: Known, began: float, done: int) -> int:
    """Check the messages against the answers; the time up to which all are consumed."""
    now = clock(began)() + HOLD_S  # all claims have ended
    found: Counter[int] = Counter()
    with (
        Spool(root, clock=lambda: now) as spool,
        Spool(root, clock=lambda: now + AHEAD_S) as ahead,
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
    moments = set(range(done + 1, int(now + AHEAD_S) + 1))
    assert set(found.values()) == {1}
    assert known.gone.isdisjoint(found)
    missing = moments - found.keys() - known.gone
    assert missing <= known.fading, sorted(missing)
    assert found.keys() <= moments
    assert errors_in(root) == []
    return int(now + AHEAD_S)


@pytest.mark.parametrize(("disk", "sync"), [("ext4", "auto"), ("xfs", "fsync")], indirect=["disk"])
def test_each_scheduled_time_has_one_message(disk: Disk, tmp_path: Path, sync: SyncMode) -> None:
    story(disk, tmp_path, sync, ROUNDS, f"{disk.kind}{sync}")


def story(disk: Disk, folder: Path, sync: SyncMode, rounds: int, seed: str) -> None:
    """Run rounds of a load and a power cut."""
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
    acknowledged = 0
    for number in range(rounds):
        paths = [folder / f"{number}-{n}" for n in range(len(PROGRAMS))]
        clocks = [clock(began, AHEAD_S * (n == 1)) for n in range(len(PROGRAMS))]
        programs = [
            (program, (root, Log(paths[n]), sync, clocks[n], f"{seed}{number}{n}"))
            for n, program in enumerate(PROGRAMS)
        ]
        cut = cut_power_under(
            disk,
            programs,
            lambda paths=paths: all(is_under_way(path) for path in paths),
            LOAD_S * chance.random(),
        )
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
