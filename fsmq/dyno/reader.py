"""Reads the shards of a queue in order, and remembers the names of popped messages."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args

from fsmq.spool import InvalidValue
from fsmq.spool import Message as SpoolMessage

from . import predicates
from .message import Form, Message
from .place import Place
from .shards import Shards

Cross = Literal["never", "orphans", "empty", "all"]
# The size of parts in which messages are claimed and acknowledged.
PART = 1000
# How many popped ids are remembered.
_REMEMBERED = 100_000
# How often a waiting consumer looks into other shards, and for new shards.
_LOOK_S = 0.25
_NEW_SHARDS_S = 1.0
_ALL = 2**31


def check_cross(cross: str) -> Cross:
    """Return which shards pop reads; raise InvalidValue for an unknown word."""
    if cross in get_args(Cross):
        return cross  # type: ignore[return-value]
    known = ", ".join(get_args(Cross))
    raise InvalidValue("cross", f"unknown {cross!r}; expected one of: {known}")


class _Round(NamedTuple):
    """Shards that are read after the local one; if_none: only when nothing was found so far."""

    shards: Sequence[str]
    if_none: bool


class Reader:
    """Pops, peeks and scans the shards of one queue."""

    def __init__(self, place: Place, shards: Shards, form: Form) -> None:
        self._place = place
        self._shards = shards
        self._form = form
        # By id: the shards from which it was popped here, and the message's name in each.
        self._popped: OrderedDict[str, dict[str, str]] = OrderedDict()

    # -- pop -------------------------------------------------------------------------------------

    def pop(self, count: int, cross: Cross) -> list[Message]:
        """Pop messages that are due now, the local shard first."""
        self._shards.beat()
        popped: list[Message] = []
        self._pop_from(self._shards.local, count, popped)
        if len(popped) >= count:
            return popped
        for one in self._rounds(cross):
            if popped and one.if_none:
                break
            for shard in one.shards:
                self._pop_from(shard, count - len(popped), popped)
                if len(popped) >= count:
                    return popped
        return popped

    def wait(self, count: int, cross: Cross, seconds: float) -> list[Message]:
        """Wait for messages, at most ``seconds``; returns those that this popped already."""
        local = self._shards.local
        others = [shard for one in self._rounds(cross) for shard in one.shards]
        if others:
            seconds = min(seconds, _LOOK_S)
        elif cross != "never":
            seconds = min(seconds, _NEW_SHARDS_S)
        queues = [self._shards.queue(shard) for shard in (local, *others)]
        return self._taken(local, self._place.wait(queues, min(count, PART), seconds))

    def pop_id(self, shard: str, message_id: str) -> Message | None:
        """Pop the message of an id from a shard."""
        found = self._place.claim_id(self._shards.queue(shard), message_id)
        return None if found is None else next(iter(self._taken(shard, [found])), None)

    def _rounds(self, cross: Cross) -> list[_Round]:
        if cross == "never":
            return []
        local = self._shards.local
        if cross == "orphans":
            mine, others = self._shards.orphans()
            return [_Round(mine, if_none=False), _Round(others, if_none=True)]
        rest = [shard for shard in self._shards.all() if shard != local]
        return [_Round(rest, if_none=cross == "empty")]

    def _pop_from(self, shard: str, count: int, popped: list[Message]) -> None:
        while count > 0:
            claimed = self._place.claim(self._shards.queue(shard), min(count, PART))
            popped += self._taken(shard, claimed)
            count -= len(claimed)
            if len(claimed) < min(count, PART) or not claimed:
                return

    def _taken(self, shard: str, claimed: Sequence[SpoolMessage]) -> list[Message]:
        taken = []
        for found in claimed:
            message = self._form.read(found, shard)
            if message is not None:
                taken.append(message)
                names = self._popped.setdefault(message.id, {})
                names.pop(shard, None)  # so that it is inserted at the end
                names[shard] = found.id
        while len(self._popped) > _REMEMBERED:
            self._popped.popitem(last=False)
        return taken

    # -- look ------------------------------------------------------------------------------------

    def peek(self, count: int, cross: Cross) -> list[Message]:
        """Look at messages that are due now, the local shard first; all if count is negative."""
        wanted = _ALL if count < 0 else count
        seen = self._peek([self._shards.local], wanted)
        for one in self._rounds(cross):
            if len(seen) >= wanted or (seen and one.if_none):
                break
            seen += self._peek(one.shards, wanted - len(seen))
        return seen

    def _peek(self, shards: Sequence[str], count: int) -> list[Message]:
        """Messages that are due in some shards, merged in their order."""
        found: list[tuple[str, Message]] = []
        for shard in shards if count else ():
            for one in self._place.peek(self._shards.queue(shard), count, "ready", ""):
                message = self._form.read(one, shard)
                if message is not None:
                    found.append((one.id, message))
        found.sort(key=lambda one: one[0])
        return [message for _, message in found[:count]]

    def scan(
        self,
        shards: Sequence[str],
        states: Sequence[str],
        bounds: predicates.Bounds,
        *,
        in_order: bool = False,
    ) -> Iterator[Message]:
        """The messages of some shards, read one by one on demand."""
        scans = []
        for shard in shards:
            queue = self._shards.queue(shard)
            found = self._place.scan(queue, states, sorted_by_name=in_order, is_over=bounds.is_over)
            scans.append((shard, found))
        return predicates.merged(scans, self._form, bounds, in_order=in_order)

    # -- by id -----------------------------------------------------------------------------------

    def popped_from(self, message_id: str) -> list[str]:
        """The shards from which messages of an id were popped, the last one first."""
        return [*reversed(self._popped.get(message_id, {}))]

    def order_for(self, message_id: str) -> list[str]:
        """The shards in which to look for an id: where it was popped, the local one, the rest."""
        known = self.popped_from(message_id)
        return [*known, *(one for one in self._shards.in_reading_order() if one not in known)]

    def shard_of(self, message: Message) -> str:
        """The shard in which a popped message most likely is."""
        known = self.popped_from(message.id)
        if known and message.shard not in known:
            return known[0]
        return message.shard or self._shards.local

    def ack(self, shard: str, ids: Sequence[str]) -> list[str]:
        """Acknowledge messages of one shard; returns the ids that were not unacked there."""
        left: list[str] = []
        for at in range(0, len(ids), PART):
            part = ids[at : at + PART]
            known = ((one, self._popped.get(one, {}).get(shard)) for one in part)
            names = {one: name for one, name in known if name is not None}
            done = self._place.ack(self._shards.queue(shard), part, names)
            for message_id, is_done in zip(part, done, strict=True):
                if not is_done:
                    left.append(message_id)
        return left

    def forget(self, message_id: str | None = None) -> None:
        """Forget popped messages: one id, or all."""
        if message_id is None:
            self._popped.clear()
        else:
            self._popped.pop(message_id, None)
