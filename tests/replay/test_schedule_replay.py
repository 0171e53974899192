"""Every crash state of verbs of a schedule, including the consumption of its messages.

In each state a mover and a consumer continue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fsmq.spool import NoSuchSchedule, Spool
from fsmq.spool.fsck import check
from tests.replay.inspecting import inspect_states
from tests.replay.place import state_folder
from tests.replay.recorder import Recorder, Step, Sync, SyncAll
from tests.replay.states import Files
from tests.spool.helpers import Clock

JOBS, NAME, LINE = "jobs", "nightly", "*/10 * * * *"
BEGIN = 1_780_315_200.0  # a full hour
MOMENTS = {BEGIN + 600, BEGIN + 1200}


@dataclass
class Promised:
    """The promises. bodies: the possible bodies of the schedule. gone: scheduled times whose
    messages are acknowledged; fading: those whose acknowledgement has begun."""

    bodies: set[str | None] = field(default_factory=lambda: {"first"})
    gone: set[float] = field(default_factory=set)
    fading: set[float] = field(default_factory=set)


class Actor:
    """Runs verbs, and marks the promises that each changes."""

    def __init__(self, spool: Spool, recorder: Recorder) -> None:
        self._spool = spool
        self._recorder = recorder
        self._schedule = spool.schedule(NAME)

    def put(self) -> None:
        self._spool.run_schedules()

    def put_and_consume(self) -> None:
        self._spool.run_schedules()
        for _ in MOMENTS:
            [message] = self._spool.queue(JOBS).claim()
            assert message.created_at is not None
            moment = message.created_at
            self._recorder.mark(lambda p, moment=moment: p.fading.add(moment))
            self._spool.queue(JOBS).ack(message)
            self._recorder.mark(lambda p, moment=moment: p.gone.add(moment))

    def configure(self) -> None:
        self._recorder.mark(lambda p: p.bodies.add("second"))
        self._schedule.configure(body="second")
        self._recorder.mark(lambda p: p.bodies.discard("first"))

    def replace(self) -> None:
        self._recorder.mark(lambda p: p.bodies.add("second"))
        self._schedule.define("5 * * * *", JOBS, "second")
        self._recorder.mark(lambda p: p.bodies.discard("first"))

    def delete(self) -> None:
        self._recorder.mark(lambda p: p.bodies.add(None))
        self._schedule.delete()
        self._recorder.mark(lambda p: p.bodies.discard("first"))


@pytest.mark.parametrize("verb", ["put", "put_and_consume", "configure", "replace", "delete"])
def test_no_crash_state_breaks_a_promise(verb: str) -> None:
    assert check_states(verb) > 3


@pytest.mark.parametrize("verb", ["put_and_consume", "configure", "delete"])
def test_without_its_syncs_a_promise_is_broken(verb: str) -> None:
    with pytest.raises((AssertionError, KeyError, NoSuchSchedule)):
        check_states(verb, lambda step: not isinstance(step, Sync | SyncAll))


def check_states(verb: str, counts: Callable[[Step], bool] = lambda step: True) -> int:
    """Inspect every crash state of a verb; their number. counts: selects steps."""
    clock = Clock()
    clock.now = BEGIN
    with state_folder() as place:
        root = place.with_name("first")
        with Spool(root, sync="fsync", clock=clock, workers=1) as spool:
            spool.create_queue(JOBS)
            spool.schedule(NAME).define(LINE, JOBS, "first", catch_up="all")
            clock.now = max(MOMENTS)
            before = Files.of(root)
            recorder = Recorder(root)
            with recorder.recording():
                getattr(Actor(spool, recorder), verb)()
            recorder.close()
        steps = [step for step in recorder.steps if counts(step)]
        return inspect_states(
            place,
            before,
            steps,
            Promised,
            lambda promised: inspect(place, promised, clock, verb),
        )


def inspect(place: Path, promised: Promised, clock: Clock, verb: str) -> None:
    clock.now = max(MOMENTS)
    found: Counter[float] = Counter()
    with Spool(place, sync="none", clock=clock) as spool:
        states = spool.schedules()
        body = states[0].settings.body.decode() if states and states[0].settings else None
        assert body in promised.bodies
        for _ in range(3):
            while messages := spool.queue(JOBS).claim(9):
                found.update(message.created_at or 0 for message in messages)
                spool.queue(JOBS).ack(*messages)
            spool.run_schedules()
            # Unfinished claims end, and dot-names of dead writers are promoted.
            clock.advance(60)
    assert set(found.values()) <= {1}
    assert not promised.gone & found.keys()
    if verb.startswith("put"):
        assert MOMENTS - promised.fading <= found.keys() <= MOMENTS
    findings = check(place, offline=True).findings
    assert {f.kind.value for f in findings if f.path.startswith("schedules")} <= {"leftover"}
