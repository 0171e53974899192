"""Runs several programs as one: starts them, restarts those that die, and stops them together.

The supervisor owns no data and takes no part in the work; a child does not notice whether it has
one. Nothing here polls: signals, exits, messages and timers wake it.

- A child that dies is started again after 0.1 s, then 0.2 s and so on up to 5 s; after it has lived
  for 10 s, the pause is 0.1 s again. A child that exits with 2 (usage) or 78 (configuration) would
  do so again: the others are stopped, and the supervisor exits with the same code.
- SIGTERM or SIGINT stops the children gracefully, a second one kills them; SIGHUP is passed on.
- Each child gets a ``NOTIFY_SOCKET`` of its own. The supervisor reports that it is ready when all
  children have done so, and, if it has a watchdog itself, that it is well as long as they are.
- A child never outlives its supervisor, not even when that is killed.
"""

import asyncio
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fsmq.daemons.process.exits import EXIT_CLEAN, EXIT_CONFIGURATION, EXIT_FAILED, EXIT_USAGE
from fsmq.daemons.process.logs import get_logger
from fsmq.daemons.process.notify import Listener, Notifier
from fsmq.daemons.process.output import Prefixer
from fsmq.daemons.process.repeated import StopSignals
from fsmq.daemons.process.tie import tied_to

_FIRST_PAUSE, _LONGEST_PAUSE, _SETTLED = 0.1, 5.0, 10.0  # seconds
# Variables that the service manager sets for the supervisor alone.
_OWN_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS")

log = get_logger(__name__)


@dataclass
class Child:
    """A program to run.

    Attributes:
        name: its name in logs.
        argv: its command line; a change applies from the next start on.
        env: variables that it gets in addition to those of the supervisor.
        fds: open files of the supervisor that it gets under the same numbers.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    fds: Sequence[int] = ()


def module_child(
    name: str, module: str, arguments: Sequence[str], fds: Sequence[int] = ()
) -> Child:
    """Return a child that runs one of our modules under the interpreter that runs this one.

    Args:
        name: its name in logs.
        module: for example ``fsmq.daemons.mq``.
        arguments: its command line after the program's name.
        fds: open files that it gets.
    """
    env = {}
    home = Path(__file__).resolve().parents[3]
    if home != Path(sysconfig.get_path("purelib")).resolve():
        # A clone: the child must import it, wherever it is started.
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(home), os.environ.get("PYTHONPATH"))))
    # -P: nothing is imported from the current folder.
    return Child(name, [sys.executable, "-P", "-m", module, *arguments], env, fds)


Started = Callable[[Mapping[str, str]], None]
"""Called once, when all children are ready, with their statuses by name."""


def run(
    children: Sequence[Child],
    *,
    prefix: bool,
    on_started: Started | None = None,
    grace: float = 15.0,
    notifier: Notifier | None = None,
) -> int:
    """Run the children until a signal or a child's refusal to run; return the exit code.

    To be called from the main thread, with no event loop running.

    Args:
        children: what to run; they are started and stopped in this order.
        prefix: copy the children's output line by line, each with the child's name before it;
            otherwise they write to the supervisor's own stdout and stderr.
        on_started: called once, when all children are ready.
        grace: seconds that the children have to stop before they are killed.
        notifier: where to report to (default: the one that the environment names).

    Returns:
        0 after a clean stop, a child's own 2 or 78, and 1 if a child had to be killed or failed
        to stop cleanly.
    """
    # Always this kind of loop, because another one might handle SIGCHLD itself.
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        return runner.run(_supervise(children, prefix, on_started, grace, notifier or Notifier()))


async def _supervise(
    children: Sequence[Child],
    prefix: bool,
    on_started: Started | None,
    grace: float,
    notifier: Notifier,
) -> int:
    supervisor = _Supervisor(children, prefix, on_started, grace, notifier)
    return await supervisor.run()


class _Process:
    """One child: its process while it runs, and the pause before it runs again."""

    def __init__(
        self,
        child: Child,
        make_output: Callable[[], Prefixer] | None,
        watchdog_micros: int | None,
        changed: Callable[[], None],
    ) -> None:
        self.child = child
        self.listener: Listener | None = None
        self.exit_code: int | None = None
        self._make_output = make_output
        self._watchdog_micros = watchdog_micros
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._popen: subprocess.Popen[bytes] | None = None
        self._output: Prefixer | None = None
        self._started_at = 0.0
        self._pause = _FIRST_PAUSE
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        return self._popen is not None

    @property
    def is_ready(self) -> bool:
        return self.listener is not None and self.listener.is_ready

    def is_well(self, since: float) -> bool:
        """Whether it has reported since a moment, or is not ready yet."""
        return self.listener is None or not self.is_ready or self.listener.heard_at >= since

    def start(self) -> None:
        """Start it; if that fails, try again after the pause."""
        self._timer = None
        self._started_at = time.monotonic()
        try:
            self._open()
        except (OSError, subprocess.SubprocessError) as error:
            self._close()
            log.error("child cannot be started", child=self.child.name, error=error)
            self.start_later()
        else:
            assert self._popen
            log.debug("child started", child=self.child.name, pid=self._popen.pid)

    def start_later(self) -> None:
        """Start it after the pause, and double the pause for the next time."""
        if time.monotonic() - self._started_at >= _SETTLED:
            self._pause = _FIRST_PAUSE
        log.info("child starts again", child=self.child.name, seconds=self._pause)
        self._timer = self._loop.call_later(self._pause, self.start)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def give_up(self) -> None:
        """Do not start it again."""
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def send(self, number: signal.Signals) -> None:
        """Send it a signal if it runs."""
        if self._popen:
            self._popen.send_signal(number)

    def has_ended(self) -> bool:
        """Return whether it has ended since the last call; then ``exit_code`` says how."""
        if self._popen is None or self._popen.poll() is None:
            return False
        self.exit_code = self._popen.returncode
        self._close()
        return True

    def _open(self) -> None:
        self.listener = listener = Listener()
        if self._make_output:
            self._output = self._make_output()
        writer = self._output.writer if self._output else None
        try:
            self._popen = subprocess.Popen(
                self.child.argv,
                env=self._environment(listener),
                stdin=subprocess.DEVNULL,
                stdout=writer,
                stderr=writer,
                pass_fds=self.child.fds,
                # Out of our group, so that Ctrl-C reaches a child only once, through us.
                process_group=0,
                preexec_fn=tied_to(os.getpid()),
            )
        finally:
            if self._output:
                self._output.started()
        self._loop.add_reader(listener, self._hear)
        if self._output:
            self._loop.add_reader(self._output, self._copy)

    def _environment(self, listener: Listener) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if k not in _OWN_VARIABLES}
        own = {"NOTIFY_SOCKET": listener.address}
        if self._watchdog_micros:
            own["WATCHDOG_USEC"] = str(self._watchdog_micros)
        return {**inherited, **self.child.env, **own}

    def _hear(self) -> None:
        assert self.listener
        self.listener.receive()
        self._changed()

    def _copy(self) -> None:
        assert self._output
        if not self._output.copy():
            self._loop.remove_reader(self._output)  # at the end it would be called for ever

    def _close(self) -> None:
        self._popen = None
        for end in (self.listener, self._output):
            if end:
                self._loop.remove_reader(end)
                end.close()
        self.listener = self._output = None


class _Supervisor:
    def __init__(
        self,
        children: Sequence[Child],
        prefix: bool,
        on_started: Started | None,
        grace: float,
        notifier: Notifier,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._notifier = notifier
        self._on_started = on_started
        self._grace = grace
        self._ended = asyncio.Event()
        self._signals = StopSignals()
        self._announced = self._stopping = False
        self._exit_code = EXIT_CLEAN
        interval = notifier.watchdog_interval
        micros = round(interval * 2_000_000) if interval else None
        width = max(len(child.name) for child in children)
        self._processes = [
            _Process(child, _output(child.name, width, i) if prefix else None, micros, self._check)
            for i, child in enumerate(children)
        ]

    async def run(self) -> int:
        """Run until all children have ended for good; return the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._on_stop_signal, number)
        self._loop.add_signal_handler(signal.SIGHUP, self._on_reload_signal)
        self._loop.add_signal_handler(signal.SIGCHLD, self._on_child_ended)
        for process in self._processes:
            process.start()
        self._watch()
        await self._ended.wait()
        return self._exit_code

    def _check(self) -> None:
        """Report once that all children are ready, when they are."""
        if self._announced or self._stopping or not all(p.is_ready for p in self._processes):
            return
        self._announced = True
        statuses = {p.child.name: p.listener.status for p in self._processes if p.listener}
        if self._on_started:
            self._on_started(statuses)
        self._notifier.ready("; ".join(status for status in statuses.values() if status))

    def _watch(self) -> None:
        """Ping the watchdog if all children are well, and check again after the interval."""
        interval = self._notifier.watchdog_interval
        if interval is None:
            return
        since = time.monotonic() - 2 * interval
        silent = [p.child.name for p in self._processes if not p.is_well(since)]
        if silent:
            log.error("child is silent", silent=silent)
        else:
            self._notifier.ping()
        self._loop.call_later(interval, self._watch)

    def _on_child_ended(self) -> None:
        for process in self._processes:
            if process.has_ended():
                self._after_end(process)
        self._end_if_done()

    def _after_end(self, process: _Process) -> None:
        code = process.exit_code or 0
        name = process.child.name
        if self._stopping:
            # SIGTERM kills a child that does not handle it yet: that is a clean stop, too.
            if code not in (0, -signal.SIGTERM):
                log.warning("child did not stop cleanly", child=name, how=_how(code))
                self._exit_code = self._exit_code or EXIT_FAILED
        elif code in (EXIT_USAGE, EXIT_CONFIGURATION):
            log.error("child refuses to run", child=name, how=_how(code))
            self._exit_code = code
            self._stop()
        else:
            log.warning("child ended", child=name, how=_how(code))
            process.start_later()

    def _on_stop_signal(self, number: int) -> None:
        if self._signals.is_second(number):
            log.warning("killing the children on a second signal")
            self._kill()
        elif not self._stopping:
            self._stop()

    def _on_reload_signal(self) -> None:
        if self._stopping:
            return
        self._notifier.reloading()
        for process in self._processes:
            if process.is_ready:  # before, the signal could kill it, as it is not handled yet
                process.send(signal.SIGHUP)
        if self._announced:
            self._notifier.ready()

    def _stop(self) -> None:
        log.info("stopping")
        self._stopping = True
        self._notifier.stopping()
        for process in self._processes:
            process.give_up()
            process.send(signal.SIGTERM)
        self._loop.call_later(self._grace, self._on_grace_over)
        self._end_if_done()

    def _on_grace_over(self) -> None:
        log.warning("killing the children that have not stopped", seconds=self._grace)
        self._kill()

    def _kill(self) -> None:
        for process in self._processes:
            process.send(signal.SIGKILL)

    def _end_if_done(self) -> None:
        if self._stopping and not any(process.is_running for process in self._processes):
            self._ended.set()


def _output(name: str, width: int, index: int) -> Callable[[], Prefixer]:
    return lambda: Prefixer(name, width, index)


def _how(code: int) -> str:
    """Return in words how a process ended."""
    if code >= 0:
        return f"exit code {code}"
    names = {number.value: number.name for number in signal.Signals}
    return names.get(-code, f"signal {-code}")
