"""The history of dead letters in a load, and the states that it allows.

Each client has its own two queues, so the possible queues, priorities and reasons of each message
are known at every moment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from fsmq.spool.layout.messages import dead_letter
from fsmq.spool.layout.names import facts
from tests.power.ops import ENDED, Op

POSTS, FETCHES, BURIES, REDRIVES, PRIORITIZES = (
    "post_buriable",
    "take",
    "bury",
    "redrive",
    "set_priority",
)
_PREFIX, _DEAD = "buried-", ".dead"


def of_home(home: str) -> tuple[str, str]:
    """The queue and the dead-letter queue of a client."""
    return f"{_PREFIX}{home}", f"{_PREFIX}{home}{_DEAD}"


def is_ours(queue: str) -> bool:
    """Whether it is one of the queues of `of_home`."""
    return queue.startswith(_PREFIX)


class Place(NamedTuple):
    """The queue of a message, its priority and the reason of its burial."""

    queue: str
    priority: int = 0
    reason: str | None = None


class DeadHistory:
    """The operations of one round on dead letters. Parameters: as of `DedupHistory`.

    keeps_reasons: whether the filesystem keeps reasons of burials, which needs extended attributes.
    """

    keeps_reasons = True

    def __init__(
        self,
        ops: Sequence[Op],
        certain: Callable[[Op], bool],
        find: Callable[[str, str], None],
        gone: set[str],
    ) -> None:
        self._certain = certain
        self._find = find
        self._gone = gone
        self._may: dict[str, set[Place | None]] = {}  # by key; None: not stored
        self._operations: dict[str, list[Op]] = {}
        for op in ops:  # the operations of one client are in order
            if op.verb in (POSTS, BURIES, REDRIVES, PRIORITIZES) and op.status != ENDED:
                self._add(op)

    @property
    def keys(self) -> set[str]:
        return set(self._may)

    def _add(self, op: Op) -> None:
        is_done = self._certain(op) and (op.verb != REDRIVES or op.moved == len(op.keys))
        for key in op.keys:
            before = self._may.setdefault(key, {None})
            self._operations.setdefault(key, []).append(op)
            after = {place for one in before for place in self._after(op, one)}
            if not is_done:
                # A burial writes its reason before it moves the file.
                after |= before | {place._replace(queue=op.queue) for place in after if place}
            self._may[key] = after

    def _after(self, op: Op, place: Place | None) -> set[Place | None]:
        if op.verb == POSTS:
            return {Place(op.queue)}
        if place is None:
            return {None}
        if op.verb == BURIES:
            return {place._replace(queue=op.to[0], reason=op.reason)}
        if op.verb == REDRIVES:
            return {place._replace(queue=op.to[0])}
        return {place._replace(priority=op.priority)}

    def check_stored(self, stored: Iterable[tuple[str, str, Path, str | None, str]]) -> int:
        """Check the stored messages of these queues; their number.

        stored: queue, id, path, key (None if the content is broken) and fault.
        """
        found: dict[str, list[Place]] = {}
        for queue, message_id, path, key, fault in stored:
            if key is None:
                self._find("torn", f"{queue}:{message_id}: {fault}")
            elif key in self._gone:
                self._find("resurrected", f"{queue}:{message_id} is {key} of an earlier round")
            elif key not in self._may:
                self._find("foreign", f"{queue}:{message_id} is {key}, which no one has posted")
            else:
                place = Place(queue, facts(message_id).priority or 0, _reason_of(path))
                found.setdefault(key, []).append(place)
        for key, may in self._may.items():
            places: Sequence[Place | None] = found.get(key) or [None]
            if not self.keeps_reasons:
                may = {place and place._replace(reason=None) for place in may}
            if len(places) > 1:
                self._find("duplicated", self._story(key, places))
            elif places[0] not in may:
                self._find("undone" if places[0] else "lost", self._story(key, places))
        return sum(map(len, found.values()))

    def _story(self, key: str, places: Sequence[Place | None]) -> str:
        operations = ", ".join(
            f"{op.verb} by {op.client} {op.called:.4f}..{op.answered:.4f} ({op.status})"
            for op in self._operations[key]
        )
        return f"{key} is at {places}, may be at {self._may[key]}: {operations}"


def _reason_of(path: Path) -> str | None:
    fd = os.open(path, os.O_RDONLY)
    try:
        known = dead_letter.read(fd)
    finally:
        os.close(fd)
    return None if known is None else known.reason
