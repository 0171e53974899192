"""Work on a place, written once for threads and for coroutines.

Such work is a generator. It yields what is to be done, as a function of the place (a spool or a
client) or of nothing, and is resumed with the result, or with the error that was raised. The
drivers below do it; only they differ.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from fsmq.spool.layout.messages.message import NewMessage
from fsmq.spool.spool import Spool

if TYPE_CHECKING:
    from fsmq.client.by_id import ByIdVerbs

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pause:
    """Let seconds pass."""

    seconds: float


Ask: TypeAlias = "Callable[[Any], Any] | Pause"
Steps: TypeAlias = Generator[Ask, Any, T]


class Runs(Protocol):
    """An application of threads, for parts of it."""

    def run(self, work: Steps[T]) -> T: ...


class AsyncRuns(Protocol):
    """An application of coroutines, for parts of it."""

    async def run(self, work: Steps[T]) -> T: ...


def run(steps: Steps[T], place: Any) -> T:
    """Do the steps in this thread."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            ask = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as end:
            result: T = end.value
            return result
        answer = error = None
        try:
            if isinstance(ask, Pause):
                time.sleep(ask.seconds)
            else:
                answer = ask(place)
        except BaseException as raised:
            error = raised


async def run_async(steps: Steps[T], place: Any) -> T:
    """Do the steps on this event loop; a cancelled one ends them."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            ask = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as end:
            result: T = end.value
            return result
        answer = error = None
        try:
            answer = asyncio.sleep(ask.seconds) if isinstance(ask, Pause) else ask(place)
            if inspect.isawaitable(answer):
                answer = await answer
        except asyncio.CancelledError:
            steps.close()
            raise
        except BaseException as raised:
            error = raised


def ensure(queue: str, message: NewMessage) -> Ask:
    """Put a message unless one has its id; asked, it gives a list with whether it was put."""

    def ask(place: Any) -> Any:
        if isinstance(place, Spool):
            return [place.indexed(queue).ensure(message)]
        return place.run(_by_id(place).put(queue, [message], ensure=True))

    return ask


def upsert(queue: str, message: NewMessage) -> Ask:
    """Put a message in the place of the one that has its id."""

    def ask(place: Any) -> Any:
        if isinstance(place, Spool):
            return place.indexed(queue).upsert([message])
        return place.run(_by_id(place).put(queue, [message]))

    return ask


def find(queue: str, given_id: str) -> Ask:
    """Look at the message of an id; asked, it gives None if there is none."""

    def ask(place: Any) -> Any:
        if isinstance(place, Spool):
            return place.indexed(queue).find(given_id)
        return place.run(_by_id(place).find(queue, given_id))

    return ask


def put(queue: str, message: NewMessage) -> Ask:
    """Put a message; asked, it gives its id."""
    return lambda place: place.queue(queue).put(
        message.body,
        delay=message.delay,
        priority=message.priority,
        ttl=message.ttl,
        id=message.id,
        content_type=message.content_type,
        attributes=message.attributes,
    )


def put_many(queue: str, messages: Sequence[NewMessage]) -> Ask:
    """Put messages; asked, it gives their ids."""
    return lambda place: place.queue(queue).put_many(messages)


def _by_id(client: Any) -> ByIdVerbs:
    from fsmq.client.by_id import ByIdVerbs

    return ByIdVerbs(client.verbs)
