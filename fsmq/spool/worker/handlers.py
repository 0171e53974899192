"""The handlers of a worker: their claims, how they are called, and the options of a worker."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import random
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ..claimed import Claim, name_of
from ..layout.messages.message import Message
from ..layout.settings import MAX_DELAY_S, MAX_VISIBILITY_S, check_number, check_seconds
from ..log.delivered import Delivered

MAX_CONCURRENCY = 1000
# What is worked on: a message of a queue, or one that a channel has handed out.
Claimed: TypeAlias = Message | Delivered
_SHORTEST_VISIBILITY_S = 0.1


@dataclass(frozen=True)
class WorkerOptions:
    """How many messages a worker handles, and how long it may take over each.

    concurrency: messages in work at a time, 1 to 1000.
    visibility: seconds of a claim; a third of it is between two renewals.
    backoff: seconds after a first failure; doubled with each delivery, up to ``backoff_max``.
    stop_timeout: seconds that handlers may take when the worker stops.

    Raises:
        InvalidValue
    """

    concurrency: int = 4
    visibility: float = 60.0
    backoff: float = 1.0
    backoff_max: float = 300.0
    stop_timeout: float = 30.0

    def __post_init__(self) -> None:
        check_number("concurrency", self.concurrency, 1, MAX_CONCURRENCY)
        check_seconds("visibility", self.visibility, MAX_VISIBILITY_S)
        # A claim that ends before it can be renewed would have each message handled twice.
        check_seconds("visibility", self.visibility - _SHORTEST_VISIBILITY_S, MAX_VISIBILITY_S)
        check_seconds("backoff", self.backoff, MAX_DELAY_S)
        check_seconds("backoff_max", self.backoff_max, MAX_DELAY_S)
        check_seconds("stop_timeout", self.stop_timeout, MAX_VISIBILITY_S)

    def delay_after(self, deliveries: int | None) -> float:
        """Seconds until a message with this many deliveries is tried again.

        Up to a fifth less, at random, so that messages that failed together return apart.
        """
        doubled = self.backoff * 2.0 ** (max(1, deliveries or 1) - 1)
        return min(doubled, self.backoff_max) * random.uniform(0.8, 1.0)


class Handler(NamedTuple):
    """A handler as a worker calls it; ``stoppable``: cancelling it ends it."""

    call: Callable[[Any, Claim], Awaitable[object]]
    stoppable: bool


def on_loop(handler: Callable[[Any, Claim], Awaitable[object]]) -> Handler:
    """A coroutine function. Raises TypeError if it is none."""
    if not _is_coroutine_function(handler):
        raise TypeError(
            "the handler must be an async function; others are for fsmq.Client and fsmq.Spool"
        )
    _check_arguments(handler)
    return Handler(handler, stoppable=True)


def in_thread(handler: Callable[[Any, Claim], object]) -> Handler:
    """A function that is called in a thread of its own. Raises TypeError if it is none."""
    if _is_coroutine_function(handler):
        raise TypeError("the handler is an async function: use fsmq.AsyncClient for it")
    _check_arguments(handler)

    async def call(message: Claimed, claim: Claim) -> None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[BaseException | None] = loop.create_future()

        def end(error: BaseException | None) -> None:
            if not ended.done():
                ended.set_result(error)

        def run() -> None:
            error: BaseException | None = None
            try:
                handler(message, claim)
            except BaseException as raised:
                error = raised
            try:
                loop.call_soon_threadsafe(end, error)
            except RuntimeError:
                pass  # the worker has given up on us

        # Not from a pool: its threads would keep a program alive that wants to end.
        context = contextvars.copy_context()
        thread = threading.Thread(
            target=context.run, args=[run], name=f"fsmq-{name_of(message)}", daemon=True
        )
        thread.start()
        error = await ended
        if error is not None:
            raise Failed(error)

    return Handler(call, stoppable=False)


class Failed(Exception):
    """Carries what a handler in a thread raised: not all of that may travel through a future."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(repr(error))
        self.error = error


def _is_coroutine_function(handler: object) -> bool:
    call = getattr(handler, "__call__", None)  # noqa: B004 - an object with an async __call__
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)


def _check_arguments(handler: Callable[..., object]) -> None:
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):
        return  # a builtin that does not tell
    try:
        signature.bind(None, None)
    except TypeError:
        raise TypeError("the handler must take two arguments: message and claim") from None
