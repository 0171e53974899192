"""Whether a client takes its answer as quickly as it has to."""

from __future__ import annotations

# So many bytes in each write timeout, or all that there are.
LEAST_BYTES = 256 * 1024


class Taking:
    """Measures how much of what is written a client takes; looked at now and then.

    since: when it had last taken enough, or all. written: bytes since the last look; who is about
    to write some adds them.
    """

    __slots__ = ("_taken", "_unsent", "since", "written")

    def __init__(self, now: float) -> None:
        self.since = now
        self._taken = 0  # since then
        self._unsent = 0  # at the last look
        self.written = 0

    def is_too_slow(self, unsent: int, now: float, timeout: float) -> bool:
        """Whether it has taken too little for too long. unsent: bytes that wait for it now."""
        self._taken += max(0, self._unsent + self.written - unsent)
        if not unsent or not self._unsent or self._taken >= LEAST_BYTES:
            self.since, self._taken = now, 0
        self._unsent, self.written = unsent, 0
        return now - self.since > timeout
