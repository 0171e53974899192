"""What requests ask of the engine, and how they are told what has come of it.

Whoever asks gives a function that is called once, with the result or with an error, and perhaps at
once. `answer_of` makes a coroutine's wait of that.
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
# Is called once, with the result of a verb or with what it has raised.
Answered: TypeAlias = Callable[[T | Exception], None]


class Party(Protocol):
    """A request, as those see it who do what it asks for, by whichever way it came.

    account: whose limits hold for it; None for those of all only. sender: who sends it.
    """

    @property
    def account(self) -> str | None: ...

    @property
    def sender(self) -> Identity: ...

    @property
    def is_gone(self) -> bool:
        """Whether the client has hung up, as far as one can tell."""

    def on_hang_up(self, callback: Callable[[], None] | None) -> None:
        """Have ``callback`` called when the client hangs up; None takes that back."""

    def hang_up(self) -> None:
        """Answer nothing to a client that has hung up, as far as one can tell."""

    def hold(self, size: int, *, sure: bool = False) -> None:
        """Count bytes of bodies as held until it is answered; ``sure``: they are there already.

        Raises Overloaded, TooManyRequests.
        """


# For whom aiohttp's handler works. (Timers and threads have copies of a context, and keep nobody.)
_party: ContextVar[ref[Party] | None] = ContextVar("party", default=None)


def work_for(party: Party) -> None:
    """Say for whom the handler works from now on."""
    _party.set(ref(party))


def check_is_there() -> None:
    """Make sure that somebody waits for what is about to be done. Raises ConnectionResetError."""
    waiting = _party.get()
    party = None if waiting is None else waiting()
    if party is not None and party.is_gone:
        raise ConnectionResetError("the client has hung up")


def report(answered: Answered[T], outcome: T | Exception) -> None:
    """Give an outcome to one who must not keep others from theirs."""
    try:
        answered(outcome)
    except Exception:
        log.exception("an answer failed")


def ignore(_: object) -> None:
    """Do nothing with an outcome that nobody waits for."""


async def answer_of(
    begin: Callable[[Answered[T]], None], unwanted: Callable[[T], None] | None = None
) -> T:
    """Begin something, and wait for its result. Raises what it raises.

    unwanted: gets the result if nobody waits for it any more.
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
    """What goes on beside the turns of the loop; kept, since the loop keeps none of its tasks."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Any) -> None:
        """Do what takes longer than a turn of the loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
