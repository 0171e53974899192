"""Shares: which ids of a queue a process prefers, so that processes and hosts rarely race."""

from __future__ import annotations

import zlib
from typing import NamedTuple

from ..layout.settings import QueueSettings

# A ready index that is not used for this time is forgotten, and its watch with it.
IDLE_S = 900.0


class Share(NamedTuple):
    """The ids that a process prefers: those of the ``rank``-th of ``of`` shares. (0, 1) is all.

    The CRC of an id puts it into one of ``partitions`` (None: as many as there are shares) of equal
    size. A share consists of the partitions that begin in it.
    """

    rank: int = 0
    of: int = 1
    partitions: int | None = None

    def prefers(self, message_id: str) -> bool:
        if self.of == 1:
            return True
        count = self.partitions or self.of
        partition = zlib.crc32(message_id.encode("utf-8", "replace")) * count >> 32
        return partition * self.of // count == self.rank

    def within(self, low: int, high: int) -> Share:
        """The same with no fewer and no more partitions than this."""
        return self._replace(partitions=min(max(self.of, low), high))


WHOLE = Share()


class Partitions(NamedTuple):
    """How many partitions a queue can have, by its settings."""

    min_partitions: int = 1
    max_partitions: int = 10
    idle_s: float = IDLE_S  # an index that is not used for this time is forgotten

    @classmethod
    def of(cls, settings: QueueSettings) -> Partitions:
        idle_s = min(IDLE_S, settings.max_partition_age)
        return cls(settings.min_partitions, settings.max_partitions, idle_s)


USUAL = Partitions()
