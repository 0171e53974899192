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
        """Whether a failure of this try is final."""
        return self.deliveries > self.task.settings.retries


def current_run() -> Run | None:
    """The try that this code is part of; None outside of a task."""
    return _running.get()


def called(run: Run, loop: Callable[[], asyncio.AbstractEventLoop], ends_process: bool) -> Any:
    """Call the function in this thread, or its coroutine on a loop, and wait for its value.

    ends_process: whether the process ends if the function does not end in time.
    """
    limit = run.task.settings.timeout
    token = _running.set(run)
    try:
        if not inspect.iscoroutinefunction(run.task.function):
            with _limited(run, limit, ends_process):
                return run.task.function(*run.args, **run.kwargs)
        made = _within(limit, run.task.function(*run.args, **run.kwargs))
        future = asyncio.run_coroutine_threadsafe(made, loop())
        try:
            return future.result(None if limit is None else limit + GRACE_S)
        except TimeoutError:
            if future.done():
                raise  # the task's own
            if ends_process:
                _end_process(run)
            raise TimeLimit(_over(limit)) from None
    finally:
        _running.reset(token)


async def awaited(run: Run) -> Any:
    """Await the coroutine of the function on this loop, or the function in a thread."""
    limit = run.task.settings.timeout
    token = _running.set(run)
    try:
        if inspect.iscoroutinefunction(run.task.function):
            return await _within(limit, run.task.function(*run.args, **run.kwargs))
        return await asyncio.to_thread(_limited_call, run, limit)
    finally:
        _running.reset(token)


def _limited_call(run: Run, limit: float | None) -> Any:
    with _limited(run, limit, ends_process=False):
        return run.task.function(*run.args, **run.kwargs)


async def _within(limit: float | None, coroutine: Any) -> Any:
    try:
        async with asyncio.timeout(limit) as scope:
            return await coroutine
    except TimeoutError:
        if not scope.expired():
            raise
        raise TimeLimit(_over(limit)) from None


@contextmanager
def _limited(run: Run, limit: float | None, ends_process: bool) -> Iterator[None]:
    """Raise TimeLimit in this thread when the time is over.

    Python raises it between two of its instructions: not while a call into C waits.
    """
    if limit is None:
        yield
        return
    thread, lock = threading.get_ident(), threading.Lock()
    state = {"over": False, "raised": False}

    def interrupt() -> None:
        with lock:
            if state["over"]:
                return
            state["raised"] = True
            _interrupt(thread, TimeLimit)
        if ends_process:
            ended.wait(GRACE_S)
            if not state["over"]:
                _end_process(run)

    ended = threading.Event()
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
            state["over"] = True
            if state["raised"]:
                _interrupt(thread, ctypes.py_object())  # not raised yet: it must not be later
        ended.set()
        timer.cancel()


def _end_process(run: Run) -> None:
    log.error("task %s does not end %g s after its timeout: its process does", run.id, GRACE_S)
    os._exit(EXIT_STUCK)


def _over(limit: float | None) -> str:
    return f"its timeout of {limit:g} s is over"
