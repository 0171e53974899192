"""The handlers of a worker and how they are called; the options of a worker."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import random
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from fsmq.kinds import Number, Whole

from ..claimed import Claim, name_of
from ..layout.messages.message import Message
from ..layout.settings import MAX_DELAY_S, MAX_VISIBILITY_S
from ..layout.settings_base import Settings, checked, setting, settings_of
from ..log.delivered import Delivered

MAX_CONCURRENCY = 1000
Claimed: TypeAlias = Message | Delivered


@dataclass(frozen=True)
class WorkerOptions(Settings):
    """How many messages a worker handles at a time, and its timeouts and delays.

    `OPTIONS` describes each, also for the docs. Raises InvalidValue.
    """

    concurrency: int = setting(4, Whole(1, MAX_CONCURRENCY, "messages"), "in work at a time")
    visibility: float = setting(
        60.0,
        Number(0.1, MAX_VISIBILITY_S, "seconds"),
        "of a claim, which is renewed after each third; some seconds at least, or a busy machine"
        " loses claims",
    )
    backoff: float = setting(
        1.0,
        Number(0, MAX_DELAY_S, "seconds"),
        "until the next try after a first failure; doubled with each delivery",
    )
    backoff_max: float = setting(
        300.0, Number(0, MAX_DELAY_S, "seconds"), "until the next try at most"
    )
    stop_timeout: float = setting(
        30.0,
        Number(0, MAX_VISIBILITY_S, "seconds"),
        "that handlers may take when the worker stops",
    )

    def __post_init__(self) -> None:
        for name in OPTIONS:
            checked(OPTIONS, name, getattr(self, name))

    def delay_after(self, deliveries: int | None) -> float:
        """Seconds until a message with this many deliveries is tried again.

        Shortened by up to a fifth at random, to spread messages that failed together.
        """
        doubled = self.backoff * 2.0 ** (max(1, deliveries or 1) - 1)
        return min(doubled, self.backoff_max) * random.uniform(0.8, 1.0)


OPTIONS = settings_of(WorkerOptions)


class Handler(NamedTuple):
    """A handler as a worker calls it. stoppable: cancelling the call ends the handler."""

    call: Callable[[Any, Claim], Awaitable[object]]
    stoppable: bool


def on_loop(handler: Callable[[Any, Claim], Awaitable[object]]) -> Handler:
    """The Handler of a coroutine function. Raises TypeError for another function."""
    if not _is_coroutine_function(handler):
        raise TypeError(
            "the handler must be an async function; others are for fsmq.Client and fsmq.Spool"
        )
    _check_arguments(handler)
    return Handler(handler, stoppable=True)


def in_thread(handler: Callable[[Any, Claim], object]) -> Handler:
    """The Handler that calls a function in a new thread. Raises TypeError if that is async."""
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
                pass  # the worker has stopped waiting, and its loop is closed

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
    """Carries what a handler in a thread raised: a future does not take every exception."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(repr(error))
        self.error = error


def _is_coroutine_function(handler: object) -> bool:
    call = getattr(handler, "__call__", None)  # noqa: B004 - an object with an async __call__
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)


def _check_arguments(handler: Callable[..., object]) -> None:
    if not callable(handler):
        raise TypeError(f"the handler must be a function, not {type(handler).__name__}")
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):
        return  # a builtin without a signature
    try:
        signature.bind(None, None)
    except TypeError:
        raise TypeError("the handler must take two arguments: message and claim") from None
