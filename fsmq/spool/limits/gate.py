"""The gate of one queue: its pause and its limits, for one version of its settings."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Protocol

from ..durability.owned import Turnstile
from ..errors import InUse
from ..index.listings import Unlisted
from ..index.ready import Ready
from ..layout.settings import QueueSettings
from ..layout.settings_store import SettingsStore
from ..layout.stamps import Stamps
from ..layout.tree import Tree
from .contention import SHORT_S, give_up, patience_s
from .in_flight import InFlight
from .shared import Line, Shared

# A rate is applied in steps of this time, so that waiting clients need not wake for each message.
STEP_S = 0.02
# When to try again if another process holds the lock of the limits.
_BUSY_S = 0.01
# The tolerance of sums of fractions.
_GRAIN = 1e-4
# The clocks of hosts differ by less.
_SKEW_S = 10.0


class SpoolView(Protocol):
    """What gates need to know of a spool."""

    @property
    def tree(self) -> Tree: ...
    @property
    def settings(self) -> SettingsStore: ...
    @property
    def stamps(self) -> Stamps: ...
    @property
    def ready(self) -> Ready: ...
    @property
    def clock(self) -> Callable[[], float]: ...


class Gate:
    """Holds claims of one queue back. Safe in threads.

    All processes keep a limit together: a claim holds the lock of a small file, which has the
    number of messages that the rate still allows. A process takes a few of them at a time. Where
    there are no locks each process keeps its share of the rate.
    """

    def __init__(
        self, spool_view: SpoolView, queue: str, settings: QueueSettings, in_flight: InFlight
    ) -> None:
        self.settings = settings
        self._spool_view = spool_view
        self._queue = queue
        self._in_flight = in_flight
        self._shared = Shared(spool_view.tree, queue)
        self._threads = Turnstile()
        self._line = Line()
        self._lease = 0.0  # of the rate: messages that this process may claim
        self._process = os.getpid()
        self._limited_until = 0.0  # in monotonic seconds, for waiting clients

    @property
    def is_limited(self) -> bool:
        return self.settings.max_in_flight is not None or self.settings.max_rate is not None

    def opens_in(self, now: float) -> float:
        """Seconds until a claim is worth trying; infinite if only a change of settings can help."""
        limited = self._limited_until - time.monotonic() if self._limited_until else 0.0
        return max(0.0, self.settings.paused_until - now, limited)

    def open(self) -> None:
        """Note that a claim is worth trying, as another has ended."""
        self._limited_until = 0.0

    def permits(self) -> int:
        """About how many messages may be claimed now, not counting tries of others. OSError."""
        now = self._spool_view.clock()
        if self.settings.paused_until > now:
            return 0
        most = math.inf
        if self.settings.max_rate is not None:
            most = self._lease + self._tokens(self._line, now)
        if self.settings.max_in_flight is not None:
            with self._locked(may_lease=True) as line:
                if not self._learns(line):
                    return 0
                most = min(most, self._room(now))
        if most < 1 - _GRAIN:
            self._keep_back(now)
        return int(min(most + _GRAIN, 1 << 20))

    def claim(self) -> Generator[bool, None, None]:
        """Yields once, whether a message may be claimed now.

        With a limit, no other process claims until it is closed. Raises Unlisted, InUse, OSError.
        """
        now = self._spool_view.clock()
        if not self.is_limited or self.settings.paused_until > now:
            yield self.settings.paused_until <= now
            return
        with self._locked(patience_s(), may_lease=True) as line:
            if not self._learns(line):
                give_up(self._queue)
            yield self._may_claim(now)

    def learn(self) -> None:
        """Count the claims, in a thread that may list folders. Raises InUse, OSError."""
        if not self.is_limited:
            return
        with self._locked(patience_s()) as line:
            if not self._learns(line):
                give_up(self._queue)
            self._has_room(self._spool_view.clock())

    def _may_claim(self, now: float) -> bool:
        may = self._has_room(now) and self._has_lease(now)
        if not may:
            self._keep_back(now)
        return may

    def claimed(self) -> None:
        """Note that a message was claimed. Raises OSError."""
        if self.settings.max_rate is not None:
            self._lease -= 1
        if self.settings.max_in_flight is not None:
            self._line = self._line._replace(granted=self._line.granted + 1)
            self._shared.write(self._line)

    def uncount(self, count: int) -> None:
        """Allow ``count`` more messages by the rate. Raises OSError."""
        with self._locked() as line:
            if line is None:
                return
            now = self._spool_view.clock()
            tokens = min(self.settings.burst, self._tokens(line, now) + count)
            at = line.at if 0 < line.at - now < _SKEW_S else now
            self._line = line._replace(tokens=tokens, at=at)
            self._shared.write(self._line)

    def _learns(self, line: Line | None) -> bool:
        """Take over a line that was locked; False if it was not."""
        if line is None:
            self._limited_until = time.monotonic() + _BUSY_S
            return False
        self._line = line
        return True

    @contextmanager
    def _locked(
        self, seconds: float = SHORT_S, *, may_lease: bool = False
    ) -> Iterator[Line | None]:
        """Lock the shared line; yields it, or None if others keep it locked for ``seconds``.

        may_lease: do not lock if this process still has a lease of the rate.
        """
        with self._threads.passed(seconds) as is_ours:
            if self._process != os.getpid():
                self._process, self._lease = os.getpid(), 0.0  # the lease is our parent's
            if not is_ours:
                yield None
            elif may_lease and self.settings.max_in_flight is None and self._lease >= 1:
                yield self._line
            else:
                with self._shared.locked(seconds) as line:
                    yield line

    def _has_room(self, now: float) -> bool:
        return self.settings.max_in_flight is None or self._room(now) >= 1

    def _room(self, now: float) -> int:
        """How many more may be claimed now."""
        limit = self.settings.max_in_flight or 0
        return limit - self._in_flight.count(self._queue, int(now * 1000), self._line.granted)

    def _has_lease(self, now: float) -> bool:
        """Lease some messages of the rate, if none is left; whether there is one."""
        if self.settings.max_rate is None or self._lease >= 1:
            return True
        tokens = self._lease + self._tokens(self._line, now)
        take = min(tokens, max(1.0, self._rate * STEP_S))
        take = math.floor(take + _GRAIN)
        # If another process has written since our look at the clock, its time stays.
        at = self._line.at if 0 < self._line.at - now < _SKEW_S else now
        lease = float(max(0, take))
        line = self._line._replace(tokens=max(0.0, tokens - lease), at=at)
        self._shared.write(line)
        self._line, self._lease = line, lease
        return take >= 1

    def _tokens(self, line: Line, now: float) -> float:
        """How many messages the rate allows, beside those that processes have leased."""
        burst = self.settings.burst
        if line.tokens is None:
            return burst
        age = now - line.at
        # If this clock is a little behind another host's, add nothing; if it was set, begin anew.
        more = 0.0 if age < 0 else age * self._rate
        return min(burst, line.tokens + more) if age > -_SKEW_S else 0.0

    @property
    def _rate(self) -> float:
        rate = self.settings.max_rate or 0.0
        return rate if self._shared.has_locks else rate / self._spool_view.ready.share.of

    def _keep_back(self, now: float) -> None:
        """Keep waiting clients from trying before it can succeed."""
        waits = [0.0]
        if self.settings.max_rate is not None and self._lease < 1:
            lack = 1 - _GRAIN - self._tokens(self._line, now)
            if lack > 0:
                step = min(STEP_S, self.settings.burst / self._rate / 2)
                waits.append(max(step, lack / self._rate))
        if self.settings.max_in_flight is not None and len(waits) == 1:
            ready, next_ms = self._spool_view.ready, self._in_flight.next_ms(self._queue)
            ends = math.inf if next_ms is None else max(0.001, next_ms / 1000 - now)
            polls = self._in_flight.polls(self._queue)
            waits.append(min(ends, ready.poll_interval) if polls else ends)
        self._limited_until = time.monotonic() + max(waits)


class Turn:
    """The claims of one call; the gate is asked before each id is taken."""

    def __init__(self, gate: Gate, keep_shut: Callable[[], None]) -> None:
        self._gate = gate
        self._keep_shut = keep_shut
        self._claim: Generator[bool, None, None] | None = None  # that was begun
        self._claimed = 0
        self.is_kept_back = False

    def ids(self, ids: Iterator[str]) -> Iterator[str]:
        """Ids, as long as messages may be claimed. Raises Unlisted, OSError."""
        while self.begin():
            message_id = next(ids, None)
            if message_id is None:
                self.pause()
                return
            yield message_id

    def begin(self) -> bool:
        """Whether a message may be claimed; others cannot claim until `pause`.

        Raises OSError; before the first claim also Unlisted and InUse.
        """
        if self._claim is None:
            try:
                claim = self._gate.claim()
                if next(claim):
                    self._claim = claim
                else:
                    claim.close()
            except (Unlisted, InUse):
                if not self._claimed:
                    raise
            if self._claim is None:
                self.is_kept_back = True
                self._keep_shut()
        return self._claim is not None

    def claimed(self) -> None:
        """Note that a message was claimed; others may claim the next. Raises OSError."""
        self._claimed += 1
        try:
            self._gate.claimed()
        finally:
            self.pause()

    def pause(self) -> None:
        """Let others claim."""
        claim, self._claim = self._claim, None
        if claim is not None:
            claim.close()
