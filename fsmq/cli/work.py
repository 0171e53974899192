"""``fsmq work``: workers that make the calls of tasks, in this process or in several."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from fsmq.cli.failures import Exit, Failure, report
from fsmq.cli.params import SPAN
from fsmq.daemons.process import logs
from fsmq.daemons.process.init import leave_init
from fsmq.daemons.process.notify import Notifier
from fsmq.daemons.process.observer import end, make_observer
from fsmq.daemons.process.supervise import module_child, run
from fsmq.tasks.app import AsyncTasks, Tasks

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent

log = logs.get_logger(__name__)
_GRACE_S = 5.0  # what a process needs to end after its tasks


class _Pace(NamedTuple):
    queues: str | None
    concurrency: int
    visibility: float
    stop_timeout: float


@click.command("work")
@click.argument("app", metavar="MODULE[:APP]")
@click.option(
    "--queues", "-q", metavar="QUEUES", help="Only these: a,b or a:3,b:1.  [all, in turn]"
)
@click.option(
    "--concurrency",
    "-c",
    type=click.IntRange(1, 1000),
    default=4,
    show_default=True,
    help="Tasks at a time, in each process.",
)
@click.option(
    "--processes",
    "-p",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    help="Processes; one that dies is started again.",
)
@click.option(
    "--visibility",
    type=SPAN,
    default=60.0,
    help="How long a claim holds; it is renewed while its task runs.  [60 s]",
)
@click.option(
    "--stop-timeout",
    type=SPAN,
    default=30.0,
    help="Time that running tasks have to end after a signal.  [30 s]",
)
@click.option(
    "--reload", is_flag=True, help="Start again when a .py file below this folder changes."
)
@click.option("--supervised", is_flag=True, hidden=True, help="Be one process of several.")
def work(
    app: str,
    queues: str | None,
    concurrency: int,
    processes: int,
    visibility: float,
    stop_timeout: float,
    reload: bool,
    supervised: bool,
) -> None:
    """Work for tasks: make the calls that were sent, until SIGTERM or Ctrl-C.

    MODULE is imported from the current folder; APP is the name of its Tasks, if it has several. A
    task that raises is tried again, and at last goes to the dead-letter queue, QUEUE.dead. After a
    signal running tasks may finish; a second signal ends them. If a worker is killed, its tasks
    come back when their claims end.

    With --processes or --reload, a process whose task does not end 5 seconds after its timeout is
    ended, and started again; a single one goes on. On SIGHUP processes start again, with the code
    of then, when their tasks have ended.

    \b
    Examples:
      fsmq work shop.tasks
      fsmq work shop.tasks:app --queues mail:3,reports:1 --concurrency 8 --processes 2
    """
    pace = _Pace(queues, concurrency, visibility, stop_timeout)
    if supervised:
        _work(app, pace, reload, ends_process=True)
    elif processes == 1 and not reload:
        leave_init()
        _work(app, pace, reload, ends_process=False)
    else:
        leave_init()
        sys.exit(_supervise(app, pace, processes, reload))


def _supervise(app: str, pace: _Pace, processes: int, reload: bool) -> int:
    form = logs.chosen_format("auto")
    logs.setup("info", form, "work")
    options = [f"--concurrency={pace.concurrency}", f"--visibility={pace.visibility}"]
    options += [f"--stop-timeout={pace.stop_timeout}", "--supervised"]
    options += [f"--queues={pace.queues}"] if pace.queues is not None else []
    options += ["--reload"] if reload else []
    children = [
        module_child(f"worker-{number}", "fsmq.cli", ["work", app, *options])
        for number in range(1, processes + 1)
    ]
    return run(children, prefix=form == "text", grace=pace.stop_timeout + _GRACE_S)


def _work(app: str, pace: _Pace, reload: bool, ends_process: bool) -> None:
    stop = _Stop()
    if ends_process:
        signal.signal(signal.SIGHUP, lambda number, frame: stop.want())
    if reload:
        # Bytecode tells versions of a second apart, and only if their sizes differ.
        sys.dont_write_bytecode = True
    with _changes(stop) if reload else _nothing():
        try:
            tasks = _load(app)
        except Failure as failure:
            if not reload:
                raise
            report(f"{failure.message}; waiting for a change")
            stop.wait()
            return
        if not logging.getLogger().handlers:  # else the application logs in its own way
            logs.setup("info", "auto", "work")
        if isinstance(tasks, AsyncTasks):
            asyncio.run(_run_async(tasks, pace, stop, ends_process))
        else:
            _run(tasks, pace, stop, ends_process)


def _run(tasks: Tasks, pace: _Pace, stop: _Stop, ends_process: bool) -> None:
    with tasks:
        worker = tasks.worker(
            pace.queues,
            concurrency=pace.concurrency,
            visibility=pace.visibility,
            stop_timeout=pace.stop_timeout,
            ends_process=ends_process,
        )
        stop.by(worker.stop)
        with tasks.schedules():
            _begin(tasks)
            worker.run()


async def _run_async(tasks: AsyncTasks, pace: _Pace, stop: _Stop, ends_process: bool) -> None:
    async with tasks:
        worker = await tasks.worker(
            pace.queues,
            concurrency=pace.concurrency,
            visibility=pace.visibility,
            stop_timeout=pace.stop_timeout,
            ends_process=ends_process,
        )
        stop.by(worker.stop)
        _begin(tasks)
        await worker.run()


def _begin(tasks: Tasks | AsyncTasks) -> None:
    status = f"working for {len(tasks.tasks)} tasks"
    log.info(status, place=repr(tasks), queues=tasks.queues)
    Notifier().ready(status)


class _Stop:
    """The wish to stop, which may come before there is a worker.

    Without a lock: a signal may come while this thread has it. One of the two sees the other.
    """

    def __init__(self) -> None:
        self._wanted = threading.Event()
        self._stop: Callable[[], None] | None = None

    def by(self, stop: Callable[[], None]) -> None:
        """What to call, perhaps twice, also if it is wanted already."""
        self._stop = stop
        if self._wanted.is_set():
            stop()

    def want(self) -> None:
        """Stop."""
        self._wanted.set()
        if self._stop is not None:
            self._stop()

    def wait(self) -> None:
        """Wait until it is wanted; a signal ends the process, as nothing runs in it."""
        self._wanted.wait()


def _load(app: str) -> Tasks | AsyncTasks:
    """The application that a command line names. Raises Failure."""
    module, _, name = app.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or f"{module}.".startswith(f"{error.name}."):
            advice = "give its name as an import has it, and run fsmq work in its folder"
            raise Failure(f"there is no module {module!r} here", Exit.USAGE, advice) from error
        raise _unusable(module, error) from error
    except Exception as error:
        raise _unusable(module, error) from error
    if name:
        found = getattr(imported, name, None)
        if isinstance(found, Tasks | AsyncTasks):
            return found
        raise Failure(f"{module} has no Tasks named {name!r}", Exit.USAGE)
    there = {key: v for key, v in vars(imported).items() if isinstance(v, Tasks | AsyncTasks)}
    if len({id(one) for one in there.values()}) == 1:
        return next(iter(there.values()))
    names = ", ".join(f"{module}:{key}" for key in there)
    problem = (
        f"several Tasks in {module}: give one of {names}" if there else f"no Tasks in {module}"
    )
    raise Failure(problem, Exit.USAGE)


def _unusable(module: str, error: Exception) -> Failure:
    traceback.print_exception(error)
    return Failure(f"{module} cannot be imported: {type(error).__name__}", Exit.UNUSABLE)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _changes(stop: _Stop) -> Iterator[None]:
    """Stop when a .py file below the current folder changes."""
    from watchdog import events

    class Handler(events.FileSystemEventHandler):
        def on_any_event(self, event: FileSystemEvent) -> None:
            paths = [str(event.src_path), str(event.dest_path)]
            if any(path.endswith(".py") for path in paths):
                stop.want()

    changes: list[Any] = [
        events.FileModifiedEvent,
        events.FileCreatedEvent,
        events.FileMovedEvent,
        events.FileDeletedEvent,
    ]
    observer, _ = make_observer()
    observer.schedule(Handler(), os.getcwd(), recursive=True, event_filter=changes)
    observer.start()
    try:
        yield
    finally:
        end(observer)
