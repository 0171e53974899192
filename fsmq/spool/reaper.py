"""The reaper's work: unlink the messages and folders in ``remove/``."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable

from .durability.ids import Held
from .durability.leaving import Leaving, with_index
from .index.quarantine import Quarantine
from .layout.names import facts
from .layout.transitions import INDEX_TRASH, REMOVE
from .layout.tree import Tree
from .layout.uuids import uuid7

_ALL = "."


def reap(
    tree: Tree,
    *,
    stop: Callable[[], bool] = lambda: False,
    step: int = 1000,
    on_reaped: Callable[[str, str], None] = lambda queue, message_id: None,
) -> int:
    """Unlink the contents of ``remove/`` once; returns how many messages. See `Reaper`.

    Leaves what another process is acting on. Raises OSError if anything else cannot be unlinked,
    after unlinking the rest.
    """
    reaper = Reaper(tree, stop=stop, step=step, on_reaped=on_reaped)
    reaped = reaper.run()
    if reaper.fault is not None and not isinstance(reaper.fault, BlockingIOError):
        raise reaper.fault
    return reaped


class Reaper:
    """Unlinks repeatedly, and quarantines names that fail. Keeps no listing in memory.

    stop: called after every ``step`` messages. on_reaped: called with each message's queue and id.
    on_fault: called with a name that cannot be unlinked, and the error.
    """

    def __init__(
        self,
        tree: Tree,
        *,
        stop: Callable[[], bool] = lambda: False,
        step: int = 1000,
        on_reaped: Callable[[str, str], None] = lambda queue, message_id: None,
        on_fault: Callable[[str, Exception], None] = lambda name, error: None,
    ) -> None:
        self.fault: OSError | None = None  # the first one of the last run
        self._tree = tree
        self._folder = tree.folder(REMOVE)
        self._stop = stop
        self._step = step
        self._on_reaped = on_reaped
        self._on_fault = on_fault
        self._quarantined = Quarantine()
        self._indexed: set[str] = set()  # queues with an index
        self._held = Held(tree)  # ids, in one pass
        self._reaped = 0
        self._is_stopped = False

    def timeout(self) -> float | None:
        """Seconds until the next retry of a name; None if none is waiting."""
        due = self._quarantined.next_s()
        return None if due is None else max(0.0, due - time.monotonic())

    def run(self) -> int:
        """Unlink all that is there; returns how many messages."""
        self.fault, self._reaped, self._is_stopped = None, 0, False
        tried = set(iter(lambda: self._quarantined.pop_due(time.monotonic()), None))
        if _ALL not in self._quarantined:
            try:
                while self._pass() and not self._is_stopped:
                    pass
            except OSError as error:
                self._failed(_ALL, error)
            for name in tried:
                if name not in self._quarantined:
                    self._quarantined.forget(name)
        if (news := self._quarantined.news(time.monotonic())) is not None:
            self._on_fault(*news)
        return self._reaped

    def _pass(self) -> bool:
        """Go through the folder once; returns whether anything was unlinked."""
        has_changed = False
        self._indexed = with_index(self._tree)
        with Held(self._tree) as self._held:
            for found in self._tree.walk(self._folder):
                if found.name in self._quarantined or _is_held(found.name):
                    continue
                try:
                    has_changed |= self._entry(found)
                except OSError as error:
                    self._failed(found.name, error)
                if self._is_stopped:
                    break
        return has_changed

    def _entry(self, found: os.DirEntry[str]) -> bool:
        path = f"{self._folder}/{found.name}"
        queue, _, message_id = found.name.rpartition(":")
        if found.name.startswith(INDEX_TRASH):
            return self._unlink_index(path)
        if found.is_dir(follow_symlinks=False):
            return self._trash(path, queue)
        return self._unlink(path, queue, message_id)

    def _trash(self, path: str, queue: str) -> bool:
        """Unlink the files in the folder of a deleted queue, then the folder."""
        first: OSError | None = None
        has_changed = False
        try:
            for found in self._tree.walk(path):
                try:
                    has_changed |= self._in_trash(f"{path}/{found.name}", found, queue)
                except OSError as error:
                    first = first or error  # one that fails must not stop the others
                if self._is_stopped:
                    return has_changed
            if first is None:
                has_changed |= self._tree.remove_folder(path)
        except OSError as error:
            if error.errno != errno.ESTALE:  # another host's reaper has removed it
                raise
        if first is not None and not has_changed:
            raise first
        return has_changed

    def _in_trash(self, path: str, found: os.DirEntry[str], queue: str) -> bool:
        if _is_held(found.name):
            return False
        if not found.is_dir(follow_symlinks=False):
            return self._unlink(path, queue, found.name)
        if self._tree.remove_folder(path):
            return True
        return self._tree.rename(path, f"{self._folder}/.{uuid7()}")

    def _unlink_index(self, path: str) -> bool:
        """Unlink the links of a deleted queue; its messages are unlinked separately."""
        for found in self._tree.walk(path):
            self._tree.unlink(f"{path}/{found.name}")
        return self._tree.remove_folder(path)

    def _unlink(self, path: str, queue: str, message_id: str) -> bool:
        if not self._unlink_all(path, queue, message_id):
            return False
        self._on_reaped(queue, message_id)
        self._reaped += 1
        if self._reaped % self._step == 0:
            self._is_stopped = self._stop()
        return True

    def _unlink_all(self, path: str, queue: str, message_id: str) -> bool:
        """Unlink a file after its links in indexes, which would otherwise lead to nothing."""
        if not self._indexed or not facts(message_id).headed:
            return self._tree.unlink(path)
        with Leaving(self._tree, path, queue, message_id) as leaving:
            if not leaving.forget_links(self._held, self._indexed):
                raise BlockingIOError(errno.EAGAIN, "its id is locked", path)
            return self._tree.unlink(path)

    def _failed(self, name: str, error: OSError) -> None:
        self.fault = self.fault or error
        self._quarantined.add(name, time.monotonic(), error)


def _is_held(name: str) -> bool:
    """Whether NFS keeps it for a process that still has it open, and then removes it itself."""
    return name.startswith(".nfs")
