"""Gates: whether a queue's settings let a claim take a message now.

A claim asks only where the queue has such a setting. For each of these queues there is one gate,
made of the settings when they change. A gate that has kept a claim back is shut until a look finds
it open; only meanwhile the file of settings is watched, and those who wait are told.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from ..index.events import Event
from ..index.ready import EVERYONE, Ready
from ..layout.settings import DEFAULTS, QueueSettings, SettingsStore
from ..layout.transitions import CONFIG
from ..layout.tree import Tree

_LOOK_S = 1.0


class Scene(Protocol):
    """What gates need to know of a spool."""

    @property
    def tree(self) -> Tree: ...
    @property
    def settings(self) -> SettingsStore: ...
    @property
    def ready(self) -> Ready: ...
    @property
    def clock(self) -> Callable[[], float]: ...


class Gate:
    """What keeps claims of one queue back, by its settings."""

    __slots__ = ("_opens_at", "settings")

    def __init__(self, settings: QueueSettings) -> None:
        self.settings = settings
        self._opens_at = settings.paused_until

    def opens_in(self, now: float) -> float:
        """Seconds until a message can be claimed; infinite where only a change can open it."""
        return max(0.0, self._opens_at - now)


_OPEN = Gate(DEFAULTS)


class Gates:
    """The gates of all queues that have one, as one process sees them. Safe in threads.

    shut: those that have kept a claim back and were not seen open since. While it is empty, nobody
        has to ask.
    """

    def __init__(self, scene: Scene) -> None:
        self.shut: dict[str, Gate] = {}
        self._scene = scene
        self._gates: dict[str, Gate] = {}
        self._opened: dict[str, float] = {}  # since (monotonic)
        self._watching: Ready | None = None

    def admit(self, queue: str, settings: QueueSettings, ids: Iterator[str]) -> Iterator[str]:
        """Those of the ids that may be claimed. None is taken that may not."""
        gate = self._gate(queue, settings)
        if gate.opens_in(self._scene.clock()):
            self._keep_shut(queue, gate)
            return
        if queue in self.shut:
            self._open(queue)
        yield from ids

    def lets(self, queue: str, settings: QueueSettings) -> bool:
        """Whether one message may be claimed that is chosen by its id."""
        return settings.is_open or any(True for _ in self.admit(queue, settings, iter(("",))))

    def is_shut(self, queue: str) -> bool:
        """Whether a claim was kept back, and would be now."""
        gate = self.shut.get(queue)
        return gate is not None and gate.opens_in(self._scene.clock()) > 0

    def look_in(self, queue: str) -> float:
        """Seconds until it is worth a look whether a queue that is shut has opened.

        No more than one: clocks are set, and events can be lost.
        """
        gate = self.shut.get(queue)
        return 0.0 if gate is None else min(_LOOK_S, gate.opens_in(self._scene.clock()))

    def has_just_opened(self, queue: str) -> bool:
        """Whether a claim may have been kept back that was not waiting yet when it opened."""
        if not self._opened:
            return False
        if time.monotonic() - self._opened.get(queue, -math.inf) < _LOOK_S:
            return True
        self._opened.pop(queue, None)
        return False

    def look(self, queues: Iterable[str]) -> None:
        """Read the settings of those that are shut again, and announce which are open.

        Where events do not arrive, it is to be called now and then. Raises OSError.
        """
        for queue in queues:
            if queue in self.shut:
                self._look(queue)

    def _look(self, queue: str) -> None:
        scene = self._scene
        if not scene.tree.has_queue(queue):
            self._open(queue)
            return
        gate = self._gate(queue, scene.settings.get(queue))
        if gate.opens_in(scene.clock()):
            self.shut[queue] = gate
        else:
            self._open(queue)

    def _open(self, queue: str) -> None:
        self.shut.pop(queue, None)
        self._gates.pop(queue, None)
        self._opened[queue] = time.monotonic()
        announce = self._scene.ready.on_arrival
        if announce is not None:
            announce(queue, EVERYONE, 0.0)

    def _gate(self, queue: str, settings: QueueSettings) -> Gate:
        if settings.is_open:
            self._gates.pop(queue, None)
            return _OPEN
        gate = self._gates.get(queue)
        if gate is None or gate.settings is not settings:
            gate = self._gates[queue] = Gate(settings)
        return gate

    def _keep_shut(self, queue: str, gate: Gate) -> None:
        ready = self._scene.ready
        self.shut[queue] = gate
        if self._watching is not ready:
            self._watching = ready
            try:
                ready.listen(CONFIG, self._on_event, self._on_loss)
            except OSError:
                pass  # no watches are left: who waits looks now and then, too
            # What was changed before the watch began was no event.
            self._on_loss()
        # A claim takes in the events that woke it, also one that is not to take a message.
        ready.refresh()

    def _on_event(self, event: Event) -> None:
        queue = event.name.removesuffix(".json")
        if queue in self.shut:
            self._on_loss((queue,))

    def _on_loss(self, queues: Iterable[str] | None = None) -> None:
        try:
            self.look(list(self.shut) if queues is None else queues)
        except OSError:
            return  # the next claim reports it, or the next look finds out
