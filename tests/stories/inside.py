"""A program of a story in its process: its requests, and the happenings at its calls."""

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

_PROGRAMS = 24  # at most on one stage


class Times:
    """The clocks as offsets from the true time, in memory that all programs share."""

    def __init__(self) -> None:
        self._all: Any = multiprocessing.get_context("fork").RawArray("d", 1 + 2 * _PROGRAMS)

    @property
    def passed(self) -> float:
        """The time that has passed by the clock of files."""
        return float(self._all[0])

    def let_pass(self, seconds: float) -> None:
        self._all[0] += seconds

    def wall(self, program: int) -> float:
        return self.passed + float(self._all[1 + program])

    def boot(self, program: int) -> float:
        """The offset of the monotonic clocks."""
        return self.passed + float(self._all[1 + _PROGRAMS + program])

    def set_wall(self, program: int, seconds: float) -> None:
        self._all[1 + program] = seconds

    def add_boot(self, program: int, seconds: float) -> None:
        self._all[1 + _PROGRAMS + program] += seconds


@dataclass(frozen=True)
class Happening:
    """A happening at a call of a program, which is given by its number or its name.

    what: "kill", "stop", "interrupt", "fail", or "stop and fail", where the call fails when the
    program continues. which: the error. is_done: the call fails after it was made. looks: whether
    calls that only read count for a stop. again: the number of calls until a second stop; 0: none.
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
    """A program in its process."""

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
                action, happening = self._pipe.recv()
                self._do(action, happening)

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
        was_denied = self._trap_set.is_denied
        try:
            answer = self._stage.story.verbs[verb].call(self.spool, *given)
        except FsmqError as error:
            self._say("refused", number, f"{type(error).__name__}: {error}"[:200])
            raise
        if self._trap_set.is_denied and not was_denied:
            # It was told that a file is gone which is there: its answer may say so, too.
            self._say("refused", number, f"{answer}, after a false ENOENT")
        else:
            self._say("answer", number, verb, given, answer)
        return answer

    def _say(self, what: str, *data: Any) -> None:
        self._pipe.send((what, time.monotonic_ns(), *data))

    def new(self) -> str:
        self._written += 1
        return f"{self.name}{self._written}"

    def _do(self, action: str, happening: Happening | None) -> None:
        self._trap_set = trap = self._trap(happening)
        error_text = ""
        try:
            is_stopped = happening is not None and happening.what == "stop"
            with seen(trap, looks=is_stopped and happening is not None and happening.looks):
                if action in STARTS:
                    STARTS[action](self)
                else:
                    self._stage.action(action)(self)
        except (FsmqError, KeyboardInterrupt):
            pass  # the refusal of the last request is recorded, or it has no answer
        except BaseException as error:
            error_text = f"{error!r} in {_places(error)}"
        self._pipe.send(("over", trap.calls, error_text))

    def _trap(self, happening: Happening | None) -> Trap:
        if happening is None:
            return Trap(-1, lambda name, arguments: None)
        more = [happening.at + happening.again] if isinstance(happening.at, int) else []
        return Trap(happening.at, self._action(happening), *more)

    def _action(self, happening: Happening) -> See:
        if happening.what == "fail":
            return failing(happening.which, is_done=happening.is_done)

        def kill(name: str, arguments: tuple[Any, ...]) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        def interrupt(name: str, arguments: tuple[Any, ...]) -> None:
            if threading.current_thread() is threading.main_thread():
                raise KeyboardInterrupt

        def stop(name: str, arguments: tuple[Any, ...]) -> None:
            self._pipe.send(("stopped",))
            while not self._pipe.poll():  # something else may have continued it
                os.kill(os.getpid(), signal.SIGSTOP)
            self._pipe.recv()

        def stop_and_fail(name: str, arguments: tuple[Any, ...]) -> OSError | None:
            stop(name, arguments)
            return failing(happening.which, is_done=happening.is_done)(name, arguments)

        actions: dict[str, See] = {"kill": kill, "interrupt": interrupt, "stop": stop}
        return actions.get(happening.what, stop_and_fail)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Replace the clocks of this process, and the times of files."""
        times, me = self._stage.times, self._number
        wall, monotonic, clock = time.time, time.monotonic, time.clock_gettime
        wall_ns = time.time_ns
        time.time = lambda: wall() + times.wall(me)
        time.time_ns = lambda: wall_ns() + round(times.wall(me) * 1e9)
        time.monotonic = lambda: monotonic() + times.boot(me)
        time.clock_gettime = lambda which: clock(which) + times.boot(me)
        # A wait advances only the program's own clock.
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
                with suppress(OSError):  # not a file
                    utime(fd, ns=now_of_files())
            return written

        os.open, os.utime = timed_open, timed_utime  # type: ignore[assignment]
        os.write = timed_write
        yield


def _places(error: BaseException) -> str:
    """The last frames of the project before an error."""
    steps = traceback.extract_tb(error.__traceback__)
    ours = [f"{s.filename.split('/fsmq/')[-1]}:{s.lineno}" for s in steps if "/fsmq/" in s.filename]
    return " > ".join(ours[-4:]) or str(steps[-1])


def _deliver(program: Inside) -> None:
    """Start a mover, which takes all unfinished work for that of dead programs."""
    with program.open(True) as spool:
        spool.deliver()
        spool.make_moves()
        spool.run_schedules()
        spool.tend_logs()


def _look_around(program: Inside) -> None:
    """Inspect everything, as the command line does."""
    with program.open(False) as spool:
        spool.survey()
        for queue in spool.queues():
            spool.settings(queue)
            spool.queue(queue).peek(9)
        for log in spool.logs():
            spool.log(log).stats()


def _consume_nothing(program: Inside) -> None:
    """A program with the library, which delivers when it claims."""
    with program.open(True) as spool:
        spool.deliver()
        spool.reap()
        spool.deliver()


STARTS: dict[str, Callable[[Inside], None]] = {
    "a mover starts": _deliver,
    "a command starts": _look_around,
    "a library starts": _consume_nothing,
}
