"""What applications of threads and of coroutines have in common: tasks, hooks, messages, runs."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypedDict, TypeVar

from fsmq.spool.arguments import Delay
from fsmq.spool.claimed import Bury, Claim, Retry
from fsmq.spool.errors import InvalidValue, NoSuchQueue
from fsmq.spool.layout.messages.dead_letter import failure_of
from fsmq.spool.layout.messages.message import Message, NewMessage
from fsmq.spool.layout.names import check_queue, own_id
from fsmq.spool.layout.settings import QueueSettings
from fsmq.spool.layout.uuids import uuid7
from fsmq.spool.schedules.schedule_settings import check_schedule
from fsmq.spool.verbs.choice import Choice

from . import batches, results, steps
from .errors import TaskFailed
from .options import KILLS, TaskOptions
from .running import Run
from .serializer import JSON, Serializer, read
from .steps import Ask, Steps
from .task import Call, TaskBase, delay_of

log = logging.getLogger(__name__)
H = TypeVar("H", bound=Callable[..., object])
# Attributes of messages: the name of the task, the id of a unique call, where the result goes.
TASK, CALL, REPLY_TO = "Task", "Call", "Reply-To"
_RESULT_TTL_S = 86_400.0
_BATCH_TTL_S = 7 * 86_400.0


class AppOptions(TypedDict, total=False):
    """What applications take, besides their place and their queue: see `Common`."""

    results: str | None
    result_ttl: float
    batch_ttl: float
    serializer: Serializer
    eager: bool


class Common(ABC):
    """An application: its tasks, where they wait, and what is done before and after them.

    queue: of tasks that name none. results: the queue of results; None: none are kept.
    result_ttl, batch_ttl: seconds for which results, and the records of a batch, are kept.
    serializer: of arguments and results. eager: calls are made at once, where they are sent.
    """

    def __init__(
        self,
        queue: str,
        *,
        results: str | None = None,
        result_ttl: float = _RESULT_TTL_S,
        batch_ttl: float = _BATCH_TTL_S,
        serializer: Serializer = JSON,
        eager: bool = False,
    ) -> None:
        self.queue = check_queue(queue)
        self.batches = f"{queue}.batches"
        self.results = None if results is None else check_queue(results, "results")
        self.result_ttl = result_ttl
        self.batch_ttl = batch_ttl
        self.serializer = serializer
        self.eager = eager
        self.tasks: dict[str, TaskBase[Any, Any, Any]] = {}
        self.made_at_once: dict[str, NewMessage] = {}
        self._hooks: dict[str, list[Callable[..., object]]] = {
            name: [] for name in ("before_send", "before", "after", "on_error")
        }

    # -- hooks -----------------------------------------------------------------------------------

    def before_send(self, hook: H) -> H:
        """Call ``hook(call, attributes)`` before a send; it may add attributes, such as a trace."""
        return self._hook("before_send", hook)

    def before(self, hook: H) -> H:
        """Call ``hook(run)`` before each try; an exception from it is a failure of the task."""
        return self._hook("before", hook)

    def after(self, hook: H) -> H:
        """Call ``hook(run, value)`` after a task has returned."""
        return self._hook("after", hook)

    def on_error(self, hook: H) -> H:
        """Call ``hook(run, error, final)`` after a task has raised. final: there is no retry."""
        return self._hook("on_error", hook)

    def _hook(self, name: str, hook: H) -> H:
        self._hooks[name].append(hook)
        return hook

    def _tell(self, name: str, *of: Any) -> None:
        """Call hooks whose errors change nothing any more."""
        for hook in self._hooks[name]:
            try:
                hook(*of)
            except Exception:
                log.exception("a hook %s has failed", name)

    # -- tasks -----------------------------------------------------------------------------------

    def _add(self, task: TaskBase[Any, Any, Any]) -> None:
        """Add a task. Raises InvalidValue."""
        if task.name in self.tasks:
            raise InvalidValue("name", f"there is a task {task.name!r} already")
        if task.settings.cron is not None:
            check_schedule(task.name)
            task.call()  # raises TypeError if it needs arguments
            if task.settings.unique:
                raise InvalidValue("unique", "is for calls that are sent, not for those of cron")
        self.tasks[task.name] = task

    def _options(self, **given: Any) -> TaskOptions:
        options = {name: value for name, value in given.items() if value is not None}
        return TaskOptions.made({"queue": self.queue, **options})

    @property
    def queues(self) -> list[str]:
        """The queues of the tasks, that of the app first."""
        return list(dict.fromkeys([self.queue, *(t.settings.queue for t in self.tasks.values())]))

    # -- sending ---------------------------------------------------------------------------------

    def message(self, call: Call[Any], delay: Delay | None = None) -> NewMessage:
        """The message of a call. Raises InvalidValue."""
        attributes = {TASK: call.task.name}
        if self.results is not None:
            attributes[REPLY_TO] = self.results
        for hook in self._hooks["before_send"]:
            hook(call, attributes)
        options = call.task.settings
        return NewMessage(
            call.body,
            delay=delay_of(delay),
            priority=options.priority,
            ttl=options.ttl,
            content_type=self.serializer.content_type,
            attributes=attributes,
        )

    def sending(self, call: Call[Any], delay: Delay | None) -> Steps[str]:
        """Send a call; the id of it, or of the equal one that waits or runs, if it is unique."""
        message = self.message(call, delay)
        queue, key = call.task.settings.queue, call.key
        if self.eager:
            return (yield from self._at_once(call, message))
        if key is None:
            return own_id((yield from self.putting(queue, steps.put(queue, message))))
        one = uuid7()
        attributes = {**message.attributes, CALL: one}
        unique = replace(message, id=key, attributes=attributes)
        while True:
            [stored] = yield from self.putting(queue, steps.ensure(queue, unique))
            if stored:
                return one
            found = yield steps.find(queue, key)
            if found is not None:
                return str(found.attributes.get(CALL, found.own_id))

    def putting(self, queue: str, put: Ask) -> Steps[Any]:
        """Put something; a queue that is missing is created. No right but to send is needed."""
        try:
            return (yield put)
        except NoSuchQueue:
            yield from self.prepare_queue(queue)
            return (yield put)

    def prepare_queue(self, queue: str) -> Steps[None]:
        """Create a queue of tasks if it is missing, and give it dead letters if it has none."""
        settings = yield from self.prepare_records(queue)
        if settings.max_deliveries is None:
            most = max((t.settings.retries for t in self.tasks.values()), default=0)
            changes = {"max_deliveries": most + 1 + KILLS, "dead_letter_queue": f"{queue}.dead"}
            yield lambda place: place.queue(queue).configure(**changes)

    def prepare_records(self, queue: str) -> Steps[QueueSettings]:
        """Create a queue if it is missing, with an index; its settings."""
        settings: QueueSettings
        try:
            settings = yield lambda place: place.queue(queue).settings()
        except NoSuchQueue:
            yield lambda place: place.create_queue(queue, index=True)
            settings = yield lambda place: place.queue(queue).settings()
        return settings

    def preparing(self, choice: Choice) -> Steps[None]:
        """What a worker does before it begins: its queues, and the schedules of its tasks."""
        queues = [queue for queue in self.queues if choice.part_of(queue) is not None]
        for queue in queues:
            yield from self.prepare_queue(queue)
        if self.results is not None:
            yield from self.prepare_records(self.results)
        for task in self.tasks.values():
            if task.settings.cron is not None and task.settings.queue in queues:
                yield self._schedule(task.call())

    def _schedule(self, call: Call[Any]) -> Ask:
        message, options = self.message(call), call.task.settings
        return lambda place: place.schedule(call.task.name).define(
            options.cron,
            options.queue,
            message.body,
            timezone=options.timezone,
            priority=message.priority,
            ttl=message.ttl,
            content_type=message.content_type,
            attributes=message.attributes,
        )

    # -- running ---------------------------------------------------------------------------------

    def handling(self, message: Message, claim: Claim, make: Callable[[Run], Any]) -> Steps[None]:
        """Make the call of a message, as a worker's handler; it is acknowledged afterwards.

        make: calls the function, or gives what is to be awaited.

        Raises Retry, Bury.
        """
        run, part = self._read(message, claim)
        if part is None or not (yield from batches.has_ended(part)):
            reply_to = message.attributes.get(REPLY_TO)
            try:
                value = yield from self._tried(run, make)
            except Retry:
                raise
            except Exception as error:
                yield from self._failed(run, reply_to, error)
            if reply_to is not None:
                answer = results.of_value(self.serializer, run.id, value, self.result_ttl)
                yield from self._reply(reply_to, answer)
        if part is not None:
            yield from batches.ended(self, part)

    def _read(self, message: Message, claim: Claim) -> tuple[Run, batches.Part | None]:
        """What a message asks for. Raises Bury."""
        name = message.attributes.get(TASK)
        task = self.tasks.get(name or "")
        if task is None:
            raise Bury(f"this worker knows no task {name!r}" if name else "it is not of a task")
        content = read(self.serializer, message.content_type, message.body)
        try:
            args, kwargs = tuple(content["args"]), dict(content["kwargs"])
            part = batches.Part.of(message.attributes)
        except (KeyError, TypeError, ValueError) as error:
            raise Bury(f"it is not the call of a task: {error!r}") from error
        call = message.attributes.get(CALL, message.own_id)
        return Run(task, call, args, kwargs, message, claim), part

    def _tried(self, run: Run, make: Callable[[Run], Any]) -> Steps[Any]:
        """One try. Raises Retry, or an Exception, that of the task or an equal one."""
        try:
            for hook in self._hooks["before"]:
                hook(run)
            value = yield lambda _: make(run)
        except GeneratorExit:
            self._tell("on_error", run, asyncio.CancelledError(), False)
            raise
        except BaseException as error:
            error.__traceback__ = results.of_the_task(error.__traceback__)
            final = isinstance(error, Bury) or (run.is_last and not isinstance(error, Retry))
            self._tell("on_error", run, error, final)
            if isinstance(error, Exception):
                raise
            raise _Ended(error) from error
        self._tell("after", run, value)
        return value

    def _failed(self, run: Run, reply_to: str | None, error: Exception) -> Steps[None]:
        """Raise what the worker needs: Retry, or Bury after the result is stored."""
        cause = error.error if isinstance(error, _Ended) else error
        options = run.task.settings
        if not (run.is_last or isinstance(cause, Bury)):
            delay = options.pace.delay_after(run.deliveries)
            log.warning(
                "task %s failed (try %s, call %s), again in %.1f seconds",
                run.task.name,
                run.deliveries,
                run.id,
                delay,
                exc_info=cause,
            )
            raise Retry(delay) from cause
        log.error("task %s failed for good (call %s)", run.task.name, run.id, exc_info=cause)
        if reply_to is not None:
            yield from self._reply(reply_to, results.of_error(run.id, cause, self.result_ttl))
        if isinstance(cause, Bury):
            raise cause
        raise Bury(failure_of(cause) or "failed") from cause

    def _reply(self, queue: str, answer: NewMessage) -> Steps[None]:
        try:
            yield steps.upsert(queue, answer)
        except NoSuchQueue:
            yield from self.prepare_records(queue)
            yield steps.upsert(queue, answer)

    # -- eager mode ------------------------------------------------------------------------------

    def _at_once(self, call: Call[Any], message: NewMessage) -> Steps[str]:
        """Make a call now, with what a worker would read; its result is kept in this process."""
        content = read(self.serializer, message.content_type, message.body)
        run = Run(call.task, uuid7(), tuple(content["args"]), dict(content["kwargs"]))
        try:
            value = yield from self._tried(run, self._make_at_once)
        except Exception as error:
            cause = error.error if isinstance(error, _Ended) else error
            log.error("task %s failed", call.task.name, exc_info=cause)
            answer = results.of_error(run.id, cause, self.result_ttl)
        else:
            answer = results.of_value(self.serializer, run.id, value, self.result_ttl)
        self.made_at_once[run.id] = answer
        return run.id

    @abstractmethod
    def _make_at_once(self, run: Run) -> Any:
        """Call the function, or give what is to be awaited."""

    def _all_at_once(self, calls: Sequence[Call[Any]], then: Call[Any]) -> Steps[list[str]]:
        ids = []
        for call in calls:
            ids.append((yield from self.sending(call, None)))
        failed = [id for id in ids if _has_failed(self, id)]
        if not failed:
            yield from self.sending(then, None)
        return ids

    def batching(self, id: str, calls: Sequence[Call[Any]], then: Call[Any]) -> Steps[list[str]]:
        """Send a batch; the ids of its members."""
        if self.eager:
            return (yield from self._all_at_once(calls, then))
        return (yield from batches.sending(self, id, calls, then))


class _Ended(Exception):
    """Carries what a task raised that is no Exception: a time limit, SystemExit."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(repr(error))
        self.error = error


def _has_failed(app: Common, id: str) -> bool:
    try:
        results.value_of(app.serializer, app.made_at_once[id])
    except TaskFailed:
        return True
    return False


def weighed(app: Common, queues: str | Sequence[str] | None) -> Choice:
    """The queues that a worker claims from: those given, or all of the app, in turn.

    Raises InvalidValue.
    """
    return Choice([f"{one}:1" for one in app.queues] if queues is None else queues)


def source(place: Any, choice: Choice) -> Any:
    """What to claim from: a queue, which costs less, or several."""
    one = choice.names[0] if len(choice.parts) == 1 and not choice.has_patterns else None
    return place.select(str(choice)) if one is None else place.queue(one)
