"""Plays a story with programs, and records their requests and answers.

Each program is a process with its own `Spool`. It does one action after another. At one of its
calls it may be killed or stopped, or the call fails. The stage controls the time, also of files,
and the clocks of a program may be wrong.
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
from tests.harness.spool_errors import errors_in
from tests.interleave.judge import Log, Moment, judge
from tests.interleave.model import Operation
from tests.stories.inside import Happening, Inside, Times
from tests.stories.story import UNKNOWN, Story, World, explain

_FORK = multiprocessing.get_context("fork")
PATIENCE_S = 60.0


class Program:
    """A program in its own process. number: of its clocks."""

    def __init__(self, stage: Stage, name: str, number: int, delivers: bool) -> None:
        self.name = name
        self.number = number
        self.is_refused = False  # whether a verb of its last action was refused
        self.calls: list[str] = []  # of its last action, once it is over
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
                os._exit(1)  # else a second pytest would continue from here
        far.close()

    @property
    def pipe(self) -> Connection:
        return self._pipe

    @property
    def pid(self) -> int:
        return self._pid

    def begin(self, action: str, happening: Happening | None = None) -> None:
        self.is_refused, self.is_busy, self.error = False, True, ""
        self._pipe.send((action, happening))

    def go_on(self) -> None:
        self.is_stopped = False
        self._pipe.send("go on")
        os.kill(self._pid, signal.SIGCONT)

    def wait(self, seconds: float = PATIENCE_S) -> bool:
        """Receive until its action is over, or it is stopped or dead; False after a timeout."""
        end = time.monotonic() + seconds
        while self.is_busy and not self.is_stopped:
            if not self._pipe.poll(max(0.0, end - time.monotonic())):
                return False
            self.hear()
        return True

    def hear(self) -> None:
        """Receive its next line."""
        try:
            what, *data = self._pipe.recv()
        except (EOFError, ConnectionError):
            self._die()
            return
        if what == "over":
            self.is_busy = False
            self.calls, self.error = data
            self._leave_unanswered()
        elif what == "stopped":
            _, status = os.waitpid(self._pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            self.is_stopped = True
        else:
            self._take(what, *data)

    def end(self) -> None:
        if self.is_alive:
            os.kill(self._pid, signal.SIGKILL)
            with suppress(EOFError, OSError):
                while True:  # unread requests may have been carried out
                    what, *data = self._pipe.recv()
                    if what not in ("over", "stopped"):
                        self._take(what, *data)
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

    def _take(self, what: str, at_ns: int, number: int, *data: Any) -> None:
        verbs = self._stage.story.verbs
        if what == "ask":
            verb, given = data
            op = Operation(self._stage.next_number(), f"{self.name}: {verb}{given}")
            op.error = "no answer"
            explain(op, verbs[verb], given, UNKNOWN)
            self._pending[number] = op
            self._stage.note(at_ns, Moment.ASKED, op)
            return
        op = self._pending.pop(number)
        if what == "refused":
            self.is_refused = True
            [op.error] = data
            if self.must_work:
                self.error = f"{op} though nothing prevents it"
        else:
            verb, given, answer = data
            op.error, op.answer = "", repr(answer)
            op.once, op.lingers = [], False
            explain(op, verbs[verb], given, answer)
        self._stage.note(at_ns, Moment.ANSWERED, op)


class Stage:
    """A play of a story: its programs, and their requests and answers."""

    def __init__(self, story: Story, root: Path) -> None:
        self.story = story
        self.root = root
        self.times = Times()
        self.trace: list[str] = []
        self._notes: list[tuple[int, int, Moment, Operation]] = []
        self._numbers = count(1)
        self.problems: list[str] = []
        self._programs: list[Program] = []
        _set_up(story, root)
        self.pass_time(story.begins_s)

    def action(self, name: str) -> Callable[[Any], object]:
        return self.story.inspect if name == "inspect" else self.story.actions[name]

    def program(self, name: str, *, delivers: bool = False) -> Program:
        self._programs.append(Program(self, name, len(self._programs), delivers))
        return self._programs[-1]

    def next_number(self) -> int:
        return next(self._numbers)

    def note(self, at_ns: int, moment: Moment, op: Operation) -> None:
        """Record a request or an answer."""
        self._notes.append((at_ns, len(self._notes), moment, op))

    def do(
        self,
        program: Program,
        action: str,
        *,
        must_work: bool = False,
        happening: Happening | None = None,
    ) -> None:
        """Run an action to its end."""
        program.must_work = must_work
        program.begin(action, happening)
        if not program.wait():
            self.problems.append(f"{program.name}: {action} does not end")
            program.end()
        self.take(program, action)

    def take(self, program: Program, action: str) -> None:
        """Take the error of its action."""
        if program.error:
            self.problems.append(f"{program.name}: {action}: {program.error}")
            program.error = ""

    def start(self, kind: str) -> None:
        """Start another program, which does what it does at its start."""
        self.do(self.program(kind, delivers=False), kind)

    def pass_time(self, seconds: float) -> None:
        self.times.let_pass(seconds)

    def end(self) -> str | None:
        """Inspect the spool at the end; a broken promise."""
        for seconds in self.story.passes_s:
            self.pass_time(seconds)
            self.start("a mover starts")
        self.do(self.program("last"), "inspect", must_work=True)
        log = Log(trace=self.trace)
        for _, _, moment, op in sorted(self._notes):
            (log.ask if moment is Moment.ASKED else log.answer)(op)
        if self.problems:
            return "; ".join(self.problems)
        return judge(log, World(self.story.first)) or self._check()  # type: ignore[arg-type]

    def _check(self) -> str | None:
        errors = [f"{f.path}: {f.reason}" for f in errors_in(self.root)]
        return f"fsck: {errors}" if errors else None

    def close(self) -> None:
        for program in self._programs:
            program.end()
        shutil.rmtree(self.root)


def _set_up(story: Story, root: Path) -> None:
    """Set up the story in a child process, so that this one opens nothing."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        assert status == 0, "the story cannot be set up"
        return
    try:
        with Spool(root, sync="fsync", watch="poll") as spool:
            story.set_up(spool)
            spool.deliver()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)  # else a second pytest would continue from here


@contextmanager
def staged(story: Story, root: Path) -> Iterator[Stage]:
    stage = Stage(story, root)
    try:
        yield stage
    finally:
        stage.close()
