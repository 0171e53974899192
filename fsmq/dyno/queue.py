"""One queue of dyno-queues: spread over shards, with ids that producers choose."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fsmq.spool import InvalidValue

from . import predicates
from .message import TIMEOUT, Form, Message, Unit, in_ms
from .place import Place
from .predicates import Predicate
from .reader import PART, Cross, Reader, check_cross
from .rebalance import Moves, plan
from .shards import Shards
from .strategies import Strategy

MAX_UNACK_MS = 7 * 86_400_000
MAX_TIMEOUT_MS = 366 * 86_400_000
_COUNTED_S = 1.0
_ALL = 2**31


class DynoQueue:
    """A queue of `DynoQueues`. Times are milliseconds, or in ``unit``. Safe in threads.

    All methods raise :class:`~fsmq.FsmqError`: InvalidValue for a bad argument, Unavailable when
    the disk fails or is full.
    """

    def __init__(
        self,
        place: Place,
        shards: Shards,
        name: str,
        unack_time: int,
        strategy: Strategy,
        cross: Cross,
        form: Form,
    ) -> None:
        self._place = place
        self._shards = shards
        self._name = name
        self._unack_time = unack_time
        self._strategy = strategy
        self._cross = cross
        self._form = form
        self._reader = Reader(place, shards, form)

    def __repr__(self) -> str:
        return f"<DynoQueue {self._name!r}, shard {self._shards.local!r}>"

    def get_name(self) -> str:
        """The name of the queue."""
        return self._name

    def get_unack_time(self) -> int:
        """Milliseconds after which a popped message comes back."""
        return self._unack_time

    def close(self) -> None:
        """Do nothing: there are no threads to end, and all methods keep working."""

    # -- push ------------------------------------------------------------------------------------

    def push(self, messages: Iterable[Message], *, ttl: float | None = None) -> list[str]:
        """Push messages; their ids in order. In a spool all or none, with one sync for all shards.

        A message replaces one with the same id in the same shard. ttl: seconds until the messages
        expire.
        """
        ids: list[str] = []
        parts: dict[str, list[Any]] = {}
        for message in messages:
            written = self._form.written(message, ttl)
            _check_timeout(message.timeout)
            shard = self._strategy.choose(self._shards, message)
            parts.setdefault(self._shards.queue(shard), []).append(written)
            ids.append(message.id)
        while any(parts.values()):
            self._place.upsert({queue: batch[:PART] for queue, batch in parts.items() if batch})
            parts = {queue: batch[PART:] for queue, batch in parts.items()}
        return ids

    def ensure(self, message: Message) -> bool:
        """Push a message unless a shard has one with its id; of concurrent callers one pushes."""
        written = self._form.written(message)
        _check_timeout(message.timeout)
        target = self._shards.queue(self._strategy.choose(self._shards, message))
        self._shards.forget()
        queues = [self._shards.queue(shard) for shard in self._shards.all()]
        return self._place.ensure(target, written, queues)

    # -- pop -------------------------------------------------------------------------------------

    def pop(
        self,
        count: int,
        wait: int = 0,
        unit: Unit = "ms",
        *,
        cross: Cross | None = None,
        first: bool = False,
    ) -> list[Message]:
        """Pop up to ``count`` messages that are due, in order of each shard; an empty list if none.

        It returns when ``count`` are there or the wait is over. Messages are hidden for the unack
        time, unless they are acknowledged.

        cross: which shards are read, instead of the queue's own ``cross``. first: return as soon as
        there are any.
        """
        cross = self._cross if cross is None else check_cross(cross)
        end = time.monotonic() + in_ms(wait, unit) / 1000
        popped: list[Message] = []
        while len(popped) < count:
            self._place.deliver()
            popped += self._reader.pop(count - len(popped), cross)
            left = end - time.monotonic()
            if len(popped) >= count or left <= 0 or (first and popped):
                break
            popped += self._reader.wait(count - len(popped), cross, left)
        return popped

    bulk_pop = pop

    def unsafe_pop_all_shards(self, count: int, wait: int = 0, unit: Unit = "ms") -> list[Message]:
        """Pop from all shards, the local one first. As safe as any other pop."""
        return self.pop(count, wait, unit, cross="all")

    unsafe_bulk_pop = unsafe_pop_all_shards

    def pop_with_msg_id(self, message_id: str) -> Message | None:
        """Pop the message of an id from the local shard, even if its timeout is not over."""
        return self._reader.pop_id(self._shards.local, message_id)

    def unsafe_pop_with_msg_id_all_shards(self, message_id: str) -> Message | None:
        """Pop the message of an id from any shard, even if its timeout is not over."""
        for shard in self._shards.in_reading_order():
            if (found := self._reader.pop_id(shard, message_id)) is not None:
                return found
        return None

    def pop_msg_with_predicate(
        self,
        predicate: Predicate,
        local: bool = False,
        *,
        limit: int | None = None,
        seconds: float | None = None,
    ) -> Message | None:
        """Pop the first message that is due and whose payload matches; None if there is none.

        limit, seconds: how many messages are read at most, and for how long.
        """
        self._place.deliver()
        bounds = predicates.Bounds(limit, seconds)
        shards = [self._shards.local] if local else self._shards.in_reading_order()
        for found in self._reader.scan(shards, ("ready",), bounds, in_order=True):
            if predicates.matches(predicate, found) and found.shard is not None:
                taken = self._reader.pop_id(found.shard, found.id)
                if taken is not None:
                    return taken
        return None

    # -- look ------------------------------------------------------------------------------------

    def peek(self, count: int, *, cross: Cross | None = None) -> list[Message]:
        """Look at up to ``count`` messages that are due, in order; all if it is negative."""
        cross = self._cross if cross is None else check_cross(cross)
        self._place.deliver()
        return self._reader.peek(count, cross)

    def unsafe_peek_all_shards(self, count: int) -> list[Message]:
        """Look at up to ``count`` messages that are due in any shard, the local one first."""
        return self.peek(count, cross="all")

    def get(self, message_id: str) -> Message | None:
        """Look at the message of an id in any shard and any state; None if there is none."""
        for shard in self._reader.order_for(message_id):
            found = self._place.find(self._shards.queue(shard), message_id)
            if found is not None:
                return self._form.read(found, shard)
        return None

    local_get = get

    def messages(self) -> Iterator[Message]:
        """All messages of all shards in any state, read one by one on demand."""
        return self._reader.scan(self._shards.in_reading_order(), (), predicates.Bounds())

    def get_all_messages(self) -> list[Message]:
        """All messages of all shards in any state; see :meth:`messages` for many."""
        return list(self.messages())

    def contains_predicate(
        self,
        predicate: Predicate,
        local: bool = False,
        *,
        limit: int | None = None,
        seconds: float | None = None,
    ) -> bool:
        """Whether the payload of any message matches; see :meth:`get_msg_with_predicate`."""
        return (
            self.get_msg_with_predicate(predicate, local, limit=limit, seconds=seconds) is not None
        )

    def get_msg_with_predicate(
        self,
        predicate: Predicate,
        local: bool = False,
        *,
        limit: int | None = None,
        seconds: float | None = None,
    ) -> str | None:
        """The id of some message whose payload matches; None if none does within the limits.

        In any shard and state; with ``local`` only in the local shard, and not if it is unacked.
        """
        bounds = predicates.Bounds(limit, seconds)
        shards = [self._shards.local] if local else self._shards.in_reading_order()
        states = ("new", "ready", "delayed") if local else ()
        found = self._reader.scan(shards, states, bounds)
        return next((one.id for one in found if predicates.matches(predicate, one)), None)

    def find_stale_messages(self) -> list[Message]:
        """An empty list: an id and its payload are one file here, and cannot diverge."""
        return []

    # -- by id -----------------------------------------------------------------------------------

    def ack(self, message_id: str) -> bool:
        """Acknowledge a message; True only if it was unacked.

        If this object popped it, exactly that message is meant, and not a newer one with its id.
        """
        shards = self._reader.popped_from(message_id) or self._reader.order_for(message_id)
        return any(not self._reader.ack(shard, [message_id]) for shard in shards)

    def ack_all(self, messages: Iterable[Message]) -> None:
        """Acknowledge messages, those of a shard with one sync."""
        by_shard: dict[str, list[str]] = {}
        for message in messages:
            by_shard.setdefault(self._reader.shard_of(message), []).append(message.id)
        for shard, ids in by_shard.items():
            left = self._reader.ack(shard, ids) if shard in self._shards.all() else ids
            for message_id in left:
                self.ack(message_id)

    def set_unack_timeout(self, message_id: str, timeout: int, unit: Unit = "ms") -> bool:
        """Let an unacked message come back after ``timeout``; at once if that is 0 or less."""
        seconds = min(max(0, in_ms(timeout, unit)), MAX_UNACK_MS + 1) / 1000
        queues = map(self._shards.queue, self._reader.order_for(message_id))
        return any(self._place.renew(queue, message_id, seconds) for queue in queues)

    def set_timeout(self, message_id: str, timeout: int, unit: Unit = "ms") -> bool:
        """Make a message that is not unacked due after ``timeout``.

        It is ordered among the messages that are due then, and has this timeout when it is popped.
        """
        milliseconds = in_ms(timeout, unit)
        _check_timeout(milliseconds)
        delay, written = max(0, milliseconds) / 1000, {TIMEOUT: str(milliseconds)}
        queues = map(self._shards.queue, self._reader.order_for(message_id))
        return any(self._place.postpone(queue, message_id, delay, written) for queue in queues)

    def nack(self, message_id: str, delay: int = 0, unit: Unit = "ms") -> bool:
        """Release an unacked message, due again after ``delay``; False if it is not unacked."""
        return self.set_unack_timeout(message_id, delay, unit)

    def remove(self, message_id: str) -> bool:
        """Remove all messages of an id, in any state; whether there was one."""
        found = [
            self._place.remove(self._shards.queue(shard), message_id)
            for shard in self._reader.order_for(message_id)
        ]
        self._reader.forget(message_id)
        return any(found)

    atomic_remove = remove

    # -- the whole queue ---------------------------------------------------------------------------

    def size(self) -> int:
        """How many messages wait in all shards; unacked ones do not count."""
        return sum(found["size"] for found in self.shard_sizes().values())

    def shard_sizes(self) -> dict[str, dict[str, int]]:
        """For each shard how many messages wait (``size``) and are unacked (``uacked``)."""
        found = {
            shard: self._place.counts(self._shards.queue(shard)) for shard in self._shards.all()
        }
        return {shard: {"size": n.size, "uacked": n.unacked} for shard, n in found.items()}

    def clear(self) -> None:
        """Remove all messages of all shards."""
        for shard in self._shards.all():
            self._place.purge(self._shards.queue(shard))
        self._reader.forget()

    def process_unacks(self) -> None:
        """Redeliver messages that are due. A mover does so all the time, for all shards."""
        self._place.deliver()

    atomic_process_unacks = process_unacks

    def shards(self) -> list[str]:
        """All shards, sorted."""
        return self._shards.all()

    def configure(self, **changes: Any) -> None:
        """Change settings of all shards, such as ``max_deliveries`` and ``dead_letter_queue``."""
        for shard in self._shards.all():
            self._place.configure(self._shards.queue(shard), changes)

    def rebalance(self, to: Sequence[str] | None = None) -> Moves:
        """Move messages until the shards have about the same number; how many moved.

        Consumers and producers can go on; unacked messages stay. After a crash, which loses
        nothing, call it again. Moves that others have begun are finished first. to: the shards that
        are to have messages afterwards; None: all live ones.
        """
        targets = self._shards.live() if to is None else [*to]
        unknown = set(targets) - set(self._shards.all())
        if unknown or not targets:
            known = ", ".join(self._shards.all())
            raise InvalidValue("to", f"unknown shards; expected some of: {known}")
        moved: Moves = {}
        with self._place.rebalancing([self._shards.queue(shard) for shard in self._shards.all()]):
            sizes = {shard: found["size"] for shard, found in self.shard_sizes().items()}
            for source, target, count in plan(sizes, targets):
                queues = self._shards.queue(source), self._shards.queue(target)
                moved[source, target] = self._place.move(*queues, count)
        return moved

    def retire(self, shard: str) -> None:
        """Move all messages of a shard to the live ones, and delete its queue.

        Nobody may push to the shard during this. Raises InvalidValue if messages are left: unacked
        ones, or ones whose ids the others have, too.
        """
        others = [one for one in self._shards.live() if one != shard]
        if shard not in self._shards.all() or not others:
            raise InvalidValue("shard", f"cannot retire {shard!r}: it is unknown, or the last one")
        self.rebalance(others)
        queue = self._shards.queue(shard)
        # Messages that have come since they were counted.
        self._place.move(queue, self._shards.queue(others[0]), _ALL)
        end = time.monotonic() + _COUNTED_S
        while any(left := self._place.counts(queue)) and time.monotonic() < end:
            time.sleep(_COUNTED_S / 5)  # counts of a server can be older than the moves
        if any(left):
            raise InvalidValue(
                "shard",
                f"{left.size} messages wait in {shard!r}, and {left.unacked} are unacked:"
                " try again when they are done",
            )
        self._place.delete(self._shards.queue(shard))
        self._shards.forget()


def _check_timeout(timeout: int) -> None:
    if timeout > MAX_TIMEOUT_MS:
        raise InvalidValue("timeout", f"must be at most {MAX_TIMEOUT_MS} ms, which are 366 days")
