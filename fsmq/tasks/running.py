"""One try of a call: what the function, and hooks, can know of it; and its time limit."""

from __future__ import annotations

import asyncio
import ctypes
import inspect
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fsmq.spool.claimed import Claim
from fsmq.spool.layout.messages.message import Message
from fsmq.spool.worker.handlers import Failed, in_thread

from .errors import TimeLimit

if TYPE_CHECKING:
    from .task import TaskBase

log = logging.getLogger(__name__)
_interrupt = ctypes.pythonapi.PyThreadState_SetAsyncExc
_interrupt.argtypes = [ctypes.c_ulong, ctypes.py_object]
# How long a thread may take to end when its time is over, before its process is ended.
GRACE_S = 5.0
EXIT_STUCK = 1
_running: ContextVar[Run | None] = ContextVar("fsmq_task", default=None)


@dataclass(frozen=True, slots=True)
class Run:
    """A try of a call, for the task and for hooks.

    id: that of the call; all tries have the same. claim: ``claim.lost`` says that another worker
    may have it, ``claim.stopping`` that the worker stops. deliveries: this is try number so and
    so, those of killed workers included. message, claim: None in eager mode.
    state: for hooks, such as a span to be ended.
    """

    task: TaskBase[Any, Any, Any]
    id: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    message: Message | None = None
    claim: Claim | None = None
    state: dict[str, Any] = field(default_factory=dict)

    @property
    def deliveries(self) -> int:
        """The number of this try, from 1; always 1 where the filesystem cannot count them."""
        return (self.message.deliveries if self.message is not None else None) or 1

    @property
    def is_last(self) -> bool:
        """Whether a failure of this try is final, as are all in eager mode."""
        return self.message is None or self.deliveries > self.task.settings.retries


def current_run() -> Run | None:
    """The try that this code is part of; None outside of a task."""
    return _running.get()


def called(run: Run, loop: Callable[[], asyncio.AbstractEventLoop], ends_process: bool) -> Any:
    """Call the function in this thread, or its coroutine on a loop, and wait for its value.

    ends_process: whether the process ends if the function does not end in time.
    """
    with _begun(run, ends_process):
        made = _made(run)
        if not inspect.isawaitable(made):
            return made
        return asyncio.run_coroutine_threadsafe(_within(run, made), loop()).result()


async def awaited(run: Run, ends_process: bool = False) -> Any:
    """Await the coroutine of the function on this loop, or the function in a thread."""
    with _begun(run, ends_process):
        if inspect.iscoroutinefunction(run.task.function):
            return await _within(run, _made(run))
        if run.message is None:  # in eager mode
            return _made(run)
        values: list[Any] = []
        # Not asyncio's own threads: a process that stops would wait for those that do not end.
        thread = in_thread(lambda message, claim: values.append(_made(run)))
        try:
            await thread.call(run.message, run.claim)  # type: ignore[arg-type]
        except Failed as failure:
            raise failure.error from None
        return values[0]


def _made(run: Run) -> Any:
    """The value of the function, or its coroutine."""
    with _limited(run):
        return run.task.function(*run.args, **run.kwargs)


async def _within(run: Run, coroutine: Any) -> Any:
    limit = run.task.settings.timeout
    try:
        async with asyncio.timeout(limit) as scope:
            return await coroutine
    except TimeoutError:
        if not scope.expired():
            raise
        raise TimeLimit(_over(limit)) from None


@contextmanager
def _begun(run: Run, ends_process: bool) -> Iterator[None]:
    """Let `current_run` find it, and watch that it ends."""
    limit = run.task.settings.timeout
    watch = None
    if limit is not None and ends_process:
        watch = threading.Timer(limit + GRACE_S, _end_process, [run])
        watch.daemon = True
        watch.start()
    token = _running.set(run)
    try:
        yield
    finally:
        _running.reset(token)
        if watch is not None:
            watch.cancel()


@contextmanager
def _limited(run: Run) -> Iterator[None]:
    """Raise TimeLimit in this thread when the time is over.

    Python raises it between two of its instructions: not while a call into C waits.
    """
    limit = run.task.settings.timeout
    if limit is None or inspect.iscoroutinefunction(run.task.function):
        yield
        return
    thread, lock = threading.get_ident(), threading.Lock()
    is_over = is_raised = False

    def interrupt() -> None:
        nonlocal is_raised
        with lock:
            if not is_over:
                is_raised = True
                _interrupt(thread, TimeLimit)

    timer = threading.Timer(limit, interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    except TimeLimit as error:
        error.args = (_over(limit),)  # its traceback says where the task was
        raise
    finally:
        with lock:
            is_over = True
            if is_raised:
                _interrupt(thread, ctypes.py_object())  # not raised yet: it must not be later
        timer.cancel()


def _end_process(run: Run) -> None:
    log.error("task %s does not end %g s after its timeout: its process does", run.id, GRACE_S)
    os._exit(EXIT_STUCK)


def _over(limit: float | None) -> str:
    return f"its timeout of {limit:g} s is over"
