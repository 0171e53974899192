"""A schedule against a model: one message for each run, despite changes and crashes.

Three movers, whose clocks differ, work on one tree, and all clocks are set forward and back.
Processes die at any of their calls. The model reads from the files how far a dead process came: the
next one must continue as if the interrupted verb had not begun, or had been completed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from fsmq.spool import NoSuchSchedule, ScheduleSettings, Spool
from fsmq.spool.fsck import check
from fsmq.spool.schedules.putting import GRACE_S
from fsmq.spool.schedules.schedule_files import ScheduleFiles
from fsmq.spool.schedules.scheduler import Scheduler
from tests.replay.place import scratch
from tests.spool.crashing import run_and_die
from tests.spool.helpers import Clock
from tests.spool.machines import machine_settings

JOBS, NAME = "jobs", "nightly"
PERIODS = {"*/10 * * * *": 600, "*/20 * * * * *": 20, "@hourly": 3600}
AHEAD_S = (0, 90, -45)  # of the movers' clocks

lines = st.sampled_from(sorted(PERIODS))
catch_ups = st.sampled_from(("none", "last", "all"))
bodies = st.sampled_from(("a", "b"))
calls = st.integers(0, 40)
movers = st.integers(0, len(AHEAD_S) - 1)
CHANGES = (
    {"paused": True}, {"paused": False}, {"catch_up": "all"}, {"catch_up": "none"},
    {"body": "c"}, {"cron": "*/10 * * * *"},
)  # fmt: skip


@dataclass
class Plan:
    """The schedule in the model. done: the time up to which all runs are done."""

    cron: str
    body: str
    catch_up: str
    paused: bool
    done: int
    last: int | None = None

    def due(self, now: float) -> tuple[list[int], int]:
        """The runs that are due now, and the time up to which all are done then."""
        period = PERIODS[self.cron]
        newest = int(now) // period * period
        if newest <= self.done:
            return [], self.done
        later = range((self.done // period + 1) * period, newest + 1, period)
        if self.paused:
            return [], newest
        if self.catch_up == "all":
            return list(later), newest
        fresh = [moment for moment in later if moment >= int(now) - GRACE_S]
        missed = [] if self.catch_up == "none" else [newest]
        return fresh or missed, newest

    def next(self, now: float) -> float | None:
        period = PERIODS[self.cron]
        after = max(self.done, int(now))
        return None if self.paused else float((after // period + 1) * period)


class ScheduleMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir=scratch())
        self.root = Path(self.folder.name) / "mq"
        self.clock = Clock()
        # A full hour, so that each test has the same times, and later than all files.
        self.clock.now += 3 * 3600 - self.clock.now % 3600
        self.spools = [Spool(self.root, sync="none", clock=self.ahead(s)) for s in AHEAD_S]
        self.spools[0].create_queue(JOBS)
        self.files = ScheduleFiles(self.spools[0].context)
        self.faults: list[object] = []
        self.movers = [self.a_mover(number) for number in range(len(AHEAD_S))]
        self.plan: Plan | None = None
        self.queued: dict[int, str] = {}  # the bodies of messages by the time of their run
        self.owed: set[int] = set()  # messages that a dead mover may not have shown

    def ahead(self, seconds: float) -> Callable[[], float]:
        return lambda: self.clock() + seconds

    def a_mover(self, number: int) -> Scheduler:
        def complain(name: str, what: object) -> None:
            self.faults.append((name, what))

        return Scheduler(self.spools[number].context, complain, complain)

    def teardown(self) -> None:
        try:
            self.end()
        finally:
            for spool in self.spools:
                spool.close()
            self.folder.cleanup()

    # -- users -------------------------------------------------------------------------------------

    def define_with(self, **of: Any) -> Callable[[Spool], object]:
        return lambda spool: spool.schedule(NAME).define(
            of["cron"], JOBS, of["body"], catch_up=of["catch_up"], paused=of["paused"]
        )

    def plan_after(self, now: float, **of: Any) -> Plan:
        """The plan after a definition."""
        was = self.plan
        if was is None:
            return Plan(**of, done=int(now))
        continues = was.cron == of["cron"] and not (was.paused and not of["paused"])
        continues = continues and self.has_begun()
        return Plan(**of, done=was.done if continues else max(was.done, int(now)), last=was.last)

    @rule(
        number=movers, cron=lines, body=bodies, catch_up=catch_ups, paused=st.just(False),
        dies_at=st.none() | calls,
    )  # fmt: skip
    def define(self, number: int, dies_at: int | None, **of: Any) -> None:
        plan = self.plan_after(self.now(number), **of)
        self.change(number, self.define_with(**of), plan, dies_at)

    @precondition(lambda self: self.plan is not None)
    @rule(number=movers, change=st.sampled_from(CHANGES), dies_at=st.none() | calls)
    def configure(self, number: int, change: dict[str, Any], dies_at: int | None) -> None:
        assert self.plan is not None
        plan = self.plan
        of = {name: getattr(plan, name) for name in ("cron", "body", "catch_up", "paused")} | change
        plan = self.plan_after(self.now(number), **of)
        self.change(number, lambda spool: spool.schedule(NAME).configure(**change), plan, dies_at)

    @precondition(lambda self: self.plan is not None)
    @rule(number=movers, dies_at=st.none() | calls)
    def delete(self, number: int, dies_at: int | None) -> None:
        self.change(number, lambda spool: spool.schedule(NAME).delete(), None, dies_at)

    def change(
        self,
        number: int,
        verb: Callable[[Spool], object],
        planned: Plan | None,
        dies_at: int | None,
    ) -> None:
        if dies_at is None:
            verb(self.spools[number])
            self.plan = planned
            self.owed.clear()
            return
        before = self.file()
        acknowledged = run_and_die(self.root, verb, dies_at, self.ahead(AHEAD_S[number]))
        if acknowledged is None or acknowledged or self.is_as(planned):
            self.plan = planned
        if self.file() not in (None, before):
            self.stamp(number)

    def is_as(self, planned: Plan | None) -> bool:
        """Whether the schedule's file has the planned settings; otherwise it has the old ones."""
        found = self.settings()
        if found is None or planned is None:
            assert found is None or self.is_same(found, self.plan)
            return found is planned
        assert self.is_same(found, self.plan) or self.is_same(found, planned)
        return self.is_same(found, planned)

    def is_same(self, found: ScheduleSettings, plan: Plan | None) -> bool:
        return plan is not None and (found.cron, found.body.decode(), found.catch_up) == (
            plan.cron, plan.body, plan.catch_up
        ) and found.paused == plan.paused  # fmt: skip

    def stamp(self, number: int) -> None:
        """If the marker has another cron line, runs count from the file's time, or from what the
        marker has done if that is later: set it."""
        now = self.now(number)
        os.utime(self.root / "schedules" / f"{NAME}.json", (now, now))
        marker = self.files.marker(NAME)
        if self.plan is not None and marker is not None and not self.has_begun():
            self.plan.done = max(int(now), marker.done)

    def has_begun(self) -> bool:
        """Whether the marker was written for this line; otherwise the next writer starts anew."""
        marker = self.files.marker(NAME)
        return marker is not None and marker.fits(self.files.read(NAME))

    def file(self) -> tuple[int, int] | None:
        """The identity of the schedule's file, which changes with each write."""
        try:
            found = os.stat(self.root / "schedules" / f"{NAME}.json")
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns

    def settings(self) -> ScheduleSettings | None:
        try:
            return self.files.read(NAME)
        except NoSuchSchedule:
            return None

    # -- movers and consumers ----------------------------------------------------------------------

    @rule(number=movers)
    def run(self, number: int) -> None:
        mover = self.movers[number]
        mover.rescan()  # as after file events
        while mover.step() == 0.0:
            pass
        if self.put(self.now(number)):
            self.owed.clear()

    @rule(number=movers, dies_at=calls)
    def run_and_die(self, number: int, dies_at: int) -> None:
        verb, clock = Spool.run_schedules, self.ahead(AHEAD_S[number])
        if run_and_die(self.root, verb, dies_at, clock) is None:
            self.put(self.now(number))
            self.owed.clear()
        elif self.plan is not None:
            marker = self.files.marker(NAME)
            if marker is not None and marker.fits(self.files.read(NAME)):
                self.owed |= set(self.put(self.now(number), marker.done))

    def put(self, now: float, until: float = float("inf")) -> list[int]:
        """Put the due messages in the model, up to the time of the marker; their times."""
        if self.plan is None:
            return []
        moments, done = self.plan.due(now)
        moments = [moment for moment in moments if moment <= until]
        for moment in moments:
            self.queued.setdefault(moment, self.plan.body)
        self.plan.done = min(done, max(self.plan.done, int(min(until, done))))
        if moments:
            self.plan.last = moments[-1]
        return moments

    @rule(number=movers)
    def restart(self, number: int) -> None:
        self.movers[number] = self.a_mover(number)

    @rule()
    def consume(self) -> None:
        queue = self.spools[0].queue(JOBS)
        while messages := queue.claim(1000):
            for message in messages:
                assert message.created_at is not None
                assert self.queued.pop(int(message.created_at)) == message.body.decode()
            queue.ack(*messages)
        assert self.queued.keys() <= self.owed
        self.owed &= self.queued.keys()

    @rule(seconds=st.sampled_from((1, 19, 70, 600, 4000, -70, -900)))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def now(self, number: int) -> float:
        return self.clock() + AHEAD_S[number]

    # -- checks ------------------------------------------------------------------------------------

    @rule()
    def check_states(self) -> None:
        states = self.spools[0].schedules()
        assert len(states) == (self.plan is not None)
        for state in states:
            assert self.plan is not None
            assert state.settings is not None
            assert self.is_same(state.settings, self.plan)
            assert (state.last, state.next) == (self.plan.last, self.plan.next(self.clock()))

    def end(self) -> None:
        """All owed messages come, and no files are left."""
        self.check_states()
        self.restart(0)
        self.run(0)
        self.owed.clear()
        self.consume()
        self.run(0)
        self.consume()
        assert self.faults == []
        if self.plan is not None:
            self.spools[0].schedule(NAME).delete()
        kinds = {f.kind.value for f in check(self.root, offline=True).findings}
        assert kinds <= {"leftover"}


@pytest.mark.parametrize("at", range(12))
def test_a_schedule_continues_after_a_definition_that_died(at: int) -> None:
    """Sequences that the machine finds rarely."""
    of = {"cron": "*/10 * * * *", "body": "a", "catch_up": "none", "paused": False}
    for is_deleted in (True, False):
        machine = ScheduleMachine()
        machine.define(number=0, dies_at=at, **of)
        if machine.plan is not None and is_deleted:
            machine.pass_time(seconds=-70)
            machine.delete(number=0, dies_at=0)
            machine.check_states()
        elif machine.plan is not None:
            machine.configure(number=2, change={"paused": False}, dies_at=None)
            machine.run_and_die(number=0, dies_at=31)
        machine.teardown()


TestSchedule = ScheduleMachine.TestCase
TestSchedule.settings = machine_settings(25, 50, steps=30)
