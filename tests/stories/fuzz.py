"""Random rounds of a story with three concurrent programs.

They do random actions of the story. Some are killed or stopped for a moment, some calls fail, and
other programs start.
"""

from __future__ import annotations

import os
import random
import signal
from multiprocessing.connection import wait
from pathlib import Path

from tests.interleave.judge import TooMany
from tests.stories.inside import STARTS, Happening
from tests.stories.stage import Program, Stage, staged
from tests.stories.story import Story

_PROGRAMS = "abc"
# Each operation without an answer multiplies the possible worlds, so rounds are short.
_ACTIONS = 10
_MOST_LIVES = 9
_CALLS = 40
_MOMENT_S = 0.01


class Round:
    """A round. trace: its trace, once it is over."""

    def __init__(self, story: Story, root: Path, seed: str) -> None:
        self.trace: list[str] = []
        self._story = story
        self._root = root
        self._chance = random.Random(seed)
        self._lives = 0

    def play(self) -> str | None:
        """A broken promise; None if all hold, or if there are too many worlds."""
        with staged(self._story, self._root) as stage:
            self._play(stage)
            self.trace = stage.trace
            try:
                return stage.end()
            except TooMany:
                return None

    def _play(self, stage: Stage) -> None:
        programs = [self._begin(stage) for _ in _PROGRAMS]
        left = _ACTIONS
        while left or any(program.is_busy for program in programs):
            for number, program in enumerate(programs):
                if not program.is_alive:
                    programs[number] = program = self._begin(stage)
                if left and not program.is_busy:
                    stage.take(program, "an action")
                    left -= 1
                    self._let_act(program)
            self._interfere(stage, programs)
            heard = wait([p.pipe for p in programs if p.is_busy and not p.is_stopped], _MOMENT_S)
            for program in programs:
                if program.pipe in heard:
                    program.hear()
        for program in programs:
            stage.take(program, "an action")

    def _begin(self, stage: Stage) -> Program:
        self._lives += 1
        return stage.program(f"{_PROGRAMS[self._lives % 3]}{self._lives}-")

    def _let_act(self, program: Program) -> None:
        actions = [action for action in self._story.actions if action != self._story.anew]
        happening = None
        if self._chance.random() < 0.3:
            what = self._chance.choice(("fail", "fail", "stop", "interrupt"))
            which = self._chance.randrange(4)
            happening = Happening(self._chance.randrange(_CALLS), what, which)
        program.begin(self._chance.choice(actions), happening)

    def _interfere(self, stage: Stage, programs: list[Program]) -> None:
        for program in programs:
            if program.is_stopped and self._chance.random() < 0.2:
                program.go_on()
        one, dice = self._chance.choice(programs), self._chance.random()
        if not one.is_busy or one.is_stopped or self._lives > _MOST_LIVES:
            return
        if dice < 0.02:
            one.end()
            self._lives += 1
        elif dice < 0.06:
            os.kill(one.pid, signal.SIGSTOP)
            self._start(stage)
            os.kill(one.pid, signal.SIGCONT)

    def _start(self, stage: Stage) -> None:
        self._lives += 1
        stage.start(self._chance.choice(tuple(STARTS)))
