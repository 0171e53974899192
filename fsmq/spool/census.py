"""The census: how many messages a queue has, exactly and without listing it for each question.

The ready index knows what stands in the queue. For what is on its way there, or hidden, the folders
``new/`` and ``delay/`` are listed once, and kept up by file events as long as someone asks. All of
these events come through one channel, in the order of the renames, so a message that travels is
counted once.
"""

from __future__ import annotations

import threading
import time

from .context import Context
from .errors import NoSuchQueue, unavailable
from .events import Event, Kind
from .names import split_entry
from .tree import DELAY, NEW

# Keeping up costs some microseconds a message: it ends when nobody has asked for so long.
_IDLE_S = 60.0
_TRIES = 10


class Census:
    """Counts messages where file events arrive. Safe in threads; may block for a listing."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._tree = context.tree
        self._lock = threading.Lock()
        self._folders = {folder: _Folder() for folder in (NEW, DELAY)}
        self._asked = 0.0

    @property
    def works(self) -> bool:
        """Whether events arrive; without them only a listing tells."""
        return not self._context.ready.polls

    def is_ready(self, queue: str) -> bool:
        """Whether the next question about a queue needs no listing."""
        return self._is_listed and self._context.ready.is_loaded(queue)

    @property
    def _is_listed(self) -> bool:
        return all(folder.is_listed for folder in self._folders.values())

    def size(self, queue: str) -> int:
        """How many messages a queue has in all states. Raises NoSuchQueue, Unavailable."""
        self._catch_up(queue)
        ready = self._context.ready.count(queue)
        return ready + sum(folder.count(queue) for folder in self._folders.values())

    def claims(self, queue: str) -> int:
        """How many claims on a queue's messages hold. Raises NoSuchQueue, Unavailable."""
        self._catch_up(queue)
        now_ms = self._context.now_ms()
        held = 0
        try:
            for message_id in self._folders[DELAY].ids(queue):
                found = self._tree.stat(self._tree.folder(DELAY, f"{queue}:{message_id}"))
                if found is None:
                    continue
                stamp = self._context.stamps.decode(message_id, found.st_mtime_ns)
                # Where times are coarse no count is known, and a delay counts as a claim.
                if stamp is not None and stamp.deliveries != 0 and stamp.deadline_ms > now_ms:
                    held += 1
        except OSError as error:
            raise unavailable(error, f"cannot count claims of queue {queue!r}") from error
        return held

    def rest(self) -> None:
        """Stop keeping up when nobody has asked for a while."""
        if self._is_listed and time.monotonic() - self._asked > _IDLE_S:
            self._forget()

    def _catch_up(self, queue: str) -> None:
        self._asked = time.monotonic()
        ready = self._context.ready
        try:
            if not self._tree.has_queue(queue):
                raise NoSuchQueue(queue)
            for _ in range(_TRIES):
                ready.load(queue)
                with self._lock:
                    for name, folder in self._folders.items():
                        if not folder.is_listed:
                            self._list(name, folder)
                # A rename is two events, of which one may still be on its way; and where events
                # were dropped, everything has to be listed again.
                if not ready.refresh() and self.is_ready(queue):
                    return
        except OSError as error:
            raise unavailable(error, f"cannot count queue {queue!r}") from error

    def _list(self, name: str, folder: _Folder) -> None:
        # Watch first, list afterwards: what comes in between is seen twice, never missed.
        folder.begin()
        self._context.ready.listen(self._tree.folder(name), folder.apply, self._forget)
        folder.install(self._tree.names(self._tree.folder(name)))

    def _forget(self) -> None:
        for name, folder in self._folders.items():
            self._context.ready.listen(self._tree.folder(name), None)
            folder.clear()


class _Folder:
    """The messages of ``new/`` or ``delay/``, by queue."""

    def __init__(self) -> None:
        self.is_listed = False
        self._lock = threading.Lock()
        self._ids: dict[str, set[str]] = {}
        self._meanwhile: list[tuple[bool, str]] | None = None

    def begin(self) -> None:
        with self._lock:
            self._ids, self._meanwhile = {}, []

    def install(self, names: list[str]) -> None:
        with self._lock:
            for name in names:
                self._note(name, True)
            for is_there, name in self._meanwhile or ():
                self._note(name, is_there)
            self._meanwhile = None
            self.is_listed = True

    def clear(self) -> None:
        with self._lock:
            self.is_listed = False
            self._ids, self._meanwhile = {}, None

    def apply(self, event: Event) -> None:
        if event.name[0] == "." or event.kind is Kind.CHANGED:
            return
        with self._lock:
            is_there = event.kind is Kind.ARRIVED
            if self._meanwhile is not None:
                self._meanwhile.append((is_there, event.name))
            else:
                self._note(event.name, is_there)

    def count(self, queue: str) -> int:
        return len(self._ids.get(queue, ()))

    def ids(self, queue: str) -> list[str]:
        with self._lock:
            return list(self._ids.get(queue, ()))

    def _note(self, name: str, is_there: bool) -> None:
        parts = split_entry(name)
        if parts is None:
            return
        queue, message_id = parts
        if is_there:
            self._ids.setdefault(queue, set()).add(message_id)
            return
        ids = self._ids.get(queue)
        if ids is not None:
            ids.discard(message_id)
            if not ids:
                del self._ids[queue]
