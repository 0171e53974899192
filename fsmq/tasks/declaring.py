"""What declares a task: ``@app.task`` with options, and what it makes of which function."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, Protocol, TypedDict, TypeVar, overload

from .options import Unique
from .task import AsyncTask, Task

P = ParamSpec("P")
V = TypeVar("V")


class Given(TypedDict, total=False):
    """What ``@app.task(…)`` takes: the `TaskOptions`, and another name than ``module.function``."""

    name: str
    queue: str
    retries: int
    backoff: float
    backoff_max: float
    timeout: float
    priority: int
    ttl: float
    unique: Unique
    cron: str
    timezone: str


class MakesTask(Protocol):
    """What ``@app.task(…)`` returns: it makes a task of a function."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, V]], /
    ) -> Task[P, Coroutine[Any, Any, V], V]: ...
    @overload
    def __call__(self, function: Callable[P, V], /) -> Task[P, V, V]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any: ...


class MakesAsyncTask(Protocol):
    """The same of an application for coroutines."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, V]], /
    ) -> AsyncTask[P, Coroutine[Any, Any, V], V]: ...
    @overload
    def __call__(self, function: Callable[P, V], /) -> AsyncTask[P, V, V]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any: ...
