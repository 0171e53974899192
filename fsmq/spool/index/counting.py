"""Counting: how many messages a queue has in each state, by listing its folders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..layout.names import facts, split_entry
from ..layout.stamps import Stamps
from ..layout.transitions import DELAY, NEW
from ..layout.tree import Tree


class Counts(NamedTuple):
    """Messages of one queue, by state."""

    new: int = 0  # accepted, not yet delivered
    ready: int = 0  # can be claimed
    in_flight: int = 0  # claimed and not acknowledged
    delayed: int = 0  # sent with a delay that is not over

    @property
    def total(self) -> int:
        return sum(self)

    @property
    def unfinished(self) -> int:
        """Ready and in flight: the work for which consumers are needed now."""
        return self.ready + self.in_flight

    def as_dict(self) -> dict[str, int]:
        """The counts by state, and ``unfinished``."""
        return {**self._asdict(), "unfinished": self.unfinished}


def count(tree: Tree, stamps: Stamps, queue: str, now_ms: int) -> Counts:
    """Count by listing. Raises OSError."""
    new = set(_ids(tree, NEW, queue))
    ready = ReadyCount(new)
    tree.show_ready(queue, ready.count)
    hidden = _ids(tree, DELAY, queue)
    new.difference_update(hidden)
    in_flight = delayed = 0
    for message_id in hidden:
        found = tree.stat(tree.folder(DELAY, f"{queue}:{message_id}"))
        if found is None:
            continue
        if stamps.hidden_state(message_id, found.st_mtime_ns, now_ms) == "delayed":
            delayed += 1
        else:
            in_flight += 1
    return Counts(len(new), ready.number, in_flight, delayed)


class ReadyCount:
    """The number and age of a queue's ready ids, which can be too many to hold.

    new: the ids in ``new/``; those that are seen again, as they were delivered since, are removed.
    oldest: in Unix seconds, among the ids given to `date`.
    """

    def __init__(self, new: set[str]) -> None:
        self.new = new
        self.number = 0
        self.oldest: float | None = None

    def count(self, ids: list[str]) -> None:
        self.number += len(ids)
        if self.new:
            self.new.difference_update(ids)

    def date(self, ids: list[str]) -> None:
        found = [one for one in (self.oldest, oldest_of(ids)) if one is not None]
        self.oldest = min(found, default=None)

    def count_and_date(self, ids: list[str]) -> None:
        self.count(ids)
        self.date(ids)


def _ids(tree: Tree, folder: str, queue: str) -> list[str]:
    prefix = queue + ":"
    parts = (split_entry(n) for n in tree.names(tree.folder(folder)) if n.startswith(prefix))
    return [part[1] for part in parts if part is not None and part[0] == queue]


def oldest_of(ids: Sequence[str]) -> float | None:
    """When the oldest of these ids was created, in Unix seconds."""
    # Without priorities and plain names the least name is the oldest; with a million ids it matters
    # that the usual case is one call of min().
    bare = [i[4:] if i[0] == "p" and i[3:4] == "." else i for i in ids]
    created = facts(min(bare)).created_ms if bare else None
    if created is None:
        known = (facts(name).created_ms for name in bare)
        created = min((ms for ms in known if ms is not None), default=None)
    return None if created is None else created / 1000
