"""Attempts: a receive from a FIFO queue whose answer was lost is asked again by its name.

It finds the same messages, in the same claims, as long as nobody has touched one of them. This
process alone knows of them: another one answers such a receive as any other, and the messages come
again when their claims end.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from fsmq.spool import Message

_LASTS_S = 300.0
_MOST = 10_000


class Given(NamedTuple):
    """A message as it was given out."""

    message_id: str
    claim: str | None
    deliveries: int | None
    deadline: float

    def is_untouched(self, now: Message | None) -> bool:
        """Whether a message, as it is found now, is still in that claim, and was not renewed."""
        return (
            now is not None
            and now.state == "in_flight"
            and now.deadline == self.deadline
            and now.deliveries == self.deliveries
            and self.deadline > time.time()
        )


class Attempt(NamedTuple):
    """What a receive got. at_ms: when; until: to when it is known, in monotonic seconds."""

    given: tuple[Given, ...]
    at_ms: int
    until: float


class Attempts:
    """The receives of the last minutes that had names."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], Attempt] = OrderedDict()

    def find(self, queue: str, name: str) -> Attempt | None:
        """What a receive of a name has got, if that is known."""
        attempt = self._known.get((queue, name))
        return attempt if attempt is not None and time.monotonic() < attempt.until else None

    def note(self, queue: str, name: str, given: Sequence[Given], at_ms: int) -> None:
        """Remember what a receive has got, if it got anything."""
        self.forget(queue, name)
        now = time.monotonic()
        while self._known:
            first = next(iter(self._known))
            if len(self._known) < _MOST and self._known[first].until > now:
                break
            del self._known[first]
        if given:
            self._known[queue, name] = Attempt(tuple(given), at_ms, now + _LASTS_S)

    def forget(self, queue: str, name: str) -> None:
        """Let a receive of this name be a new one."""
        self._known.pop((queue, name), None)
