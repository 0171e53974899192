"""The limiter decides whether a queue's settings let a claim take a message now.

A claim asks only if the queue has such a setting. Each of these queues has a gate, made anew when
the settings change. A gate that has held a claim back is shut until a look finds it open; only
during that time is the settings file watched, and waiting clients are woken.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import TypeVar

from ..index.events import Event
from ..index.listings import Unlisted
from ..index.ready import EVERYONE, Ready
from ..layout.of_queues import OfQueues
from ..layout.settings import QueueSettings
from ..layout.transitions import CONFIG
from .gate import STEP_S, Gate, SpoolView, Turn
from .in_flight import InFlight

T = TypeVar("T")
_LOOK_S = 1.0


class Limiter:
    """The gates of all queues that have one, as one process sees them. Safe in threads.

    shut: gates that have held a claim back, and have not let all pass since. While it is empty,
        nobody has to ask.
    on_unlisted: called with a queue that another thread has to :meth:`learn`, as this one may not
        list folders.
    """

    def __init__(self, spool_view: SpoolView) -> None:
        self.on_unlisted: Callable[[str], None] = lambda queue: None
        self.shut: dict[str, Gate] = {}
        self._spool_view = spool_view
        self._limiter: OfQueues[Gate] = OfQueues(spool_view.tree)
        self._opened: OfQueues[float] = OfQueues(spool_view.tree)  # since (monotonic)
        self._watching: Ready | None = None
        self._in_flight: InFlight | None = None
        self._lock = threading.Lock()

    @contextmanager
    def turn(self, queue: str, settings: QueueSettings) -> Iterator[Turn]:
        """The claims of one call; afterwards the turn tells whether one was held back."""
        gate = self._gate(queue, settings)
        turn = Turn(gate, lambda: self._keep_shut(queue, gate))
        try:
            yield turn
        finally:
            turn.pause()

    def one(self, queue: str, settings: QueueSettings, claim: Callable[[], T | None]) -> T | None:
        """Claim one message by its id; None if there is none, or the settings forbid it now.

        Raises Unlisted, OSError, and what ``claim`` raises.
        """
        if settings.is_open and not self.shut:
            return claim()
        with self.turn(queue, settings) as turn:
            found = claim() if turn.begin() else None
            if found is not None:
                turn.claimed()
            return found

    def limited(
        self,
        queue: str,
        settings: QueueSettings,
        ids: Iterator[str],
        claims: Callable[[Iterator[str]], Generator[T | None, None, None]],
    ) -> Generator[T | None, None, None]:
        """Claim from these ids as many messages as the settings allow.

        claims: makes them lazily; it yields None for a pause. Raises Unlisted, and what they raise.
        """
        with self.turn(queue, settings) as turn, closing(claims(turn.ids(ids))) as found:
            for claim in found:
                if claim is None:
                    turn.pause()
                else:
                    turn.claimed()
                yield claim
        if not turn.is_kept_back:
            self._let_pass(queue)

    def uncount(self, queue: str, count: int) -> None:
        """Note that claims were undone before they reached anyone: the rate does not count them."""
        gate = self._limiter.get(queue)
        if gate is None or gate.settings.max_rate is None:
            return
        try:
            gate.uncount(count)
        except OSError:
            return  # the next claim reports it

    def _let_pass(self, queue: str) -> None:
        """Note that a claim was not held back, and found no more messages."""
        gate = self.shut.get(queue)
        if gate is not None and gate.settings.paused is not None:
            self._open(queue)
        elif gate is not None:
            self.shut.pop(queue, None)

    def is_shut(self, queue: str) -> bool:
        """Whether a claim was held back, and would be now."""
        gate = self.shut.get(queue)
        return gate is not None and gate.opens_in(self._spool_view.clock()) > 0

    def keeps_back(self, queue: str) -> bool:
        """The same by the current settings; False if these cannot be read: a claim will raise."""
        gate = self.shut.get(queue)
        if gate is None or not self.is_shut(queue):
            return False
        try:
            return gate.settings == self._spool_view.settings.get(queue)
        except OSError:
            return False

    def look_in(self, queue: str) -> float:
        """Seconds until it is worth checking whether a shut queue has opened.

        At most one: clocks can be set, and events can be lost.
        """
        gate = self.shut.get(queue)
        seconds = 0.0 if gate is None else gate.opens_in(self._spool_view.clock())
        return max(STEP_S, min(_LOOK_S, seconds))

    def has_just_opened(self, queue: str) -> bool:
        """Whether a claim may have been held back, but was not waiting yet when the queue
        opened."""
        if not self._opened:
            return False
        if time.monotonic() - self._opened.get(queue, -math.inf) < _LOOK_S:
            return True
        self._opened.pop(queue, None)
        return False

    def look(self, queues: Iterable[str]) -> None:
        """Read the settings of shut queues again, and announce how much may be claimed.

        If events do not arrive, call it now and then. Raises Unlisted, OSError at the end.
        """
        fault: OSError | Unlisted | None = None
        for queue in queues:
            try:
                if queue in self.shut:
                    self._look(queue)
            except (OSError, Unlisted) as error:
                fault = fault or error
        if fault is not None:
            raise fault

    def learn(self, queue: str) -> None:
        """Prepare for a claim, in a thread that may list folders. Raises InUse, OSError."""
        self._gate(queue, self._spool_view.settings.get(queue)).learn()

    def _look(self, queue: str) -> None:
        spool_view = self._spool_view
        if not spool_view.tree.has_queue(queue):
            self._open(queue)
            return
        gate = self._gate(queue, spool_view.settings.get(queue))
        if not gate.is_limited:
            if gate.opens_in(spool_view.clock()):
                self.shut[queue] = gate
            else:
                self._open(queue)
            return
        self.shut[queue] = gate
        if permits := gate.permits():
            # It stays in ``shut`` until a claim finds no more messages: clients that wait beyond
            # these permits have to be woken, too.
            gate.open()
            self._announce(queue, permits)

    def _open(self, queue: str) -> None:
        self.shut.pop(queue, None)
        self._opened[queue] = time.monotonic()
        self._announce(queue, EVERYONE)

    def _announce(self, queue: str, count: int) -> None:
        announce = self._spool_view.ready.on_arrival
        if announce is not None:
            announce(queue, count, 0.0)

    def _gate(self, queue: str, settings: QueueSettings) -> Gate:
        gate = self._limiter.get(queue)
        if gate is not None and gate.settings is settings:
            return gate
        with self._lock:
            gate = self._limiter.pop(queue, None)
            counted = gate is not None and gate.settings.max_in_flight is not None
            if gate is not None and gate.settings == settings:
                gate.settings = settings
            else:
                gate = Gate(self._spool_view, queue, settings, self._counted())
            if not settings.is_open:
                self._limiter[queue] = gate
        if counted and settings.max_in_flight is None:
            # Not under our lock: events arrive under another one, and ask for a gate.
            self._counted().forget(queue)
        return gate

    def _counted(self) -> InFlight:
        spool_view = self._spool_view
        if self._in_flight is None:
            self._in_flight = InFlight(
                spool_view.tree,
                spool_view.stamps,
                spool_view.ready,
                self._on_end,
                lambda queue: self.on_unlisted(queue),
            )
        return self._in_flight

    def _on_end(self, queue: str) -> None:
        """After the end of a claim a client that was held back by too many may try."""
        gate = self.shut.get(queue)
        if gate is not None and gate.settings.max_in_flight is not None:
            gate.open()
            self._announce(queue, 1)

    def _keep_shut(self, queue: str, gate: Gate) -> None:
        ready = self._spool_view.ready
        self.shut[queue] = gate
        if self._watching is not ready:
            self._watching = ready
            # If no watches are left, waiting clients look now and then, too.
            ready.listen(CONFIG, self._on_event, self._on_loss, of=self)
            # Changes before the watch began are no events.
            self._on_loss()
        # A claim takes in the events that woke it, even if it may not take a message.
        ready.refresh()

    def _on_event(self, event: Event) -> None:
        queue = event.name.removesuffix(".json")
        if queue in self.shut:
            self._on_loss((queue,))

    def _on_loss(self, queues: Iterable[str] | None = None) -> None:
        try:
            self.look(list(self.shut) if queues is None else queues)
        except (OSError, Unlisted):
            return  # the next claim reports it, or the next look succeeds
