"""Names that failed wait apart from the others, with pauses that grow with each failure.

So a name that fails delays no other, and costs less the longer it fails. It waits at most twice as
long as its error lasts.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from .timers import Timers

# The usual first pause; each further one is twice as long, up to the longest.
FIRST_S = 1.0
LONGEST_S = 30.0
# An entry that is due later than this was added before the clock was set back.
_TOO_LATE_S = 2 * LONGEST_S
# Failures are reported at most once in this time.
_REPORT_EVERY_S = 10.0


class Quarantine:
    """Names that wait for their next try. All times are seconds of one clock, which can be set.

    limit: how many failed names are remembered; only listings find the others again.
    first_s: the first pause.
    """

    def __init__(self, limit: int = 100_000, first_s: float = FIRST_S) -> None:
        self._limit = limit
        self._first_s = first_s
        self._waiting = Timers()
        self._known: dict[str, tuple[float, float]] = {}  # when the next try is due, the last pause
        self._first_unreported: tuple[str, Exception] | None = None
        self._unreported = 0
        self._report_due = float("-inf")

    def __len__(self) -> int:
        return len(self._waiting)

    def __bool__(self) -> bool:
        return bool(self._known) and len(self._waiting) > 0  # mostly empty: this is quick

    def __contains__(self, name: str) -> bool:
        return name in self._waiting

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._known if name in self._waiting)

    def add(self, name: str, now: float, error: Exception | None = None) -> None:
        """Note that a name failed at ``now``. A failure before it was due keeps its pause."""
        due, pause = self._known.get(name, (now, self._first_s / 2))
        if now >= due or due > now + _TOO_LATE_S:
            pause = min(2 * pause, LONGEST_S)
            due = now + pause
        if name not in self._known:
            if not self._has_room():
                return
            if error is not None:
                self._first_unreported = self._first_unreported or (name, error)
                self._unreported += 1
        self._known[name] = due, pause
        self._waiting.start(name, round(due * 1000))

    def pop_due(self, now: float) -> str | None:
        """A name that is due. It is remembered until the caller adds it again or forgets it."""
        next_ms = self._waiting.next_ms() or 0
        if next_ms > (now + _TOO_LATE_S) * 1000:
            now = next_ms / 1000
        return self._waiting.pop_due(round(now * 1000))

    def pop_first(self) -> str | None:
        """The name that is due first, even before its time."""
        next_ms = self._waiting.next_ms()
        return None if next_ms is None else self._waiting.pop_due(next_ms)

    def next_s(self) -> float | None:
        """When the next one is due; None if there is none."""
        next_ms = self._waiting.next_ms()
        return None if next_ms is None else next_ms / 1000

    def forget(self, name: str) -> None:
        """Forget a name that succeeded, or is gone."""
        if self._known.pop(name, None) is not None:
            self._waiting.cancel(name)

    def keep(self, names: Container[str]) -> None:
        """Forget all but these."""
        for name in [name for name in self._known if name not in names]:
            self.forget(name)

    def news(self, now: float) -> tuple[str, Exception] | None:
        """The first name that began to fail since the last call with a result, and its error.

        None if there is none, or if that call was too recent.
        """
        if self._first_unreported is None or now < self._report_due:
            return None
        name, error = self._first_unreported
        others = f" and {self._unreported - 1} others" if self._unreported > 1 else ""
        self._first_unreported, self._unreported, self._report_due = None, 0, now + _REPORT_EVERY_S
        return f"{name}{others}", error

    def _has_room(self) -> bool:
        if len(self._known) < self._limit:
            return True
        if len(self._waiting) > self._limit // 2:
            return False
        # For the others no outcome was reported: drop them.
        self._known = {name: known for name, known in self._known.items() if name in self._waiting}
        return True
