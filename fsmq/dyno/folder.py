"""Shards in a spool that this program has opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from fsmq.spool import Message, NewMessage, NoSuchQueue, Spool, prepare
from fsmq.spool.context import join
from fsmq.spool.durability.settings_lock import MOVES, settings_held
from fsmq.spool.errors import as_unavailable
from fsmq.spool.records import peers

from .place import Sizes

_PATIENCE_S = 600.0  # how long a rebalance waits for another one


class Folder:
    """A :class:`~fsmq.dyno.place.Place` that is a spool. node: for tests of several hosts."""

    def __init__(self, spool: Spool, node: str | None = None) -> None:
        self.spool = spool
        self._node = node or peers.host_name()

    @property
    def node(self) -> str:
        return self._node

    def queues(self) -> list[str]:
        return self.spool.queues()

    def create(self, queue: str, visibility: float) -> None:
        self.spool.create_queue(queue, index=True)
        if self.spool.settings(queue).visibility_timeout != visibility:
            self.spool.configure(queue, {"visibility_timeout": visibility})

    def configure(self, queue: str, changes: Mapping[str, Any]) -> None:
        self.spool.configure(queue, changes)

    def delete(self, queue: str) -> None:
        self.spool.delete_queue(queue)

    def beat(self, zone: str) -> None:
        peers.beat_zone(self.spool.tree, zone)

    def zones(self) -> list[str]:
        return peers.zones(self.spool.tree)

    def upsert(self, messages: Mapping[str, Sequence[NewMessage]]) -> None:
        """One sync for all shards; a second one if messages are replaced."""
        all_prepared = prepare.upsert_each(self.spool.context, messages)
        while all_prepared:
            stored = self.spool.complete(join(all_prepared))
            all_prepared = [one.rest for one in stored if one.rest is not None]

    def ensure(self, queue: str, message: NewMessage, among: Sequence[str]) -> bool:
        return self.spool.indexed(queue).ensure(message, among=among)

    def claim(self, queue: str, count: int) -> list[Message]:
        with suppress(NoSuchQueue):  # it was retired just now
            return self.spool.complete(prepare.claim(self.spool.context, queue, count))
        return []

    def claim_id(self, queue: str, given_id: str) -> Message | None:
        with suppress(NoSuchQueue):  # it was retired just now
            return self.spool.indexed(queue).claim(given_id)
        return None

    def find(self, queue: str, given_id: str) -> Message | None:
        with suppress(NoSuchQueue):  # it was retired just now
            return self.spool.indexed(queue).find(given_id)
        return None

    def ack(self, queue: str, ids: Sequence[str], names: Mapping[str, str]) -> list[bool]:
        with suppress(NoSuchQueue):  # it was retired just now
            return self.spool.indexed(queue).ack(*ids, names=names)
        return [False] * len(ids)

    def remove(self, queue: str, given_id: str) -> bool:
        with suppress(NoSuchQueue):  # it was retired just now
            return self.spool.indexed(queue).remove(given_id)[0]
        return False

    def renew(self, queue: str, given_id: str, visibility: float) -> bool:
        with suppress(NoSuchQueue):  # it was retired just now
            return self.spool.indexed(queue).renew(given_id, visibility)
        return False

    def postpone(
        self, queue: str, given_id: str, delay: float, attributes: Mapping[str, str]
    ) -> bool:
        with suppress(NoSuchQueue):  # it was retired just now
            return self.spool.indexed(queue).postpone(given_id, delay, attributes)
        return False

    def peek(self, queue: str, count: int, state: str, after: str) -> list[Message]:
        with suppress(NoSuchQueue):  # it was retired just now
            return self.spool.queue(queue).peek(count, state=state, after=after)
        return []

    def scan(
        self,
        queue: str,
        states: Sequence[str],
        *,
        sorted_by_name: bool,
        is_over: Callable[[], bool],
    ) -> Iterator[Message]:
        with suppress(NoSuchQueue):
            yield from self.spool.indexed(queue).scan(
                *states, sorted_by_name=sorted_by_name, is_over=is_over
            )

    def counts(self, queue: str) -> Sizes:
        with suppress(NoSuchQueue):  # it was retired just now
            census = self.spool.census
            if not census.works:
                counts = self.spool.counts(queue)
                return Sizes(counts.total - counts.in_flight, counts.in_flight)
            unacked = census.claims(queue)
            return Sizes(census.size(queue) - unacked, unacked)
        return Sizes(0, 0)

    def purge(self, queue: str) -> None:
        self.spool.queue(queue).purge()

    def deliver(self) -> None:
        self.spool.deliver()

    def wait(self, queues: Sequence[str], count: int, seconds: float) -> list[Message]:
        pause_of = self.spool.context.pause_of
        self.spool.wait(min([seconds, *(pause_of(queue, seconds) for queue in queues)]))
        return []

    @contextmanager
    def rebalancing(self, queues: Sequence[str]) -> Iterator[None]:
        """Finishes the moves under way first; other rebalances wait for the end of this one."""
        held = settings_held(self.spool.tree, MOVES + min(queues), _PATIENCE_S)
        with as_unavailable("cannot plan moves"), held:
            for move in self.spool.moves():
                if move.status == "in_progress" and {move.source, move.target} <= {*queues}:
                    self.spool.make_move(move.ref)
            yield

    def move(self, source: str, target: str, count: int) -> int:
        ref = self.spool.begin_move(source, target, in_flight=False, delayed=True, count=count).ref
        self.spool.make_moves()
        move = self.spool.find_move(ref)
        return 0 if move is None else move.moved
