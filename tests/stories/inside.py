"""A program of a story, within its process: what it asks for, and what happens at its calls."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from fsmq.spool import FsmqError, Spool
from tests.harness.calls import See, Trap, failing, seen

if TYPE_CHECKING:
    from tests.stories.stage import Stage

_PROGRAMS = 12  # on one stage, at most


class Times:
    """The clocks, in memory that all programs share. All are seconds beside the true time."""

    def __init__(self) -> None:
        self._all: Any = multiprocessing.get_context("fork").RawArray("d", 1 + 2 * _PROGRAMS)

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


class Inside:
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
            while not self._pipe.poll():  # whatever else may continue it
                os.kill(os.getpid(), signal.SIGSTOP)
            self._pipe.recv()

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
        create, utime, fstat, write = os.open, os.utime, os.fstat, os.write

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

        def timed_write(fd: int, data: Any) -> int:
            written = write(fd, data)
            if times.passed:
                with suppress(OSError):  # it is no file
                    utime(fd, ns=now_of_files())
            return written

        os.open, os.utime = timed_open, timed_utime  # type: ignore[assignment]
        os.write = timed_write
        yield


def _places(error: BaseException) -> str:
    """The last steps of the project that led to an error."""
    steps = traceback.extract_tb(error.__traceback__)
    ours = [f"{s.filename.split('/fsmq/')[-1]}:{s.lineno}" for s in steps if "/fsmq/" in s.filename]
    return " > ".join(ours[-4:]) or str(steps[-1])


def _deliver(program: Inside) -> None:
    """A mover begins: it takes all that was left for a dead program's."""
    with program.open(True) as spool:
        spool.deliver()
        spool.make_moves()
        spool.run_schedules()
        spool.tend_logs()


def _look_around(program: Inside) -> None:
    """The command line: it opens the spool, looks at all there is, and ends."""
    with program.open(False) as spool:
        spool.survey()
        for queue in spool.queues():
            spool.settings(queue)
            spool.queue(queue).peek(9)
        for log in spool.logs():
            spool.log(log).stats()


def _consume_nothing(program: Inside) -> None:
    """A program with the library, which delivers whenever it claims."""
    with program.open(True) as spool:
        spool.deliver()
        spool.reap()
        spool.deliver()


STARTS: dict[str, Callable[[Inside], None]] = {
    "a mover starts": _deliver,
    "a command starts": _look_around,
    "a library starts": _consume_nothing,
}
