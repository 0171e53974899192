"""How requests call the engine, and get its results.

The caller passes a function that is called once, with the result or an error, possibly before the
call returns. `answer_of` makes that awaitable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias, TypeVar
from weakref import ref

from ..guard.access import Identity

log = logging.getLogger(__name__)
T = TypeVar("T")
# Called once, with the result of a verb or the error that it raised.
Answered: TypeAlias = Callable[[T | Exception], None]


class Party(Protocol):
    """A request as the engine sees it, from the fast path or from aiohttp.

    account: the name whose limits apply; None: only those for all. sender: its identity.
    """

    @property
    def account(self) -> str | None: ...

    @property
    def sender(self) -> Identity: ...

    @property
    def is_gone(self) -> bool:
        """Whether the client has hung up, as far as the server can tell."""

    def on_hang_up(self, callback: Callable[[], None] | None) -> None:
        """Call ``callback`` when the client hangs up; None cancels that."""

    def hang_up(self) -> None:
        """Close without an answer, because the client has probably hung up."""

    def hold(self, size: int, *, sure: bool = False) -> None:
        """Count bytes of bodies as held until it is answered; ``sure``: they exist already.

        Raises Overloaded, TooManyRequests.
        """


# The request of the running handler. Weak, because timers and threads keep copies of a context.
_party: ContextVar[ref[Party] | None] = ContextVar("party", default=None)


def work_for(party: Party) -> None:
    """Set the request for which the handler works from now on."""
    _party.set(ref(party))


def account() -> str | None:
    """The key of the request for which the handler works; None if there is none."""
    party = _asking()
    return None if party is None else party.account


def _asking() -> Party | None:
    waiting = _party.get()
    return None if waiting is None else waiting()


def check_is_there() -> None:
    """Check that the client still waits for the result. Raises ConnectionResetError."""
    party = _asking()
    if party is not None and party.is_gone:
        raise ConnectionResetError("the client has hung up")


def report(answered: Answered[T], outcome: T | Exception) -> None:
    """Report an outcome; an error in the callback is logged, so that others get theirs."""
    try:
        answered(outcome)
    except Exception:
        log.exception("an answer failed")


def ignore(_: object) -> None:
    """Ignore an outcome that nobody waits for."""


async def answer_of(
    begin: Callable[[Answered[T]], None], unwanted: Callable[[T], None] | None = None
) -> T:
    """Begin something, and await its result. Raises what it raises.

    unwanted: gets the result if the caller was cancelled.
    """
    answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def answered(outcome: T | Exception) -> None:
        if answer.done():
            if unwanted is not None and not isinstance(outcome, Exception):
                unwanted(outcome)
        elif isinstance(outcome, Exception):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)

    begin(answered)
    return await answer


class Tasks:
    """Background tasks; referenced here, because the loop has only weak references to them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Any) -> None:
        """Run something that takes longer than a turn of the loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
