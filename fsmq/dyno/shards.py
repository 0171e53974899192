"""Shards: the queues ``<queue>@<shard>``; which exist, and which are alive.

A shard belongs to the zone of its name. A zone is alive while one of its hosts has a heartbeat in
``peers/``: the ``mq`` of a node of that name, or a program that pops there.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Sequence

from fsmq.spool import InvalidValue
from fsmq.spool.layout.names import check_queue, split_shard

from .place import Place

_shard_name = re.compile(r"[A-Za-z0-9_.-]{1,40}")
# How old the lists of shards and of live zones can be.
_FRESH_S = 1.0
_BEAT_S = 4.0


def check_shard(name: str) -> str:
    """Return the name if a shard may have it; raise InvalidValue otherwise."""
    if isinstance(name, str) and _shard_name.fullmatch(name):
        return name
    raise InvalidValue("shard", f"{name!r} is not a shard: 1 to 40 of A-Z a-z 0-9 _ . -")


def shard_of(node: str) -> str:
    """The shard of a host: its name, or a part of the name and a hash if it is too long."""
    if _shard_name.fullmatch(node):
        return node
    return f"{node[:31]}-{hashlib.sha256(node.encode()).hexdigest()[:8]}"


def queue_of(name: str, shard: str) -> str:
    """The queue of the spool that is a shard of a queue. Raises InvalidValue."""
    return check_queue(f"{name}@{shard}")


class Zones:
    """The zone of this program, and which others are alive. Safe in threads."""

    def __init__(self, place: Place, zone: str) -> None:
        self.zone = zone
        self._place = place
        self._lock = threading.Lock()
        self._alive: set[str] = {zone}
        self._until = self._beats_at = 0.0

    def beat(self) -> None:
        """Tell the others that this zone has a consumer, unless that was done just now."""
        with self._lock:
            now = time.monotonic()
            if now >= self._beats_at:
                self._place.beat(self.zone)
                self._beats_at = now + _BEAT_S

    def alive(self) -> set[str]:
        """The zones that have consumers, and always this one."""
        with self._lock:
            now = time.monotonic()
            if now >= self._until:
                self._alive = {*self._place.zones(), self.zone}
                self._until = now + _FRESH_S
            return self._alive


class Shards:
    """The shards of one queue, sorted; the local one is always among them."""

    def __init__(
        self, place: Place, zones: Zones, name: str, visibility: float, given: Sequence[str] | None
    ) -> None:
        self._place = place
        self._zones = zones
        self._name = name
        self._visibility = visibility
        self._lock = threading.Lock()
        self._found: list[str] = []
        self._until = 0.0
        self._given = None if given is None else sorted(given)
        self._sizes: tuple[float, dict[str, int]] = (0.0, {})
        for shard in self._given if self._given is not None else [zones.zone]:
            place.create(self.queue(shard), visibility)

    def beat(self) -> None:
        """Tell the others that this zone has a consumer."""
        self._zones.beat()

    @property
    def local(self) -> str:
        """The shard of this zone."""
        return self._zones.zone

    def queue(self, shard: str) -> str:
        """The queue of the spool that a shard is."""
        return queue_of(self._name, shard)

    def all(self) -> list[str]:
        """All shards."""
        if self._given is not None:
            return self._given
        with self._lock:
            now = time.monotonic()
            if now >= self._until:
                pairs = (split_shard(queue) for queue in self._place.queues())
                found = {pair[1] for pair in pairs if pair is not None and pair[0] == self._name}
                self._found = sorted(found | {self.local})
                self._until = now + _FRESH_S
            return self._found

    def live(self) -> list[str]:
        """The shards whose zone is alive; all of them, if they were given."""
        if self._given is not None:
            return self._given
        alive = self._zones.alive()
        return [shard for shard in self.all() if shard in alive]

    def orphans(self) -> tuple[list[str], list[str]]:
        """The shards whose zone is not alive: those that this zone reads, and those that others do.

        Each live zone computes the same, so that each shard is read by one of them.
        """
        alive = self._zones.alive()
        mine: list[str] = []
        others: list[str] = []
        for shard in self.all():
            if shard in alive:
                continue
            reader = max(alive, key=lambda zone: _weight(shard, zone))
            (mine if reader == self.local else others).append(shard)
        return mine, others

    def in_reading_order(self) -> list[str]:
        """All shards, the local one first."""
        return [self.local, *(shard for shard in self.all() if shard != self.local)]

    def sizes(self) -> dict[str, int]:
        """How many messages each shard has; can be a second old."""
        until, sizes = self._sizes
        if time.monotonic() >= until:
            sizes = {shard: self._place.counts(self.queue(shard)).size for shard in self.all()}
            self._sizes = time.monotonic() + _FRESH_S, sizes
        return sizes

    def forget(self) -> None:
        """Let the next call list the shards again."""
        with self._lock:
            self._until = 0.0


def _weight(shard: str, zone: str) -> bytes:
    return hashlib.sha256(f"{shard}\n{zone}".encode()).digest()
