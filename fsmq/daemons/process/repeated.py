"""Telling a second request to stop from a repetition of the first."""

from __future__ import annotations

import time

# `timeout` of coreutils sends its signal to the program and to its group, so twice at once.
_AT_ONCE_S = 0.5


class StopSignals:
    """The signals to stop that a program has got so far."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None

    def is_second(self, number: int) -> bool:
        """Note a signal, and say whether it is a second request and not the first one repeated."""
        now = time.monotonic()
        if self._first is None:
            self._first = (number, now)
            return False
        first, since = self._first
        return number != first or now - since > _AT_ONCE_S
