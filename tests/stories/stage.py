"""Where a story is played: programs of their own, each with a spool, and what they were told.

Each program is a process. It does what it is told to do, one deed after the other, and writes down
what it asks and is answered. At a call of a number something may happen to it: it is killed, it is
stopped as by SIGSTOP, or the call fails. Time passes when the stage says so, for files, too; and
the clocks of one program may be wrong.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fsmq.spool import Spool
from fsmq.spool.fsck import Severity, check
from tests.interleave.judge import Log, Moment, judge
from tests.interleave.model import Operation
from tests.stories.inside import Happening, Inside, Times
from tests.stories.story import UNKNOWN, Story, World, explain

_FORK = multiprocessing.get_context("fork")
PATIENCE_S = 60.0


class Program:
    """A program that is in a process of its own. number: whose clocks it has."""

    def __init__(self, stage: Stage, name: str, number: int, delivers: bool) -> None:
        self.name = name
        self.number = number
        self.is_refused = False  # one of the verbs of its last deed
        self.calls: list[str] = []  # those of the last deed, once it is over
        self.error = ""
        self.is_alive = True
        self.is_stopped = False
        self.is_busy = False
        self.must_work = False
        self._stage = stage
        self._pending: dict[int, Operation] = {}
        self._pipe, far = _FORK.Pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                Inside(stage, name, number, far).live(delivers)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)  # else a second pytest would go on from here
        far.close()

    @property
    def pipe(self) -> Connection:
        """Where it is heard."""
        return self._pipe

    @property
    def pid(self) -> int:
        return self._pid

    def begin(self, deed: str, happening: Happening | None = None) -> None:
        self.is_refused, self.is_busy, self.error = False, True, ""
        self._pipe.send((deed, happening))

    def go_on(self) -> None:
        self.is_stopped = False
        self._pipe.send("go on")
        os.kill(self._pid, signal.SIGCONT)

    def wait(self, seconds: float = PATIENCE_S) -> bool:
        """Hear it until its deed is over, or it is stopped or dead; False if time is."""
        end = time.monotonic() + seconds
        while self.is_busy and not self.is_stopped:
            if not self._pipe.poll(max(0.0, end - time.monotonic())):
                return False
            self.hear()
        return True

    def hear(self) -> None:
        """Take the next thing that it says."""
        try:
            what, *told = self._pipe.recv()
        except (EOFError, ConnectionError):
            self._die()
            return
        if what == "over":
            self.is_busy = False
            self.calls, self.error = told
            self._leave_unanswered()
        elif what == "stopped":
            _, status = os.waitpid(self._pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            self.is_stopped = True
        else:
            self._take(what, *told)

    def end(self) -> None:
        if self.is_alive:
            os.kill(self._pid, signal.SIGKILL)
            with suppress(EOFError, OSError):
                while True:  # what it asked for and nobody has heard may have been done
                    what, *told = self._pipe.recv()
                    if what not in ("over", "stopped"):
                        self._take(what, *told)
            self._die()
        self._pipe.close()

    def _die(self) -> None:
        os.waitpid(self._pid, 0)
        self.is_alive = self.is_busy = self.is_stopped = False
        self._leave_unanswered()

    def _leave_unanswered(self) -> None:
        for op in self._pending.values():
            self._stage.note(time.monotonic_ns(), Moment.ANSWERED, op)
        self._pending.clear()

    def _take(self, what: str, at_ns: int, number: int, *told: Any) -> None:
        verbs = self._stage.story.verbs
        if what == "ask":
            verb, given = told
            op = Operation(self._stage.next_number(), f"{self.name}: {verb}{given}")
            op.error = "no answer"
            explain(op, verbs[verb], given, UNKNOWN)
            self._pending[number] = op
            self._stage.note(at_ns, Moment.ASKED, op)
            return
        op = self._pending.pop(number)
        if what == "refused":
            self.is_refused = True
            [op.error] = told
            if self.must_work:
                self.error = f"{op} though nothing stands in its way"
        else:
            verb, given, answer = told
            op.error, op.answer = "", repr(answer)
            op.once, op.lingers = [], False
            explain(op, verbs[verb], given, answer)
        self._stage.note(at_ns, Moment.ANSWERED, op)


class Stage:
    """One play of a story: who is on it, and what was said."""

    def __init__(self, story: Story, root: Path) -> None:
        self.story = story
        self.root = root
        self.times = Times()
        self.told: list[str] = []
        self._said: list[tuple[int, int, Moment, Operation]] = []
        self._numbers = count(1)
        self.problems: list[str] = []
        self._programs: list[Program] = []
        _lay(story, root)
        self.pass_time(story.begins_s)

    def deed(self, name: str) -> Callable[[Any], object]:
        return self.story.look if name == "look" else self.story.deeds[name]

    def program(self, name: str, *, delivers: bool = False) -> Program:
        self._programs.append(Program(self, name, len(self._programs), delivers))
        return self._programs[-1]

    def next_number(self) -> int:
        return next(self._numbers)

    def note(self, at_ns: int, moment: Moment, op: Operation) -> None:
        """Something was asked or answered."""
        self._said.append((at_ns, len(self._said), moment, op))

    def do(
        self,
        program: Program,
        deed: str,
        *,
        must_work: bool = False,
        happening: Happening | None = None,
    ) -> None:
        """Let it do something now, and to the end."""
        program.must_work = must_work
        program.begin(deed, happening)
        if not program.wait():
            self.problems.append(f"{program.name}: {deed} does not come to an end")
            program.end()
        self.take(program, deed)

    def take(self, program: Program, deed: str) -> None:
        """What came of its deed, apart from answers."""
        if program.error:
            self.problems.append(f"{program.name}: {deed}: {program.error}")
            program.error = ""

    def start(self, kind: str) -> None:
        """Another program starts, and does what it does at first."""
        self.do(self.program(kind, delivers=False), kind)

    def pass_time(self, seconds: float) -> None:
        self.times.let_pass(seconds)

    def end(self) -> str | None:
        """Look at what is left; what is wrong."""
        for seconds in self.story.passes_s:
            self.pass_time(seconds)
            self.start("a mover starts")
        self.do(self.program("last"), "look", must_work=True)
        log = Log(told=self.told)
        for _, _, moment, op in sorted(self._said):
            (log.ask if moment is Moment.ASKED else log.answer)(op)
        if self.problems:
            return "; ".join(self.problems)
        return judge(log, World(self.story.first)) or self._check()  # type: ignore[arg-type]

    def _check(self) -> str | None:
        found = check(self.root, offline=True).findings
        errors = [f"{f.path}: {f.reason}" for f in found if f.severity is Severity.ERROR]
        return f"fsck: {errors}" if errors else None

    def close(self) -> None:
        for program in self._programs:
            program.end()
        shutil.rmtree(self.root)


def _lay(story: Story, root: Path) -> None:
    """Make what is there at first, in a process of its own: this one has nothing open."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        assert status == 0, "the story has no beginning"
        return
    try:
        with Spool(root, sync="fsync", watch="poll") as spool:
            story.lay(spool)
            spool.deliver()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)  # else a second pytest would go on from here


@contextmanager
def staged(story: Story, root: Path) -> Iterator[Stage]:
    stage = Stage(story, root)
    try:
        yield stage
    finally:
        stage.close()
