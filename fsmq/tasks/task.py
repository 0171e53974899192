"""A task: a function whose calls can be sent, and how its calls are tried."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar

from fsmq.spool.arguments import Delay, seconds_of
from fsmq.spool.errors import InvalidValue

from .options import TaskOptions, Unique
from .results import AsyncResult, Result
from .serializer import Serializer, key_of, written

P = ParamSpec("P")
# What a call returns, and the value of the task: a coroutine, and its value, or the same.
R = TypeVar("R")
V = TypeVar("V")


class Writes(Protocol):
    """What a task needs of its application."""

    @property
    def serializer(self) -> Serializer: ...


class Sends(Writes, Protocol):
    """The same, to send from a thread."""

    def send(self, call: Call[V], *, delay: Delay | None = None) -> Result[V]: ...


class AsyncSends(Writes, Protocol):
    """The same, to send from a loop."""

    async def send(self, call: Call[V], *, delay: Delay | None = None) -> AsyncResult[V]: ...


class TaskBase(Generic[P, R, V]):
    """What tasks of threads and of coroutines have in common."""

    app: Writes

    def __init__(self, app: Any, function: Callable[P, R], name: str, options: TaskOptions) -> None:
        self.app: Any = app
        self.function = function
        self.name = name
        self.settings = options
        self._signature = inspect.signature(function)
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __repr__(self) -> str:
        return f"<task {self.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, here and now."""
        return self.function(*args, **kwargs)

    def options(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        ttl: float | None = None,
        unique: Unique | None = None,
    ) -> Self:
        """The same task with other options for what is sent: ``task.options(priority=0).send()``.

        The worker's options (retries, backoff, timeout) are those of the decorator.
        """
        given = {"queue": queue, "priority": priority, "ttl": ttl, "unique": unique}
        changes = {name: value for name, value in given.items() if value is not None}
        return type(self)(self.app, self.function, self.name, self.settings.changed(changes))

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[V]:
        """A call that can be sent, with others in a batch. Raises TypeError, as a call would."""
        return Call(self, args, kwargs, self._named(*args, **kwargs))

    def _named(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments


@dataclass(frozen=True, slots=True)
class Call(Generic[V]):
    """A task with arguments. named: each by its name, those by default too."""

    task: TaskBase[Any, Any, V]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    named: Mapping[str, Any]

    @property
    def body(self) -> bytes:
        """The body of its message. Raises InvalidValue, naming the argument at fault."""
        content = {"args": list(self.args), "kwargs": dict(self.kwargs)}
        return written(self.task.app.serializer, self.task.name, content, self.named)

    @property
    def key(self) -> str | None:
        """The id of all equal calls, if the task is unique."""
        unique, name = self.task.settings.unique, self.task.name
        if not unique:
            return None
        if callable(unique):
            return f"{name}:{unique(*self.args, **self.kwargs)}"
        return key_of(self.task.app.serializer, name, self.named)


class Task(TaskBase[P, R, V]):
    """A function whose calls can be sent; made by ``@app.task``."""

    app: Sends

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Result[V]:
        """Send a call: a worker makes it. It is durable when this returns.

        Raises TypeError if the function does not take the arguments, InvalidValue if one cannot be
        written, and what a put raises.
        """
        return self.app.send(self.call(*args, **kwargs))

    def send_later(self, delay: Delay, /, *args: P.args, **kwargs: P.kwargs) -> Result[V]:
        """The same after a delay: in seconds, or a timedelta, or a datetime with a time zone."""
        return self.app.send(self.call(*args, **kwargs), delay=delay)


class AsyncTask(TaskBase[P, R, V]):
    """A function whose calls can be sent, for coroutines; made by ``@app.task``."""

    app: AsyncSends

    async def send(self, *args: P.args, **kwargs: P.kwargs) -> AsyncResult[V]:
        """Send a call: a worker makes it. As `Task.send`."""
        return await self.app.send(self.call(*args, **kwargs))

    async def send_later(
        self, delay: Delay, /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncResult[V]:
        """The same after a delay: in seconds, or a timedelta, or a datetime with a time zone."""
        return await self.app.send(self.call(*args, **kwargs), delay=delay)


def delay_of(delay: Delay | None) -> float | None:
    """The seconds of a delay. Raises InvalidValue."""
    if delay is None:
        return None
    if not isinstance(delay, int | float | timedelta | datetime) or isinstance(delay, bool):
        kind = type(delay).__name__
        raise InvalidValue("delay", f"must be seconds, a timedelta or a datetime, not {kind}")
    return seconds_of(delay)


def task_name(function: Callable[..., Any]) -> str:
    """The name of a task by default: ``module.function``, also of a module that is run."""
    module = function.__module__
    if module == "__main__":
        import sys
        from pathlib import Path

        module = Path(getattr(sys.modules["__main__"], "__file__", None) or "__main__").stem
    return f"{module}.{function.__qualname__}"
