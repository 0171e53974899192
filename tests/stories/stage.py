"""Where a story is played: programs of their own, each with a spool, and what they were told.

Each program is a process. It does what it is told to do, one deed after the other, and writes down
what it asks and is answered. At a call of a number something may happen to it: it is killed, it is
stopped as by SIGSTOP, or the call fails. Time passes when the stage says so, for files, too; and
the clocks of one program may be wrong.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fsmq.spool import FsmqError, Spool
from fsmq.spool.fsck import Severity, check
from tests.harness.calls import See, Trap, failing, seen
from tests.interleave.judge import Log, Moment, judge
from tests.interleave.model import Operation
from tests.stories.story import UNKNOWN, Story, World, explain

_FORK = multiprocessing.get_context("fork")
PATIENCE_S = 60.0
# Whoever waits for a lock that a stopped program has gives up soon by these clocks.
_BLOCKED_S = 20.0
_PROGRAMS = 12


class Times:
    """The clocks, in memory that all programs share. All are seconds beside the true time."""

    def __init__(self) -> None:
        self._all: Any = _FORK.RawArray("d", 1 + 2 * _PROGRAMS)

    @property
    def passed(self) -> float:
        """How long it has been by the files' clock."""
        return float(self._all[0])

    def let_pass(self, seconds: float) -> None:
        self._all[0] += seconds

    def wall(self, program: int) -> float:
        return self.passed + float(self._all[1 + program])

    def boot(self, program: int) -> float:
        """Of the clocks that only go forward."""
        return self.passed + float(self._all[1 + _PROGRAMS + program])

    def set_wall(self, program: int, seconds: float) -> None:
        self._all[1 + program] = seconds

    def add_boot(self, program: int, seconds: float) -> None:
        self._all[1 + _PROGRAMS + program] += seconds


@dataclass(frozen=True)
class Happening:
    """What happens to a program at one of its calls, which is told by its number or its name.

    what: "kill", "stop", "interrupt", "fail", or "stop and fail": it fails when the program goes
    on. which: of the errors that the call may have. is_done: it fails though it was made. looks:
    whether calls that only look count, too, where it is stopped. again: so many calls later it is
    stopped once more, if that is not 0.
    """

    at: int | str
    what: str
    which: int = 0
    is_done: bool = False
    looks: bool = True
    again: int = 0

    def __str__(self) -> str:
        how = f" with error {self.which}{', though it is done' if self.is_done else ''}"
        return f"{self.what} at call {self.at}{how if self.what == 'fail' else ''}"


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
                _Inside(stage, name, number, far).live(delivers)
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


class _Inside:
    """A program, within its process."""

    def __init__(self, stage: Stage, name: str, number: int, pipe: Connection) -> None:
        self.name = name
        self._stage = stage
        self._number = number
        self._pipe = pipe
        self._asked = self._written = 0
        gc.disable()

    def live(self, delivers: bool) -> None:
        with ExitStack() as stack:
            stack.enter_context(self._timed())
            self.spool = self.open(delivers)
            while True:
                deed, happening = self._pipe.recv()
                self._do(deed, happening)

    def open(self, delivers: bool) -> Spool:
        return Spool(
            self._stage.root,
            sync="fsync",
            workers=1,
            delivers=delivers,
            watch="poll",
            poll_interval=0.0,
            clock=time.time,
        )

    def ask(self, verb: str, *given: Any) -> Any:
        self._asked += 1
        number = self._asked
        self._say("ask", number, verb, given)
        try:
            answer = self._stage.story.verbs[verb].call(self.spool, *given)
        except FsmqError as error:
            self._say("refused", number, f"{type(error).__name__}: {error}"[:200])
            raise
        self._say("answer", number, verb, given, answer)
        return answer

    def _say(self, what: str, *told: Any) -> None:
        self._pipe.send((what, time.monotonic_ns(), *told))

    def new(self) -> str:
        self._written += 1
        return f"{self.name}{self._written}"

    def _do(self, deed: str, happening: Happening | None) -> None:
        trap = self._trap(happening)
        told = ""
        try:
            is_stopped = happening is not None and happening.what == "stop"
            with seen(trap, looks=is_stopped and happening is not None and happening.looks):
                if deed in STARTS:
                    STARTS[deed](self)
                else:
                    self._stage.deed(deed)(self)
        except (FsmqError, KeyboardInterrupt):
            pass  # what it asked for last was refused, which is noted, or has no answer
        except BaseException as error:
            told = f"{error!r} in {_places(error)}"
        self._pipe.send(("over", trap.calls, told))

    def _trap(self, happening: Happening | None) -> Trap:
        if happening is None:
            return Trap(-1, lambda name, arguments: None)
        more = [happening.at + happening.again] if isinstance(happening.at, int) else []
        return Trap(happening.at, self._deed(happening), *more)

    def _deed(self, happening: Happening) -> See:
        if happening.what == "fail":
            return failing(happening.which, is_done=happening.is_done)

        def kill(name: str, arguments: tuple[Any, ...]) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        def interrupt(name: str, arguments: tuple[Any, ...]) -> None:
            if threading.current_thread() is threading.main_thread():
                raise KeyboardInterrupt

        def stop(name: str, arguments: tuple[Any, ...]) -> None:
            self._pipe.send(("stopped",))
            os.kill(os.getpid(), signal.SIGSTOP)

        def stop_and_fail(name: str, arguments: tuple[Any, ...]) -> OSError | None:
            stop(name, arguments)
            return failing(happening.which, is_done=happening.is_done)(name, arguments)

        deeds: dict[str, See] = {"kill": kill, "interrupt": interrupt, "stop": stop}
        return deeds.get(happening.what, stop_and_fail)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Let this process have its clocks, and files the time of the stage."""
        times, me = self._stage.times, self._number
        wall, monotonic, clock = time.time, time.monotonic, time.clock_gettime
        wall_ns = time.time_ns
        time.time = lambda: wall() + times.wall(me)
        time.time_ns = lambda: wall_ns() + round(times.wall(me) * 1e9)
        time.monotonic = lambda: monotonic() + times.boot(me)
        time.clock_gettime = lambda which: clock(which) + times.boot(me)
        # Who waits does so by its own clock alone.
        time.sleep = lambda seconds: times.add_boot(me, max(float(seconds), 0.005))
        create, utime, fstat = os.open, os.utime, os.fstat

        def now_of_files() -> tuple[int, int]:
            now_ns = wall_ns() + round(times.passed * 1e9)
            return now_ns, now_ns

        def timed_open(path: Any, flags: int, *rest: Any, **named: Any) -> int:
            fd = create(path, flags, *rest, **named)
            if flags & os.O_CREAT and times.passed and fstat(fd).st_size == 0:
                utime(fd, ns=now_of_files())
            return fd

        def timed_utime(path: Any, times_: Any = None, **named: Any) -> None:
            if times_ is None and "ns" not in named and times.passed:
                named["ns"] = now_of_files()
            utime(path, times_, **named) if times_ is not None else utime(path, **named)

        os.open, os.utime = timed_open, timed_utime  # type: ignore[assignment]
        yield


def _places(error: BaseException) -> str:
    """The last steps of the project that led to an error."""
    steps = traceback.extract_tb(error.__traceback__)
    ours = [f"{s.filename.split('/fsmq/')[-1]}:{s.lineno}" for s in steps if "/fsmq/" in s.filename]
    return " > ".join(ours[-4:]) or str(steps[-1])


def _deliver(program: _Inside) -> None:
    """A mover begins: it takes all that was left for a dead program's."""
    with program.open(True) as spool:
        spool.deliver()
        spool.make_moves()
        spool.run_schedules()
        spool.tend_logs()


def _look_around(program: _Inside) -> None:
    """The command line: it opens the spool, looks at all there is, and ends."""
    with program.open(False) as spool:
        spool.survey()
        for queue in spool.queues():
            spool.settings(queue)
            spool.queue(queue).peek(9)
        for log in spool.logs():
            spool.log(log).stats()


def _consume_nothing(program: _Inside) -> None:
    """A program with the library, which delivers whenever it claims."""
    with program.open(True) as spool:
        spool.deliver()
        spool.reap()
        spool.deliver()


STARTS: dict[str, Callable[[_Inside], None]] = {
    "a mover starts": _deliver,
    "a command starts": _look_around,
    "a library starts": _consume_nothing,
}


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
