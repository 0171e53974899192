"""Claims as requests ask for them, and the memory for their messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol, TypeAlias

from fsmq.spool import Message, NewMessage
from fsmq.spool.inspection import via
from fsmq.spool.prepare import FEW, LARGE_BYTES, Prepared, Room, Steps

from ..connection.pieces import FORM_BYTES, JSON_FACTOR
from ..guard.admission import Admission
from .asking import Answered, Party
from .waiters import Wish

# Long enough that a claim which is released at once cannot end before its release.
GLANCE_S = 5.0
# How many claims got which share of what they asked for, by queue and share.
Fills: TypeAlias = dict[tuple[str, float], int]
# Begins one claim.
Begin: TypeAlias = Callable[[Room], Steps[Prepared[list[Message]]]]


class Several(Wish, Protocol):
    """The queues of a claim whose queues can differ from try to try."""

    async def find(self) -> tuple[str, ...]:
        """The queues as they are now. Raises NoSuchQueue, InvalidValue, Unavailable."""

    def has_more(self) -> bool:
        """Whether there may be more to claim than the last try found."""


class Wanted(NamedTuple):
    """What a request wants to claim.

    queues: from which it claims, and for all of which it waits. most: the number of messages.
    visibility: in seconds; None: that of the queue. wait: seconds for the first message. in_json:
    whether they are answered in JSON. whole_groups: see `claims_of`. begin: claims in another way,
    for this request only. several: finds the queues again before each try.
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

    until: when its wait ends, in monotonic seconds. waits: while open, it counts as a waiting
    request of its key. place: in the lines of its queues. woken_by: the queue of the arrival that
    woke it. through: the dialect that the journal records for it. since: the number of arrivals
    when its last claim began, if that ran in a thread.
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
    """The memory of messages that are claimed for several requests, until these hold it.

    forms: the most memory for their form in JSON.
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
        """Count ``size`` bytes as no longer held."""
        self._admission.free(self._account, size)
        self._held -= size

    def close(self) -> None:
        """Count all bytes as no longer held."""
        self.free(self._held)


def goes_on(asked: Iterable[Asked], since: int) -> None:
    """Record that a claim continues in a thread, during which arrivals wake none of these."""
    for one in asked:
        one.since = since


def portions(asked: list[Asked]) -> Iterator[list[Asked]]:
    """The claims in groups of few messages each."""
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
    """The bytes of a message, including its attributes."""
    size = len(message.body)
    for name, value in message.attributes.items() if message.attributes else ():
        size += len(name) + len(value)
    return size


def form_of(size: int) -> int:
    """The additional memory that bodies of ``size`` bytes take as JSON, at a time."""
    return min((JSON_FACTOR - 1) * size, FORM_BYTES)
