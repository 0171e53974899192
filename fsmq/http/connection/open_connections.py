"""The open connections of a server: how many there may be, which are closed for others, and when.

It knows of a connection only what it asks of it, so that connections can refer to it.
"""

from __future__ import annotations

import asyncio
from typing import Generic, Protocol, TypeVar

from ..guard.limits import Limits
from .ahead import AheadOfAll
from .leftovers import Leftovers
from .lingering import MOST_CONNECTIONS
from .turns import LoopTurns
from .unsent import UnsentOfAll

# How often connections are checked for timeouts.
_LOOK_EVERY_S = 1.0
# How long connections read before the requests that came with it have their turn.
_TURN_S = 0.002
# What is longer is read in turns with that of other connections. What is shorter costs no more than
# any request, and does not wait behind what is long.
_SHORT_BYTES = 4096


class Closable(Protocol):
    """What is asked of a connection."""

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered or received."""

    def give_way(self) -> None:
        """Close at once, to make room for another connection."""

    def enforce_timeouts(self, now: float) -> None:
        """Close it if its client is too slow. now: on the clock of the loop."""


C = TypeVar("C", bound=Closable)
Taken = TypeVar("Taken", contravariant=True)


class FastPath(Protocol[Taken]):
    """Can take a request before aiohttp sees it: `fsmq.http.fast_path`."""

    def take(self, connection: Taken, data: bytes) -> bool:
        """Become the protocol of a connection for the request in ``data``; False to leave it."""


class OpenConnections(Generic[C]):
    """The connections of one server, and what they share.

    fast_path: takes the requests that it knows; None: aiohttp gets them all.
    open: the oldest first. lingering: those that have had their last answer.
    readings, handshakes: the turns in which all of them read what is long, and make TLS handshakes.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.fast_path: FastPath[C] | None = None
        self.open: dict[C, None] = {}
        self.lingering: set[C] = set()
        self.readings, self.handshakes = LoopTurns(_TURN_S), LoopTurns(_TURN_S)
        self.leftovers = Leftovers()
        self.ahead = AheadOfAll(self.leftovers)
        self.unsent = UnsentOfAll(limits.memory)
        self._none_open = asyncio.Event()

    def take_in(self, connection: C) -> bool:
        """Count a connection as open, if there is room or an idle one can be closed for it."""
        if not self._make_room():
            return False
        self.open[connection] = None
        return True

    def has_to_wait(self, size: int) -> bool:
        """Whether what has come on a connection is to be kept until its turn, if there is room."""
        is_late = size > _SHORT_BYTES and self.readings.is_over
        return is_late and self.ahead.size + size <= self.ahead.room

    def forget(self, connection: C) -> None:
        """Count a connection as open no longer."""
        self.lingering.discard(connection)
        self.open.pop(connection, None)
        if not self.open:
            self._none_open.set()

    def let_linger(self, connection: C) -> bool:
        """Let a connection linger after its last answer; False: it has to be closed at once."""
        if len(self.lingering) >= MOST_CONNECTIONS:
            return False  # it counts as open until it is closed
        self.forget(connection)
        self.lingering.add(connection)
        return True

    def counts(self) -> dict[str, int]:
        """How many connections are open, and how many of them are not idle."""
        in_use = sum(not connection.is_idle for connection in self.open)
        return {"open": len(self.open) + len(self.lingering), "in_use": in_use}

    async def until_none_open(self) -> None:
        """Wait until no connection is open."""
        while self.open:
            self._none_open.clear()
            await self._none_open.wait()

    async def enforce_timeouts(self) -> None:
        """Close, until cancelled, the connections whose clients are too slow."""
        loop = asyncio.get_running_loop()
        pause = min(_LOOK_EVERY_S, self.limits.header_timeout / 4, self.limits.write_timeout / 4)
        while True:
            await asyncio.sleep(pause)
            now = loop.time()
            for connection in (*self.open, *self.lingering):
                connection.enforce_timeouts(now)
            self.leftovers.collect_rest()

    def _make_room(self) -> bool:
        if len(self.open) < self.limits.connections:
            return True
        for connection in self.open:
            if connection.is_idle:
                self.forget(connection)
                connection.give_way()
                return True
        return False
