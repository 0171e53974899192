"""A real suite for tests: mq, mq-mover and mq-reaper as processes on one root."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from types import TracebackType
from typing import IO, Any

from fsmq.daemons.process.notify import Listener
from tests.harness.forkserver import Forked, environment, fork
from tests.harness.ports import held

HOME = Path(__file__).resolve().parents[2]
# Long enough for a start on a loaded machine; emulated machines set a higher value.
PATIENCE_S = float(os.environ.get("TEST_PATIENCE_S", "30"))
# The pause between two looks grows with the time that has passed, as a look may be a whole request.
_FIRST_LOOK_S, _LAST_LOOK_S = 0.001, 0.05
_SHARE = 0.2


def _pause(began: float) -> float:
    """The pause before the next look."""
    return min(max(_FIRST_LOOK_S, (time.monotonic() - began) * _SHARE), _LAST_LOOK_S)


def eventually(holds: Callable[[], Any], patience: float = PATIENCE_S) -> Any:
    """Return the first true answer of ``holds``; for conditions without an event."""
    began = time.monotonic()
    while not (answer := holds()):
        assert time.monotonic() < began + patience, f"not within {patience:g} seconds"
        time.sleep(_pause(began))
    return answer


async def eventually_on_loop(holds: Callable[[], Any], patience: float = PATIENCE_S) -> Any:
    """The same on an event loop; ``holds`` may be a coroutine function."""
    began = time.monotonic()
    async with asyncio.timeout(patience):
        while True:
            answer = holds()
            if isinstance(answer, Awaitable):
                answer = await answer
            if answer:
                return answer
            await asyncio.sleep(_pause(began))


def arbitrary_moment(chance: Random, soonest: float, latest: float) -> None:
    """Wait for a random time: a kill does not come after an event."""
    time.sleep(chance.uniform(soonest, latest))


class Program:
    """A program: its process, and its log as lines of JSON.

    under: the beginning of a command line that runs it.
    is_forked: whether a fork server may start it.
    It has its own session, so that no child of it can outlive a test.
    """

    def __init__(
        self, name: str, module: str, options: Sequence[str], log: Path, env: dict[str, str]
    ) -> None:
        self.name = name
        self.options = list(options)
        self.under: list[str] = []
        self.module = module
        self.is_forked = True
        self._log = log
        self._env = env
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self._log_from = 0

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    def start(self, *, until_ready: bool = True) -> None:
        """Start the process; return when it is ready."""
        listener = Listener()
        try:
            with self._log.open("ab") as log:
                self._log_from = log.tell()
                environ = {**self._env, "NOTIFY_SOCKET": listener.address}
                self._process = self._forked(environ, log) or self._alone(environ, log)
            if until_ready:
                self._await_ready(listener)
        finally:
            listener.close()

    def _forked(self, environ: Mapping[str, str], log: IO[bytes]) -> Forked | None:
        """A process of the fork server; None if it needs its own interpreter."""
        if not self.is_forked or self.under:
            return None
        with open(os.devnull, "rb") as null:
            files = [null.fileno(), log.fileno(), log.fileno()]
            return fork(self.module, self.options, environ, files)

    def _alone(self, environ: Mapping[str, str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self.under, sys.executable, "-m", self.module, *self.options],
            cwd=HOME,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self, patience: float = PATIENCE_S) -> int:
        """Wait for the end. Returns the exit code, negative for a signal."""
        assert self._process is not None
        return self._process.wait(patience)

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def end(self) -> None:
        """Kill the process and all of its children."""
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()

    def logs(self) -> list[dict[str, Any]]:
        """The events since the last start; a line that is no JSON (a traceback) is an event."""
        events = []
        for line in self._log.read_bytes()[self._log_from :].decode("utf-8", "replace").split("\n"):
            try:
                event = json.loads(line)
            except ValueError:
                event = line
            events.append(event if isinstance(event, dict) else {"event": line})
        return events[:-1]

    def _await_ready(self, listener: Listener) -> None:
        assert self._process is not None
        ended = os.pidfd_open(self._process.pid)
        try:
            poller = select.poll()
            poller.register(listener, select.POLLIN)
            poller.register(ended, select.POLLIN)
            end = time.monotonic() + PATIENCE_S
            while not listener.is_ready:
                happened = dict(poller.poll(max(0.0, end - time.monotonic()) * 1000))
                listener.receive()
                if not listener.is_ready and (not happened or ended in happened):
                    self.end()
                    raise AssertionError(f"{self.name} did not start: {self.logs()}")
        finally:
            os.close(ended)


class Suite:
    """The programs of a suite on one root; they end with the ``with``.

    mq_options: options of mq. mover, reaper: whether those run. everywhere: options of all.
    forked: whether a fork server may start them.
    """

    def __init__(
        self,
        root: Path,
        *,
        mq_options: Sequence[str] = (),
        mover: bool | Sequence[str] = True,
        reaper: bool = True,
        everywhere: Sequence[str] = (),
        logs: Path | None = None,
        forked: bool = True,
    ) -> None:
        self.root = root
        self._forked = forked
        self._programs: dict[str, Program] = {}
        self._holder: socket.socket | None = None  # of mq's port
        self.log_folder = logs or root.parent / f"{root.name}-logs"
        self.log_folder.mkdir(parents=True, exist_ok=True)
        self.add("mq", "mq", [f"--root={root}", "--port=0", *everywhere, *mq_options])
        if mover is not False:
            more = () if mover is True else mover
            self.add("mover", "mover", [f"--root={root}", *everywhere, *more])
        if reaper:
            self.add("reaper", "reaper", [f"--root={root}", *everywhere])

    def add(self, name: str, program: str, options: Sequence[str]) -> Program:
        """Add a program (``mq``, ``mover`` or ``reaper``) with a name for `start`."""
        module = f"fsmq.daemons.{program}"
        log = self.log_folder / f"{name}.log"
        added = self._programs[name] = Program(name, module, options, log, environment())
        added.is_forked = self._forked
        return added

    def __enter__(self) -> Suite:
        mq = self._programs["mq"].options
        self._holder, port = held()
        mq[mq.index("--port=0")] = f"--port={port}"
        try:
            for name in list(self._programs):
                self.start(name)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __getitem__(self, name: str) -> Program:
        return self._programs[name]

    def close(self) -> None:
        """Kill every program."""
        for program in self._programs.values():
            program.end()
        if self._holder is not None:
            self._holder.close()

    @property
    def url(self) -> str:
        """The URL of mq, without a slash at the end."""
        for event in self.logs("mq"):
            if "listening" in event:
                return str(event["listening"])
        raise AssertionError(f"mq listens nowhere: {self.logs('mq')}")

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def start(self, name: str) -> None:
        """Start a program and wait until it is ready."""
        self._programs[name].start()

    def kill(self, name: str) -> None:
        """Kill a program and its children."""
        self._programs[name].end()

    def terminate(self, name: str) -> int:
        """Stop a program as a service manager does. Returns its exit code."""
        self._programs[name].signal(signal.SIGTERM)
        return self._programs[name].wait()

    def restart(self, name: str) -> None:
        """Kill a program and start it again; mq keeps its port."""
        program = self._programs[name]
        program.end()
        program.start()

    def logs(self, name: str) -> list[dict[str, Any]]:
        """The events that a program has logged since its last start."""
        return self._programs[name].logs()
