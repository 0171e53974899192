"""Who hears of events in which folder, beside the indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from .events import Event, Kind

OnEvent: TypeAlias = Callable[[Event], None]
OnLoss: TypeAlias = Callable[[], None]


class _Listener(NamedTuple):
    """changes: whether it hears of times that were set, too."""

    on_event: OnEvent
    on_loss: OnLoss
    changes: bool


class Listeners:
    """The listeners of some folders; several may hear of one. None raises anything."""

    def __init__(self) -> None:
        self._of: dict[str, dict[object, _Listener]] = {}

    def set(
        self, folder: str, who: object, on_event: OnEvent | None, on_loss: OnLoss, changes: bool
    ) -> bool:
        """Let one hear of a folder, or, without ``on_event``, no more; whether anyone does."""
        # Always a new dict: the old one may be in use right now.
        heard = {one: how for one, how in self._of.pop(folder, {}).items() if one != who}
        if on_event is not None:
            heard[who] = _Listener(on_event, on_loss, changes)
        if heard:
            self._of[folder] = heard
        return bool(heard)

    def hears_changes(self, folder: str) -> bool:
        """Whether one of them hears of times that were set: a folder has one watch for all."""
        return any(one.changes for one in self._of.get(folder, {}).values())

    def report(self, kind: Kind, folder: str, events: Iterable[Event]) -> bool:
        """Report events of one kind to those who listen in a folder; whether anyone does."""
        if folder not in self._of:
            return False
        for event in events:
            for one in self._of.get(folder, {}).values():
                if one.changes or kind is not Kind.CHANGED:
                    one.on_event(event)
        return True

    def report_loss(self) -> None:
        """Report to all that events were lost."""
        for on_loss in [one.on_loss for heard in self._of.values() for one in heard.values()]:
            on_loss()
