"""One log as its channels know it: where it is stored, and where its offsets are."""

from __future__ import annotations

from datetime import datetime

from ..context import OpenSpool
from ..durability.locks import patiently
from ..errors import as_unavailable
from .log_places import From, check_place
from .logs import Logs
from .store import Store

_POLL_S = 0.05


class OpenLog:
    """A log of an open spool, and its places. Every method raises NoSuchLog and Unavailable."""

    def __init__(self, spool: OpenSpool, logs: Logs, name: str) -> None:
        self.spool = spool
        self.name = name
        self._logs = logs

    def __repr__(self) -> str:
        return f"<Log {self.name!r} of {self.spool.context.tree.root}>"

    def first(self) -> int:
        """The offset of the first message that has not been removed."""
        return self._store.first()

    def end(self) -> int:
        """The offset of the next message. All messages before it are durable."""
        return self._store.end()

    def offset_of(self, place: From) -> int:
        """The offset of a place.

        place: an offset; a datetime with a time zone: that of the first message that is not older;
            "first": the first that is left; "last": the end.
        """
        store = self._store
        check_place(place)
        if isinstance(place, datetime):
            with as_unavailable(f"cannot read log {self.name!r}"):
                return store.reader.offset_at(int(place.timestamp() * 1_000_000))
        if isinstance(place, str):
            return store.first() if place == "first" else store.end()
        return place

    def wait(self, offset: int, seconds: float) -> bool:
        """Wait until the log has a message at an offset, ``seconds`` at most; whether it has."""
        return patiently(lambda: self.end() > offset, seconds, _POLL_S)

    @property
    def _store(self) -> Store:
        return self._logs.store(self.name)
