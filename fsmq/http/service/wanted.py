"""Claims that requests ask for: what they want, and the memory for what they get."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol, TypeAlias

from fsmq.spool import Message, NewMessage
from fsmq.spool.prepare import FEW, LARGE_BYTES, Prepared, Steps
from fsmq.spool.records.journal import via
from fsmq.spool.views.reading import Room

from ..connection.pieces import FORM_BYTES, JSON_FACTOR
from ..guard.admission import Admission
from .asking import Answered, Party
from .waiters import Wish

# Long enough that a claim which is released at once cannot end before.
GLANCE_S = 5.0
# How often claims from a queue have got which part of what they asked for.
Fills: TypeAlias = dict[tuple[str, float], int]
# Claims once each time that it is called.
Begin: TypeAlias = Callable[[Room], Steps[Prepared[list[Message]]]]


class Several(Wish, Protocol):
    """Which queues a claim is from, where they are not the same for each try."""

    async def find(self) -> tuple[str, ...]:
        """The queues as they are now. Raises NoSuchQueue, InvalidValue, Unavailable."""

    def has_more(self) -> bool:
        """Whether there may be more to claim than the last try has found."""


class Wanted(NamedTuple):
    """What a claim is for.

    queues: of which it takes, and for all of which it waits. most: so many messages. visibility: in
    seconds; None: as the queue has it. wait: so many seconds for the first message. in_json:
    whether they are answered in JSON. whole_groups: see `claims_of`. begin: claims in another way,
    and for nobody else. several: tells the queues anew before each try.
    """

    queues: tuple[str, ...]
    most: int = 1
    visibility: float | None = None
    wait: float = 0.0
    in_json: bool = True
    whole_groups: bool = False
    begin: Begin | None = None
    several: Several | None = None


class Asked:
    """A claim of one request.

    until: how long it waits, in monotonic seconds. waits: it counts among those of its key that do.
    place: in the lines of its queues. woken_by: the queue in which there was an arrival, which may
    be for it. through: what the journal says that it came through. since: how many arrivals there
    had been when its last claim began, if that went on in a thread.
    """

    __slots__ = (
        "answered",
        "party",
        "place",
        "since",
        "through",
        "until",
        "waits",
        "wanted",
        "woken_by",
    )

    def __init__(self, party: Party, wanted: Wanted, answered: Answered[list[Message]]) -> None:
        self.party = party
        self.wanted = wanted
        self.answered = answered
        self.through = via.get()
        self.until = 0.0
        if wanted.wait:
            self.until = time.monotonic() + min(wanted.wait, party.sender.seconds_left)
        self.waits: AbstractContextManager[None] | None = None
        self.place = 0
        self.woken_by: str | None = None
        self.since: int | None = None


class ClaimRoom:
    """The memory of messages that are claimed for several requests, until those hold it.

    forms: the most that goes with them for what they become in JSON.
    """

    def __init__(self, admission: Admission, account: str | None, forms: int) -> None:
        self._admission = admission
        self._account = account
        self._forms = forms
        self._held = 0

    def take(self, size: int, *, is_first: bool) -> None:
        """Hold bytes of a message. Raises NoRoom."""
        sure = is_first and size <= LARGE_BYTES
        form = min(form_of(size), self._forms)
        self._admission.hold(self._account, size + form, sure=sure)
        self._forms -= form
        self._held += size + form

    def free(self, size: int) -> None:
        """Hold so many bytes less."""
        self._admission.free(self._account, size)
        self._held -= size

    def close(self) -> None:
        """Hold nothing any more."""
        self.free(self._held)


def goes_on(asked: Iterable[Asked], since: int) -> None:
    """Note that a claim goes on in a thread: what arrives meanwhile wakes none of these."""
    for one in asked:
        one.since = since


def portions(asked: list[Asked]) -> Iterator[list[Asked]]:
    """Those that ask in parts that each ask for a few messages."""
    part: list[Asked] = []
    number = 0
    for one in asked:
        number += one.wanted.most
        if part and number >= FEW:
            yield part
            part, number = [], one.wanted.most
        part.append(one)
    if part:
        yield part


def size_of(message: Message | NewMessage) -> int:
    """The bytes of a message, with those of its attributes."""
    size = len(message.body)
    for name, value in message.attributes.items() if message.attributes else ():
        size += len(name) + len(value)
    return size


def form_of(size: int) -> int:
    """What bodies of so many bytes take in JSON beside themselves, at a time."""
    return min((JSON_FACTOR - 1) * size, FORM_BYTES)
