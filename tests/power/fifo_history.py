"""Checks the notes of senders and workers of a fifo queue.

Times are from `time.monotonic`, which all processes of a host share; the clocks of programs may be
set meanwhile. Kills do not matter here: everything in a note has happened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from fsmq.spool.layout.names import sequence_of

MINUTE_TICKS = 60_000 << 12
# A clock is read a little before or after the event that it stamps.
_MARGIN_S = 0.05


class Note(NamedTuple):
    """The start or the result of an action on a deduplication id, and the id of its message.

    since, until: when a claim was requested, and when it ends by the clock of its program.
    """

    at: float
    what: str
    one: str
    message_id: str = "-"
    since: float = 0.0
    until: float = 0.0

    @classmethod
    def read(cls, line: str) -> Note:
        what, one, message_id, at, since, until = line.split(" ")
        return cls(float(at), what, one, message_id, float(since), float(until))

    def line(self) -> str:
        times = f"{self.at!r} {self.since!r} {self.until!r}"
        return f"{self.what} {self.one} {self.message_id} {times}\n"

    @property
    def group(self) -> str:
        return self.one[0]


@dataclass
class History:
    """The notes of one load.

    ids: the message id of each deduplication id in the end. ahead: the most seconds that any clock
    was ahead of the right one. right: the right time at 0 of `time.monotonic`.
    """

    notes: list[Note]
    ids: Mapping[str, str]
    ahead: float
    right: float
    _ends: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def broken(self) -> Iterator[str]:
        """The broken promises."""
        self.notes.sort()
        for note in self.notes:
            if note.what in ("acking", "releasing"):
                self._ends[note.message_id].append(note.at)
        yield from self._order_of_puts()
        groups: dict[str, list[Note]] = defaultdict(list)
        for note in self.notes:
            if note.what == "claimed":
                groups[note.group].append(note)
        for group, claims in groups.items():
            yield from self._order_of_claims(group, claims)
            yield from self._holders(claims)

    def _order_of_puts(self) -> Iterator[str]:
        """A put that begins after another was answered comes behind it, whatever clocks say.

        Behind a message that was put by a clock far ahead, this holds while it is in the queue.
        """
        answered: dict[str, int] = {}  # places of answered puts, by id
        before: dict[str, dict[str, int]] = {}  # the answered puts when a put began
        stored: set[str] = set()
        for note in self.notes:
            if note.what == "acking":
                stored.discard(note.message_id)
            elif note.what == "putting":
                before.setdefault(note.one, dict(answered))
            elif note.what == "put":
                place = place_of(note.message_id)
                if any(
                    place < other <= place + MINUTE_TICKS or (place < other and one in stored)
                    for one, other in before[note.one].items()
                ):
                    yield f"{note} is in front of what was answered before it began"
                if self.ids[note.one] != note.message_id:
                    yield f"{note} has another id in the end, {self.ids[note.one]}"
                if note.message_id not in answered:
                    stored.add(note.message_id)
                answered[note.message_id] = place

    def _order_of_claims(self, group: str, claims: Sequence[Note]) -> Iterator[str]:
        """A claimed message has no unacknowledged message of its group in front of it."""
        places = sorted((place_of(i), i) for one, i in self.ids.items() if one[0] == group)
        acked = {note.message_id: note.at for note in reversed(self.notes) if note.what == "acking"}
        last = {claim.message_id: claim.since for claim in claims}  # it still existed then
        for claim in claims:
            for place, message_id in places:
                if place >= place_of(claim.message_id):
                    break
                is_late = acked.get(message_id, claim.at) >= claim.at
                if is_late or last.get(message_id, 0.0) > claim.at:
                    yield f"{claim} has {message_id} in front of it"

    def _holders(self, claims: Sequence[Note]) -> Iterator[str]:
        """A group has one holder, until a clock can say that its claim has ended.

        A program may act on the time that it read before its clock was set back. A claim that ended
        before its holder got the answer may be older than claims that were answered before.
        """
        early = self.right + self.ahead + _MARGIN_S
        held = [(claim, claim.until - early) for claim in claims if claim.until - early > claim.at]
        for (first, over), (second, _) in pairwise(held):
            ends = [at for at in self._ends[first.message_id] if at >= first.at]
            if second.at < min([*ends, over]):
                yield f"{second} while it was held by {first}"


def place_of(message_id: str) -> int:
    place = sequence_of(message_id)
    assert place is not None
    return place
