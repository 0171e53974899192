"""Strategies choose the shard of a message. A function (shards, message) -> shard is one, too."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from fsmq.spool import InvalidValue

from .message import Message


class View(Protocol):
    """What a strategy can ask about the shards of a queue."""

    @property
    def local(self) -> str: ...

    def all(self) -> list[str]: ...

    def live(self) -> list[str]: ...

    def sizes(self) -> dict[str, int]: ...


class Strategy(Protocol):
    """Chooses a shard for a message."""

    def choose(self, shards: View, message: Message) -> str: ...


class RoundRobin:
    """Each message to the next of the live shards.

    Queues that share this object take turns together, as all queues of one `DynoQueues` do.
    """

    def __init__(self) -> None:
        self._turn = 0
        self._lock = threading.Lock()

    def choose(self, shards: View, message: Message) -> str:
        live = shards.live()
        with self._lock:
            self._turn += 1
            if self._turn >= len(live):
                self._turn = 0
            return live[self._turn]


class Local:
    """Each message to the shard of this zone."""

    def choose(self, shards: View, message: Message) -> str:
        return shards.local


class LeastFull:
    """Each message to the live shard that had the fewest messages a moment ago."""

    def __init__(self) -> None:
        self._sent: dict[str, int] = {}
        self._of: dict[str, int] | None = None
        self._lock = threading.Lock()

    def choose(self, shards: View, message: Message) -> str:
        sizes = shards.sizes()
        with self._lock:
            if self._of is not sizes:
                self._of, self._sent = sizes, {}  # new counts include the messages sent before
            best = min(
                shards.live(), key=lambda shard: sizes.get(shard, 0) + self._sent.get(shard, 0)
            )
            self._sent[best] = self._sent.get(best, 0) + 1
            return best


class ByHash:
    """Each id always to the same shard, as long as the shards stay the same."""

    def choose(self, shards: View, message: Message) -> str:
        everyone = shards.all()
        return everyone[zlib.crc32(message.id.encode()) % len(everyone)]


Function: TypeAlias = Callable[[Sequence[str], Message], str]


class Given:
    """A strategy that is a function of all shards and the message."""

    def __init__(self, function: Function) -> None:
        self._function = function

    def choose(self, shards: View, message: Message) -> str:
        everyone = shards.all()
        chosen = self._function(everyone, message)
        if chosen not in everyone:
            known = ", ".join(everyone)
            raise InvalidValue("shard", f"unknown shard {chosen!r}; expected one of: {known}")
        return chosen


_BY_NAME: dict[str, Callable[[], Strategy]] = {
    "round_robin": RoundRobin,
    "local": Local,
    "least_full": LeastFull,
    "hash": ByHash,
}


def as_strategy(given: Strategy | Function | str) -> Strategy:
    """A strategy by its name, as an object, or as a function. Raises InvalidValue."""
    if isinstance(given, str):
        if given not in _BY_NAME:
            known = ", ".join(_BY_NAME)
            raise InvalidValue("strategy", f"unknown {given!r}; expected one of: {known}")
        return _BY_NAME[given]()
    if hasattr(given, "choose"):
        return given
    return Given(given)
