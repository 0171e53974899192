"""Listeners for the events of folders, beside the indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from .events import Event, Kind

OnEvent: TypeAlias = Callable[[Event], None]
OnLoss: TypeAlias = Callable[[], None]


class _Listener(NamedTuple):
    """changes: whether it also gets events of times that were set."""

    on_event: OnEvent
    on_loss: OnLoss
    changes: bool


class Listeners:
    """The listeners of folders; a folder can have several. They raise nothing."""

    def __init__(self) -> None:
        self._of: dict[str, dict[object, _Listener]] = {}

    def set(
        self, folder: str, who: object, on_event: OnEvent | None, on_loss: OnLoss, changes: bool
    ) -> bool:
        """Add a listener of a folder, or remove it without ``on_event``; whether any is left."""
        # Always a new dict: another thread may be using the old one.
        heard = {one: how for one, how in self._of.pop(folder, {}).items() if one != who}
        if on_event is not None:
            heard[who] = _Listener(on_event, on_loss, changes)
        if heard:
            self._of[folder] = heard
        return bool(heard)

    def hears_changes(self, folder: str) -> bool:
        """Whether a listener wants events of set times: a folder has one watch for all."""
        return any(one.changes for one in self._of.get(folder, {}).values())

    def report(self, kind: Kind, folder: str, events: Iterable[Event]) -> bool:
        """Report events of one kind to the listeners of a folder; whether there are any."""
        if folder not in self._of:
            return False
        for event in events:
            for one in self._of.get(folder, {}).values():
                if one.changes or kind is not Kind.CHANGED:
                    one.on_event(event)
        return True

    def report_loss(self) -> None:
        """Report to all listeners that events were lost."""
        for on_loss in [one.on_loss for heard in self._of.values() for one in heard.values()]:
            on_loss()
