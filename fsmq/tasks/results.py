"""Results: messages with the ids of calls, in a queue with an index."""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from fsmq.spool.errors import InvalidValue, NoSuchQueue
from fsmq.spool.layout.messages.message import Message, NewMessage

from . import steps
from .errors import NoResult, TaskFailed
from .serializer import JSON, Serializer, read
from .steps import AsyncRuns, Pause, Runs, Steps

V = TypeVar("V")
_HERE = Path(__file__).parent
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.5
# A header says how a call has ended; the body of a failure is JSON, whatever the serializer.
_OUTCOME, _DONE, _FAILED = "Outcome", "done", "failed"


class Keeps(Protocol):
    """What results need to know of their application. made_at_once: results of eager mode."""

    @property
    def results(self) -> str | None: ...
    @property
    def serializer(self) -> Serializer: ...
    @property
    def made_at_once(self) -> Mapping[str, NewMessage]: ...


class KeepsAndRuns(Keeps, Runs, Protocol):
    """The same of threads."""


class AsyncKeepsAndRuns(Keeps, AsyncRuns, Protocol):
    """The same of coroutines."""


def of_value(serializer: Serializer, call: str, value: Any, ttl: float) -> NewMessage:
    """The message for the value of a call; for a failure, if the value cannot be written."""
    try:
        body = serializer.dumps(value)
    except Exception as error:
        kind = type(value).__name__
        return of_error(
            call,
            InvalidValue("result", f"of type {kind} is no {serializer.content_type}: {error}"),
            ttl,
        )
    more = {_OUTCOME: _DONE}
    return NewMessage(body, ttl=ttl, id=call, content_type=serializer.content_type, attributes=more)


def of_error(call: str, error: BaseException, ttl: float) -> NewMessage:
    """The message for a failure that is final."""
    error.__traceback__ = of_the_task(error.__traceback__)
    told = {
        "kind": type(error).__name__,
        "reason": _text(error),
        "traceback": "".join(traceback.format_exception(error)).encode(errors="replace").decode(),
    }
    more = {_OUTCOME: _FAILED}
    return NewMessage(
        JSON.dumps(told), ttl=ttl, id=call, content_type=JSON.content_type, attributes=more
    )


def of_the_task(frames: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of this package before it, if there are others."""
    left = frames
    while left is not None and Path(left.tb_frame.f_code.co_filename).parent == _HERE:
        left = left.tb_next
    return left or frames


def _text(error: BaseException) -> str:
    try:
        return str(error).encode(errors="replace").decode()
    except Exception:
        return ""


def value_of(serializer: Serializer, message: Message | NewMessage) -> Any:
    """The value in a result. Raises TaskFailed."""
    if message.attributes.get(_OUTCOME) == _FAILED:
        told = JSON.loads(message.body)
        raise TaskFailed(told["kind"], told["reason"], told["traceback"])
    return read(serializer, message.content_type, message.body)


def awaiting(app: Keeps, call: str, timeout: float | None) -> Steps[Any]:
    """The value of a call. Raises TaskFailed, NoResult."""
    if call in app.made_at_once:
        return value_of(app.serializer, app.made_at_once[call])
    if app.results is None:
        raise NoResult('this app keeps no results: Tasks(…, results="NAME")')
    end = None if timeout is None else time.monotonic() + timeout
    pause = _FIRST_PAUSE_S
    while True:
        try:
            found = yield steps.find(app.results, call)
        except NoSuchQueue:
            found = None  # no worker has started yet
        if found is not None:
            return value_of(app.serializer, found)
        left = float("inf") if end is None else end - time.monotonic()
        if left <= 0:
            raise NoResult(f"there is no result of {call} after {timeout:g} seconds")
        yield Pause(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE_S)


class Result(Generic[V]):
    """A call that was sent, and its value when it has ended.

    id: by which ``app.result(id)`` finds it in another process.
    """

    def __init__(self, app: KeepsAndRuns, id: str) -> None:
        self._app = app
        self.id = id

    def __repr__(self) -> str:
        return f"<Result of {self.id}>"

    def get(self, timeout: float | None = None) -> V:
        """The value, as soon as there is one.

        timeout: seconds to wait for it; None: for ever.

        Raises TaskFailed if the task has failed for good, NoResult.
        """
        value: V = self._app.run(awaiting(self._app, self.id, timeout))
        return value


class AsyncResult(Generic[V]):
    """A call that was sent, and its value when it has ended, for coroutines. As `Result`."""

    def __init__(self, app: AsyncKeepsAndRuns, id: str) -> None:
        self._app = app
        self.id = id

    def __repr__(self) -> str:
        return f"<AsyncResult of {self.id}>"

    async def get(self, timeout: float | None = None) -> V:
        """The value, as soon as there is one. As `Result.get`."""
        value: V = await self._app.run(awaiting(self._app, self.id, timeout))
        return value
