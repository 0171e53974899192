"""Admission: limits on what goes on at the same time, in all and for each key.

Every limit is checked before the work that it limits: before a body is read, and before a message
is claimed or decompressed. So memory is bounded, whatever the number of clients.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ..problems import Overloaded, TooManyRequests
from .limits import Limits


class Admission:
    """Counts requests, waits and memory, and refuses what would exceed a limit.

    ``who`` is the name of a key; None if the server has no keys.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.memory = 0
        self._requests: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._memory: Counter[str] = Counter()
        self._lock = threading.Lock()

    def enter(self, who: str | None, size: int = 0) -> None:
        """Count a request as open, and bytes of its body as held. Raises as :meth:`hold`."""
        if who is not None:
            limit = self.limits.requests_per_key
            if self._requests[who] >= limit:
                raise TooManyRequests(f"the key {who!r} has its maximum of {limit} open requests")
        if size:
            self.hold(who, size)
        if who is not None:
            self._requests[who] += 1

    def leave(self, who: str | None, size: int = 0) -> None:
        """Count a request as answered, and bytes of its body as no longer held."""
        if size:
            self.free(who, size)
        if who is not None:
            _subtract(self._requests, who, 1)

    @contextmanager
    def waiting(self, who: str | None) -> Iterator[None]:
        """Count a request as waiting for messages. Raises TooManyRequests."""
        if who is None:
            yield
            return
        limit = self.limits.waiters_per_key
        if self._waiting[who] >= limit:
            raise TooManyRequests(f"the key {who!r} has its maximum of {limit} waiting requests", 5)
        self._waiting[who] += 1
        try:
            yield
        finally:
            _subtract(self._waiting, who, 1)

    def check(self, who: str | None) -> None:
        """Check that there is any memory left for an answer. Raises as :meth:`hold`.

        Its size is not known before its messages are found. Memory is reserved for each of them
        then, except for a first one that is small.
        """
        if self.memory >= self.limits.memory:
            raise Overloaded(f"bodies use all of the {self.limits.memory} bytes of memory for them")
        if who is not None and self._memory[who] >= self.limits.memory_per_key:
            raise TooManyRequests(
                f"bodies of the key {who!r} use all of its {self.limits.memory_per_key}"
                " bytes of memory"
            )

    def room(self, who: str | None) -> int:
        """For how many more bytes of bodies there is memory, at least 1."""
        left = self.limits.memory - self.memory
        if who is not None:
            left = min(left, self.limits.memory_per_key - self._memory[who])
        return max(1, left)

    def hold(self, who: str | None, size: int, *, sure: bool = False, part_of: int = 0) -> None:
        """Count bytes of a body as held. The only one is always admitted, whatever its size.

        sure: they are in memory already, so they are counted without a check. part_of: how many
        bytes of the same body are held already. Thread-safe: bodies are read in threads.

        Raises:
            Overloaded: there is not enough memory.
            TooManyRequests: there is not enough for this key.
        """
        with self._lock:
            if size and not sure:
                if self.memory + size > self.limits.memory and self.memory > part_of:
                    raise Overloaded(
                        f"no memory for a body of {size} bytes now: others use"
                        f" {self.memory} of {self.limits.memory} bytes"
                    )
                if who is not None:
                    self._check_room_of_key(who, size, part_of)
            self.memory += size
            if who is not None:
                self._memory[who] += size

    def free(self, who: str | None, size: int) -> None:
        """Count bytes of a body as no longer held; thread-safe."""
        with self._lock:
            self.memory -= size
            if who is not None:
                _subtract(self._memory, who, size)

    def _check_room_of_key(self, who: str, size: int, part_of: int) -> None:
        mine = self._memory[who]
        if mine > part_of and mine + size > self.limits.memory_per_key:
            raise TooManyRequests(
                f"no memory for a body of {size} bytes now: the key {who!r} uses {mine} of"
                f" {self.limits.memory_per_key} bytes"
            )


def _subtract(counter: Counter[str], name: str, number: int) -> None:
    counter[name] -= number
    if counter[name] <= 0:
        del counter[name]  # names come and go with the file of keys
