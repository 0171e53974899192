"""The dyno-queues of a spool or a server."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Self

from fsmq.spool import InvalidValue, Spool
from fsmq.spool.layout.names import check_queue

from .folder import Folder
from .message import Form
from .place import Place
from .queue import MAX_UNACK_MS, DynoQueue
from .reader import Cross, check_cross
from .shards import Shards, Zones, check_shard, shard_of
from .strategies import Function, RoundRobin, Strategy, as_strategy


class DynoQueues:
    """Queues that are spread over shards, one for each zone.

    where: an opened :class:`~fsmq.Spool`, or a :class:`~fsmq.Client` of a server.
    zone: the shard that is local here; None: the node's name.
    shards: the names of all shards; None: those that exist, and the local one.
    unack_time: milliseconds for which a popped message is hidden.
    strategy: where pushed messages go: "round_robin", "local", "least_full", "hash", an object of
        `fsmq.dyno.strategies`, or a function of all shards and the message.
    cross: which shards pop reads: "never": only the local one; "orphans": also those whose zone is
        not alive; "empty": also the others when the local one is empty; "all".
    higher_first: messages with the higher priority are popped first.

    Safe in threads. It has no thread of its own; ``close`` closes neither spool nor client.
    """

    def __init__(
        self,
        where: Spool | Any,
        *,
        zone: str | None = None,
        shards: Sequence[str] | None = None,
        unack_time: int = 60_000,
        strategy: Strategy | Function | str | None = None,
        cross: Cross = "orphans",
        higher_first: bool = False,
    ) -> None:
        if type(unack_time) is not int or not 1 <= unack_time <= MAX_UNACK_MS:
            raise InvalidValue("unack_time", f"must be 1 to {MAX_UNACK_MS} ms; the most is 7 days")
        self._place = _place(where)
        local = shard_of(self._place.node) if zone is None else check_shard(zone)
        self._zones = Zones(self._place, local)
        self._given = None if shards is None else [check_shard(shard) for shard in shards]
        if self._given is not None and local not in self._given:
            self._given.append(local)
        self._unack_time = unack_time
        self._strategy = RoundRobin() if strategy is None else as_strategy(strategy)
        self._cross = check_cross(cross)
        self._form = Form(higher_first=higher_first)
        self._lock = threading.Lock()
        self._queues: dict[str, DynoQueue] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def zone(self) -> str:
        """The shard that is local here."""
        return self._zones.zone

    def get(self, name: str) -> DynoQueue:
        """A queue, created if it is missing; the same object for the same name."""
        check_queue(name)
        with self._lock:
            if name not in self._queues:
                shards = Shards(
                    self._place, self._zones, name, self._unack_time / 1000, self._given
                )
                self._queues[name] = DynoQueue(
                    self._place,
                    shards,
                    name,
                    self._unack_time,
                    self._strategy,
                    self._cross,
                    self._form,
                )
            return self._queues[name]

    def queues(self) -> list[DynoQueue]:
        """The queues that were made by :meth:`get`."""
        with self._lock:
            return [*self._queues.values()]

    def close(self) -> None:
        """Close the queues that were made."""
        for queue in self.queues():
            queue.close()


def _place(where: Any) -> Place:
    if isinstance(where, Spool):
        return Folder(where)
    if isinstance(where, Folder):
        return where
    from fsmq.client._sync.client import Client  # it needs an HTTP library

    from .server import Server

    if isinstance(where, Client):
        return Server(where)
    raise InvalidValue("where", f"must be a Spool or a Client, not {type(where).__name__}")
