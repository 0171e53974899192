"""A place for the application of these tests, and real worker processes on it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from benchmarks.procfs import descendants
from fsmq import Client, Message, Spool
from fsmq.tasks import Tasks
from tests.harness.forkserver import environment
from tests.harness.suite import Program, Suite, eventually
from tests.tasks import shop


class Workers:
    """Processes of ``fsmq work``; they are killed at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count(1)
        self.all: list[Program] = []

    def start(self, *options: str, app: str = "tests.tasks.shop", ready: bool = True) -> Program:
        """Start one, and wait until it works."""
        number = next(self._numbers)
        log = self._folder / f"worker-{number}.log"
        options = ("work", app, *options)
        made = Program(f"worker-{number}", "fsmq.cli", options, log, environment(**_ours()))
        self.all.append(made)
        made.start(until_ready=ready)
        return made

    def kill_some(self, *options: str) -> None:
        """Start two, and kill one after 50, 120 and 190 calls of `work`; others take over."""
        at_work = [self.start(*options) for _ in range(2)]
        for made in (50, 120, 190):
            eventually(lambda made=made: len(shop.notes("work")) >= made)  # type: ignore[misc]
            at_work[0].end()
            at_work = [at_work[1], self.start(*options)]

    def stop(self, worker: Program) -> int:
        """Stop one as a service manager does; its exit code."""
        worker.signal(signal.SIGTERM)
        return worker.wait()

    def close(self) -> None:
        """Kill them, and the processes that they supervise."""
        for worker in self.all:
            below = list(descendants(worker.pid))
            worker.end()
            for pid in below:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def left(app: Tasks, queue: str = "tasks") -> list[Message]:
    """The messages of a queue in all states; counts of a server may be a second old."""
    states = ("new", "ready", "in_flight", "delayed")
    return [one for state in states for one in app.place.queue(queue).peek(1000, state=state)]


def _ours() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("FSMQ_TASKS_")}


@pytest.fixture(params=["folder", "server"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The name of a place: a folder on which no program runs, or a server."""
    if request.param == "folder":
        yield str(tmp_path / "mq")
    else:
        with Suite(tmp_path / "mq") as suite:
            yield suite.url


@pytest.fixture
def app(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tasks]:
    """The application of `shop`, at the place, with notes of this test's own."""
    monkeypatch.setenv("FSMQ_TASKS_AT", place)
    monkeypatch.setenv("FSMQ_TASKS_NOTES", str(tmp_path / "notes"))
    opened = Client(place) if place.startswith("http") else Spool(place, sync="none")
    with opened, shop.app.at(opened):
        yield shop.app


@pytest.fixture
def workers(app: Tasks, tmp_path: Path) -> Iterator[Workers]:
    made = Workers(tmp_path)
    yield made
    made.close()


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A named pipe: who reads it waits until somebody writes."""
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"
