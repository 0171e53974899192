"""Who hears of events in which folder, beside the indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from .events import Event

OnEvent: TypeAlias = Callable[[Event], None]
OnLoss: TypeAlias = Callable[[], None]


class Listeners:
    """The listeners of some folders; several may hear of one."""

    def __init__(self) -> None:
        self._of: dict[str, dict[object, tuple[OnEvent, OnLoss]]] = {}

    def set(self, folder: str, who: object, on_event: OnEvent | None, on_loss: OnLoss) -> bool:
        """Let one hear of a folder, or, without ``on_event``, no more; whether anyone does."""
        # Always a new dict: the old one may be in use right now.
        heard = {one: how for one, how in self._of.pop(folder, {}).items() if one != who}
        if on_event is not None:
            heard[who] = on_event, on_loss
        if heard:
            self._of[folder] = heard
        return bool(heard)

    def report(self, folder: str, events: Iterable[Event]) -> bool:
        """Report events of a folder to those who listen there; whether anyone does."""
        if folder not in self._of:
            return False
        for event in events:
            for on_event, _ in self._of.get(folder, {}).values():
                on_event(event)
        return True

    def report_loss(self) -> None:
        """Report to all that events were lost."""
        for on_loss in [on_loss for heard in self._of.values() for _, on_loss in heard.values()]:
            on_loss()
