"""Runs schedules (a verb up to one of its calls, then others, then the rest) and checks them."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from tests.interleave.gate import Actor, Gate
from tests.interleave.judge import judge
from tests.interleave.scene import FIRST, Scene, always
from tests.interleave.verbs import SCENARIOS, VERBS
from tests.replay.place import scratch


@dataclass(frozen=True)
class Plan:
    """The order of actions; together with the calls where they are stopped it is a schedule.

    With one scenario: the verb to its k-th call, the scenario, the rest of the verb. ``second``
    runs at a later call of the verb. With ``crosses`` the scenario is stopped, too, and ends after
    the verb. ``third`` runs while both are stopped.
    """

    verb: str
    scenario: str
    second: str | None = None
    crosses: bool = False
    third: str | None = None

    def __str__(self) -> str:
        more = [self.second and f"then {self.second}", "crossed" if self.crosses else None]
        more.append(self.third and f"and within {self.third}")
        return ", ".join([f"{self.verb} x {self.scenario}", *filter(None, more)])

    @property
    def stops_twice(self) -> bool:
        return self.crosses or self.second is not None or self.third is not None


@dataclass(frozen=True)
class Finding:
    """A broken promise. stops: the calls where the schedule stops; trace: all calls and answers."""

    plan: Plan
    stops: tuple[int, ...]
    what: str
    trace: tuple[str, ...] = ()


@dataclass
class Explored:
    """The results of a plan. schedules: their number."""

    plan: Plan
    schedules: int = 0
    findings: list[Finding] = field(default_factory=list)


@dataclass
class Outcome:
    """The result of a schedule. ends: for each stop whether it was not reached."""

    what: str | None
    ends: tuple[bool, ...]
    trace: list[str] | None = None


class Explorer:
    """Explores in one process, within :meth:`running`. folder: for its spools."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._gate = Gate()
        self._numbers = count(1)

    @contextmanager
    def running(self) -> Iterator[Explorer]:
        with self._gate.open():
            yield self

    def explore(self, plan: Plan) -> Explored:
        """Run all schedules of a plan."""
        done = Explored(plan)
        for stop in count():
            outcome = Outcome(None, (False, False))
            for next_stop in count() if plan.stops_twice else (0,):
                stops = (stop, next_stop) if plan.stops_twice else (stop,)
                outcome = self.run(plan, stops)
                done.schedules += 1
                if outcome.what is not None:
                    done.findings.append(Finding(plan, stops, outcome.what))
                if outcome.ends[-1]:
                    break
            if outcome.ends[0]:
                return done
        raise AssertionError

    def trace(self, finding: Finding) -> Finding:
        """Run the schedule of a finding again, with a trace of all calls."""
        outcome = self.run(finding.plan, finding.stops, is_traced=True)
        return replace(finding, trace=tuple(outcome.trace or ()))

    def run(self, plan: Plan, stops: tuple[int, ...], *, is_traced: bool = False) -> Outcome:
        """Run a schedule. A second stop counts from the first, or is that of the scenario."""
        verb = VERBS[plan.verb]
        scene = Scene(self._gate, self._folder / str(next(self._numbers)) / "mq", verb.delivers)
        try:
            verb.first(scene)
            trace = scene.log.trace = [] if is_traced else None
            play = _Play(self._gate, scene, plan, trace)
            ends = play.play(stops)
            for actor in play.actors:
                if actor.error is not None:
                    return Outcome(_failed(actor.error), ends, trace)
            problem = scene.end()
            return Outcome(judge(scene.log, FIRST, always(scene.log)) or problem, ends, trace)
        finally:
            scene.close()


class _Play:
    """A run of a schedule."""

    def __init__(self, gate: Gate, scene: Scene, plan: Plan, trace: list[str] | None) -> None:
        self._scene = scene
        self._plan = plan
        verb = VERBS[plan.verb]
        self._scenarios = SCENARIOS[verb.others]
        self._verb = Actor(gate, lambda: verb.work(scene), trace, "    ")
        self._other = Actor(
            gate, lambda: self._scenarios[plan.scenario](scene), trace, "            "
        )
        self.actors = (self._verb, self._other)

    def play(self, stops: tuple[int, ...]) -> tuple[bool, ...]:
        """For each stop whether it was not reached, because the actor ended before."""
        plan = self._plan
        ends: tuple[bool, ...] = (self._verb.run(stops[0]),)
        if ends[0]:
            return ends * len(stops)
        if plan.crosses or plan.third is not None:
            ends += (self._other.run(stops[1]),)
            if plan.third is not None:
                with self._scene.third_client():
                    self._act(plan.third)
            if plan.crosses:
                self._verb.run()
            self._other.run()
        else:
            self._act(plan.scenario)
            if plan.second is not None:
                ends += (self._verb.run(stops[1]),)
                self._act(plan.second)
        self._verb.run()
        return ends

    def _act(self, scenario: str) -> None:
        self._scenarios[scenario](self._scene)


def _failed(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)[-3:])


_explorers: list[Explorer] = []
_running = ExitStack()


def explore_all(plans: Sequence[tuple[str, Plan]], jobs: int) -> Iterator[tuple[str, Explored]]:
    """Explore named plans in some processes. The first finding of each has a trace."""
    spawning = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory(dir=scratch(), prefix="fsmq-interleave-") as folder,
        spawning.Pool(jobs, _begin, (folder,)) as pool,
    ):
        yield from pool.imap_unordered(_explore, plans, chunksize=4)


def _begin(folder: str) -> None:
    here = Path(folder) / str(os.getpid())
    _explorers.append(_running.enter_context(Explorer(here).running()))


def _explore(named: tuple[str, Plan]) -> tuple[str, Explored]:
    name, plan = named
    done = _explorers[0].explore(plan)
    done.findings[:1] = map(_explorers[0].trace, done.findings[:1])
    return name, done
