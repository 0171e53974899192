"""Attempts: a receive from a FIFO queue whose answer was lost can be repeated by its name.

It gets the same messages, in the same claims, as long as none of them has changed. Only this
process knows about it: another one handles the request as a new receive, and the messages are
redelivered when their claims end.
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
    """A message as it was received."""

    message_id: str
    claim: str | None
    deliveries: int | None
    deadline: float

    def is_untouched(self, now: Message | None) -> bool:
        """Whether the message, as it is now, is still in that claim, and was not renewed."""
        return (
            now is not None
            and now.state == "in_flight"
            and now.deadline == self.deadline
            and now.deliveries == self.deliveries
            and self.deadline > time.time()
        )


class Attempt(NamedTuple):
    """The result of a receive. at_ms: when it was; until: when it expires, in monotonic seconds."""

    given: tuple[Given, ...]
    at_ms: int
    until: float


class Attempts:
    """The named receives of the last minutes."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], Attempt] = OrderedDict()

    def find(self, queue: str, name: str) -> Attempt | None:
        """The result of a receive by its name; None if it is unknown."""
        attempt = self._known.get((queue, name))
        return attempt if attempt is not None and time.monotonic() < attempt.until else None

    def note(self, queue: str, name: str, given: Sequence[Given], at_ms: int) -> None:
        """Store the result of a receive, if it got any messages."""
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
        """Forget a name, so that the next receive with it is a new one."""
        self._known.pop((queue, name), None)
