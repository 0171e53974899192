"""Whether a client reads its answer fast enough."""

from __future__ import annotations

# A client has to read this many bytes in each write timeout, or all that there are.
LEAST_BYTES = 256 * 1024


class Taking:
    """Measures how much of what is written a client reads; checked periodically.

    since: when the client had last read enough, or all. written: bytes written since the last
    check; the writer adds to it.
    """

    __slots__ = ("_taken", "_unsent", "since", "written")

    def __init__(self, now: float) -> None:
        self.since = now
        self._taken = 0  # since ``since``
        self._unsent = 0  # at the last check
        self.written = 0

    def is_too_slow(self, unsent: int, now: float, timeout: float) -> bool:
        """Whether the client has read too little for too long. unsent: bytes that wait for it."""
        self._taken += max(0, self._unsent + self.written - unsent)
        if not unsent or not self._unsent or self._taken >= LEAST_BYTES:
            self.since, self._taken = now, 0
        self._unsent, self.written = unsent, 0
        return now - self.since > timeout
