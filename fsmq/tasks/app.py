"""Applications: where tasks are declared, sent and worked off."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ParamSpec,
    Self,
    TypeVar,
    Unpack,
    overload,
)

from fsmq.parts import require
from fsmq.spool.arguments import Delay
from fsmq.spool.claimed import Claim
from fsmq.spool.errors import FsmqError
from fsmq.spool.layout.uuids import uuid7
from fsmq.spool.spool import Spool

from . import steps
from .batches import AsyncBatch, Batch
from .common import AppOptions, Common, log, source, weighed
from .declaring import Given, MakesAsyncTask, MakesTask
from .results import AsyncResult, Result
from .running import Run, awaited, called
from .steps import Steps
from .task import AsyncTask, Call, Task, task_name

if TYPE_CHECKING:
    from fsmq.client._async.client import AsyncClient
    from fsmq.client._sync.client import Client
    from fsmq.spool.worker.async_worker import AsyncWorker
    from fsmq.spool.worker.blocking_worker import Worker

T = TypeVar("T")
P = ParamSpec("P")
V = TypeVar("V")
# How often a worker on a folder looks whether a schedule is due.
_LOOK_EVERY_S = 1.0


class Tasks(Common):
    """An application on a folder or a server: its tasks are declared with ``@app.task``.

    place: the folder of a spool, the URL of a server, or a Spool or a Client. A name is opened when
        it is first needed, and again after a fork.
    options: see `Common`.
    """

    def __init__(
        self,
        place: str | Path | Spool | Client,
        queue: str = "tasks",
        **options: Unpack[AppOptions],
    ) -> None:
        super().__init__(queue, **options)
        self._given = place
        self._opened: Any = None
        self._opened_by = 0
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Tasks of {self._given!r}>"

    @property
    def place(self) -> Any:
        """The Spool or the Client."""
        if not isinstance(self._given, str | Path):
            return self._given
        with self._lock:
            if self._opened is None or self._opened_by != os.getpid():
                self._opened, self._opened_by = _open(self._given), os.getpid()
            return self._opened

    def close(self) -> None:
        """Close what it has opened itself; a later use opens it again."""
        with self._lock:
            opened, self._opened = self._opened, None
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._loop = None
        if opened is not None and self._opened_by == os.getpid():
            opened.close()

    @contextmanager
    def at(self, place: str | Path | Spool | Client) -> Iterator[Self]:
        """Work at another place in a ``with``, as tests do."""
        before = self._given
        self.close()
        self._given = place
        try:
            yield self
        finally:
            self.close()
            self._given = before

    def run(self, work: Steps[T]) -> T:
        """Do the steps of some work at the place."""
        return steps.run(work, None if self.eager else self.place)

    # -- tasks -----------------------------------------------------------------------------------

    @overload
    def task(
        self, function: Callable[P, Coroutine[Any, Any, V]], /
    ) -> Task[P, Coroutine[Any, Any, V], V]: ...
    @overload
    def task(self, function: Callable[P, V], /) -> Task[P, V, V]: ...
    @overload
    def task(self, /, **options: Unpack[Given]) -> MakesTask: ...
    def task(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Make a task of a function, coroutine functions too: ``@app.task(retries=5)``.

        options: the `TaskOptions`, and name.

        Raises InvalidValue; TypeError if a task with a crontab line needs arguments.
        """

        def make(function: Callable[..., Any]) -> Task[..., Any, Any]:
            name = options.pop("name", None) or task_name(function)
            task = Task[..., Any, Any](self, function, name, self._options(**options))
            self._add(task)
            return task

        return make if function is None else make(function)

    def send(self, call: Call[V], *, delay: Delay | None = None) -> Result[V]:
        """Send a call; it is durable when this returns. ``task.send(…)`` is shorter."""
        return Result(self, self.run(self.sending(call, delay)))

    def result(self, id: str) -> Result[Any]:
        """The result of a call by its id, which may have been sent by another process."""
        return Result(self, id)

    def batch(self, calls: Sequence[Call[Any]], *, then: Call[Any], id: str | None = None) -> Batch:
        """Send calls, and ``then`` when all of them have ended well.

        id: of the batch; sent again with the same id, it sends only what is missing.
        """
        batch = id or uuid7()
        ids = self.run(self.batching(batch, calls, then))
        return Batch(self, batch, [Result(self, one) for one in ids])

    # -- working ---------------------------------------------------------------------------------

    def worker(
        self,
        queues: str | Sequence[str] | None = None,
        *,
        concurrency: int = 4,
        visibility: float = 60.0,
        stop_timeout: float = 30.0,
        ends_process: bool = False,
    ) -> Worker:
        """A worker of the library or the client, whose handler makes the calls; ``run()`` it.

        It creates queues that are missing, and defines the schedules of tasks with a crontab line.

        queues: those to work for, as a selection takes them; None: of all tasks, in turn.
        ends_process: end the process when a task does not end some seconds after its timeout.
        """
        choice = weighed(self, queues)
        self.run(self.preparing(choice))
        chosen = source(self.place, choice)
        handle = partial(self.handle, ends_process=ends_process)
        worker: Worker = chosen.worker(
            handle, concurrency=concurrency, visibility=visibility, stop_timeout=stop_timeout
        )
        return worker

    def handle(self, message: Any, claim: Claim, *, ends_process: bool = False) -> None:
        """Make the call of a message: the handler of its worker. Raises Retry, Bury."""

        def make(run: Run) -> Any:
            return called(run, self._loop_of_coroutines, ends_process)

        self.run(self.handling(message, claim, make))

    @contextmanager
    def schedules(self) -> Iterator[None]:
        """In a ``with``, put what schedules say; on a server, ``mq-mover`` does it anyway."""
        due = any(task.settings.cron is not None for task in self.tasks.values())
        if not due or not isinstance(self.place, Spool):
            yield
            return
        end = threading.Event()
        thread = threading.Thread(target=_run_schedules, args=[self.place, end], daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()

    def _make_at_once(self, run: Run) -> Any:
        return called(run, self._loop_of_coroutines, ends_process=False)

    def _loop_of_coroutines(self) -> asyncio.AbstractEventLoop:
        """The event loop of tasks that are coroutines, in a thread of its own."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=self._loop.run_forever, name="fsmq-coroutines", daemon=True
                ).start()
            return self._loop


class AsyncTasks(Common):
    """An application on a server, for coroutines; it belongs to one event loop at a time.

    place: the URL of a server, which is opened when it is first needed, or an AsyncClient.
    options: see `Common`.
    """

    def __init__(
        self,
        place: str | AsyncClient,
        queue: str = "tasks",
        **options: Unpack[AppOptions],
    ) -> None:
        super().__init__(queue, **options)
        self._given = place
        self._opened: AsyncClient | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncTasks of {self._given!r}>"

    @property
    def place(self) -> AsyncClient:
        """The AsyncClient."""
        if not isinstance(self._given, str):
            return self._given
        if self._opened is None:
            require("fsmq.tasks.AsyncTasks", "client")
            from fsmq.client._async.client import AsyncClient

            self._opened = AsyncClient(self._given)
        return self._opened

    async def close(self) -> None:
        """Close what it has opened itself; a later use opens it again."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.close()

    async def run(self, work: Steps[T]) -> T:
        """Do the steps of some work at the place."""
        return await steps.run_async(work, None if self.eager else self.place)

    @overload
    def task(
        self, function: Callable[P, Coroutine[Any, Any, V]], /
    ) -> AsyncTask[P, Coroutine[Any, Any, V], V]: ...
    @overload
    def task(self, function: Callable[P, V], /) -> AsyncTask[P, V, V]: ...
    @overload
    def task(self, /, **options: Unpack[Given]) -> MakesAsyncTask: ...
    def task(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Make a task of a function: coroutines run on the loop, others in threads.

        As `Tasks.task`.
        """

        def make(function: Callable[..., Any]) -> AsyncTask[..., Any, Any]:
            name = options.pop("name", None) or task_name(function)
            task = AsyncTask[..., Any, Any](self, function, name, self._options(**options))
            self._add(task)
            return task

        return make if function is None else make(function)

    async def send(self, call: Call[V], *, delay: Delay | None = None) -> AsyncResult[V]:
        """Send a call; it is durable when this returns. ``task.send(…)`` is shorter."""
        return AsyncResult(self, await self.run(self.sending(call, delay)))

    def result(self, id: str) -> AsyncResult[Any]:
        """The result of a call by its id, which may have been sent by another process."""
        return AsyncResult(self, id)

    async def batch(
        self, calls: Sequence[Call[Any]], *, then: Call[Any], id: str | None = None
    ) -> AsyncBatch:
        """Send calls, and ``then`` when all of them have ended well. As `Tasks.batch`."""
        batch = id or uuid7()
        ids = await self.run(self.batching(batch, calls, then))
        return AsyncBatch(self, batch, [AsyncResult(self, one) for one in ids])

    async def worker(
        self,
        queues: str | Sequence[str] | None = None,
        *,
        concurrency: int = 4,
        visibility: float = 60.0,
        stop_timeout: float = 30.0,
        ends_process: bool = False,
    ) -> AsyncWorker:
        """A worker of the client, whose handler makes the calls; ``await worker.run()``.

        As `Tasks.worker`.
        """
        choice = weighed(self, queues)
        await self.run(self.preparing(choice))

        make = partial(awaited, ends_process=ends_process)

        async def handle(message: Any, claim: Claim) -> None:
            await self.run(self.handling(message, claim, make))

        chosen = source(self.place, choice)
        worker: AsyncWorker = chosen.worker(
            handle, concurrency=concurrency, visibility=visibility, stop_timeout=stop_timeout
        )
        return worker

    def _make_at_once(self, run: Run) -> Any:
        return awaited(run)


def _open(place: str | Path) -> Spool | Client:
    """Open a place by its name. Raises MissingExtra, UnusableSpool."""
    if str(place).startswith(("http://", "https://")):
        require("fsmq.tasks on a server", "client")
        from fsmq.client._sync.client import Client

        return Client(str(place))
    return Spool(place)


def _run_schedules(spool: Spool, end: threading.Event) -> None:
    """Put what is due, on a folder where perhaps no mover runs; several may do it at once."""
    problem = ""
    while not end.wait(_LOOK_EVERY_S):
        try:
            spool.run_schedules()
            problem = ""
        except FsmqError as error:
            if str(error) != problem:
                log.warning("cannot put what schedules say: %s", error)
            problem = str(error)
