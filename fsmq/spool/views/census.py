"""The census: exact counts of a queue's messages, without a listing for each question.

The ready index knows the ready messages. For new and hidden ones, the folders ``new/`` and
``delay/`` are listed once, and file events keep the count as long as clients ask for it. All these
events come through one channel, in the order of the renames, so a message that moves is counted
once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ..context import Context
from ..errors import NoSuchQueue, Unavailable, as_unavailable
from ..index.counting import Counts, count
from ..index.events import Event, Kind
from ..layout.names import split_entry
from ..layout.transitions import DELAY, NEW

# Keeping count costs some microseconds a message, so it ends if nobody asks for this time.
_IDLE_S = 60.0
_TRIES = 10


class Census:
    """Counts messages by file events. Safe in threads; can block for a listing."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._tree = context.tree
        self._lock = threading.Lock()
        self._folders = {folder: _Folder() for folder in (NEW, DELAY)}
        self._asked = 0.0
        self._unheard_until = 0.0  # until then folders cannot be watched, due to a limit

    @property
    def works(self) -> bool:
        """Whether events arrive; without them each count needs a listing."""
        is_heard = time.monotonic() >= self._unheard_until
        return is_heard and self._context.ready.hears_all

    def is_ready(self, queue: str) -> bool:
        """Whether the next question about a queue needs no listing."""
        return self._is_listed and self._context.ready.is_loaded(queue)

    @property
    def _is_listed(self) -> bool:
        return all(folder.is_listed for folder in self._folders.values())

    def size(self, queue: str) -> int:
        """How many messages a queue has in all states. Raises NoSuchQueue, Unavailable."""
        if not self._catch_up(queue):
            return self._counts(queue).total
        ready = self._context.ready.count(queue)
        return ready + sum(folder.count(queue) for folder in self._folders.values())

    def claims(self, queue: str) -> int:
        """How many of a queue's messages are claimed. Raises NoSuchQueue, Unavailable."""
        if not self._catch_up(queue):
            return self._counts(queue).in_flight
        with as_unavailable(f"cannot count claims of queue {queue!r}"):
            deadlines = self._folders[DELAY].deadlines(queue, self._claimed_until)
        now_ms = self._context.now_ms()
        return sum(deadline > now_ms for deadline in deadlines)

    def _claimed_until(self, entry_name: str) -> int:
        """When a claim ends, in Unix milliseconds; 0 if the message is not claimed."""
        found = self._tree.stat(self._tree.folder(DELAY, entry_name))
        if found is None:
            return 0
        message_id = entry_name.rpartition(":")[2]
        stamp = self._context.stamps.decode(message_id, found.st_mtime_ns)
        # Where times are coarse no count is known, and a delay counts as a claim.
        return stamp.deadline_ms if stamp is not None and stamp.is_claim else 0

    def rest(self) -> None:
        """Stop keeping count if nobody has asked for a while."""
        if self._is_listed and time.monotonic() - self._asked > _IDLE_S:
            self._forget()

    def _counts(self, queue: str) -> Counts:
        context = self._context
        with as_unavailable(f"cannot count queue {queue!r}"):
            return count(context.tree, context.stamps, queue, context.now_ms())

    def _catch_up(self, queue: str) -> bool:
        """Take in all events so far; False if not all arrive."""
        self._asked = time.monotonic()
        ready = self._context.ready
        with as_unavailable(f"cannot count queue {queue!r}"):
            if not self._tree.has_queue(queue):
                raise NoSuchQueue(queue)
            for _ in range(_TRIES):
                ready.load(queue)
                if not self._listed():
                    return False
                # A rename is two events, of which one may be yet to come; and after lost events
                # everything has to be listed again.
                if not ready.refresh() and self.is_ready(queue):
                    return True
            if not self.is_ready(queue):
                raise Unavailable("events of files are dropped as often as messages are counted")
            return True

    def _listed(self) -> bool:
        """Whether all folders are listed, and watched since then."""
        with self._lock:
            if self._context.ready.hears_all and all(
                folder.is_listed or self._list(name, folder)
                for name, folder in self._folders.items()
            ):
                return True
            self._forget()
            return False

    def _list(self, name: str, folder: _Folder) -> bool:
        """Keep count of a folder from now on; False if it cannot be watched."""
        # Watch first, list afterwards: arrivals in between are seen twice, never missed.
        folder.begin()
        changes = name == DELAY  # a renewal sets a time
        path = self._tree.folder(name)
        if not self._context.ready.listen(path, folder.apply, self._forget, changes=changes):
            self._unheard_until = time.monotonic() + _IDLE_S
            return False
        folder.install(self._tree.names(path))
        return True

    def _forget(self) -> None:
        for name, folder in self._folders.items():
            self._context.ready.listen(self._tree.folder(name), None)
            folder.forget()


class _Folder:
    """The messages of ``new/`` or ``delay/``, by queue."""

    def __init__(self) -> None:
        self.is_listed = False
        self._lock = threading.Lock()
        # By queue and id, with each deadline once a client has asked for it.
        self._ids: dict[str, dict[str, int | None]] = {}
        self._meanwhile: list[tuple[bool, str]] | None = None

    def begin(self) -> None:
        with self._lock:
            self._ids, self._meanwhile = {}, []

    def install(self, names: list[str]) -> None:
        """Use a listing, unless the folder was cleared since it began: then events are missing.

        (Only one thread lists at a time, so no other listing can have begun since.)
        """
        with self._lock:
            if self._meanwhile is None:
                return
            for name in names:
                self._note(name, True)
            for is_there, name in self._meanwhile:
                self._note(name, is_there)
            self._meanwhile = None
            self.is_listed = True

    def forget(self) -> None:
        with self._lock:
            self.is_listed = False
            self._ids, self._meanwhile = {}, None

    def apply(self, event: Event) -> None:
        if event.name[0] == ".":
            return
        with self._lock:
            if event.kind is Kind.CHANGED:
                self._unlearn(event.name)
                return
            is_there = event.kind is Kind.ARRIVED
            if self._meanwhile is not None:
                self._meanwhile.append((is_there, event.name))
            else:
                self._note(event.name, is_there)

    def count(self, queue: str) -> int:
        return len(self._ids.get(queue, ()))

    def deadlines(self, queue: str, look_up: Callable[[str], int]) -> list[int]:
        """The deadlines of a queue's messages; ``look_up`` finds those that are not known yet."""
        with self._lock:
            ids = self._ids.get(queue, {})
            known = [deadline for deadline in ids.values() if deadline is not None]
            unknown = [message_id for message_id, deadline in ids.items() if deadline is None]
        for message_id in unknown:
            # If the deadline changes after this look, a later event corrects it.
            with self._lock:
                deadline = look_up(f"{queue}:{message_id}")
                if message_id in ids:
                    ids[message_id] = deadline
            known.append(deadline)
        return known

    def _unlearn(self, name: str) -> None:
        """Forget a deadline, if it is known."""
        queue, message_id = split_entry(name) or ("", "")
        ids = self._ids.get(queue, {})
        if message_id in ids:
            ids[message_id] = None

    def _note(self, name: str, is_there: bool) -> None:
        parts = split_entry(name)
        if parts is None:
            return
        queue, message_id = parts
        if is_there:
            self._ids.setdefault(queue, {})[message_id] = None
            return
        ids = self._ids.get(queue)
        if ids is not None:
            ids.pop(message_id, None)
            if not ids:
                del self._ids[queue]
