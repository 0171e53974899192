"""Upkeep: what the mover does for logs.

It makes durable what killed writers have left, ends claims of poison messages, applies retention,
and removes unused channels. Any number of processes may do so.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from ..context import Context, Prepared, complete
from ..durability.sync import Syncer
from ..errors import FsmqError, NoSuchChannel, NoSuchLog, as_unavailable
from ..layout.filesystem import is_older
from ..layout.names import UUID7
from ..layout.transitions import LOGS, REMOVE
from ..layout.uuids import uuid7
from .channel import Channel
from .log import Log
from .logs import Logs
from .retention import Retention
from .store import Store

T = TypeVar("T")
EVERY_S = 10.0
# A writer can be stopped for a while. One that continues later finds its draft gone, and fails.
LEFT_AFTER_S = 3600.0
_draft = re.compile(rf"\.{UUID7}")


class Upkeep:
    """Looks after all logs of a spool. on_fault: called with what failed and is tried again."""

    def __init__(
        self, logs: Logs, on_fault: Callable[[str, Exception], None] = lambda name, error: None
    ) -> None:
        self._logs = logs
        self._on_fault = on_fault

    def step(self) -> None:
        """Do the work that is due. Raises Unavailable."""
        with as_unavailable("cannot look after the logs"):
            self._remove_left(self._logs.context.tree.folder(LOGS))
        for name in self._logs.names():
            try:
                self._tend(self._logs.store(name))
            except NoSuchLog:
                continue
            except (FsmqError, OSError) as error:
                self._on_fault(f"logs/{name}", error)
        self._logs.close_idle()

    def _tend(self, store: Store) -> None:
        if not store.is_settled():
            store.settle()
        self._remove_left(store.disk.channels)
        self._tend_channels(Log(self._logs.spool, self._logs, store.disk.name))
        Retention(self._logs, store).step()

    def _remove_left(self, folder: str) -> None:
        """Remove drafts whose writers died. Raises OSError."""
        tree = self._logs.context.tree
        for name in tree.names(folder):
            if _draft.fullmatch(name) is None:
                continue
            path = f"{folder}/{name}"
            try:
                found = tree.stat(path)
                if found is not None and is_older(tree, found, LEFT_AFTER_S):
                    tree.rename(path, tree.folder(REMOVE, f".{uuid7()}"))
            except OSError as error:  # an error of one must not stop the others
                self._on_fault(path, error)

    def _tend_channels(self, log: Log) -> None:
        for name in log.channels():
            channel = Channel(log, name)
            try:
                self._logs.channel(log.name, name).remove_left()
                if channel.delete_if_unused():
                    journal = self._logs.context.journal
                    journal.note_of_log("expired", log.name, name, [(0, 0)])
                else:
                    channel.end_poison()
            except NoSuchChannel:
                continue
            except (FsmqError, OSError) as error:
                self._on_fault(f"logs/{log.name}/channels/{name}", error)


class UpkeepThread:
    """Looks after the logs of a spool in its own thread, beside a program's other work.

    It acts as the spool for the verbs of logs. on_fault: as for `Upkeep`.
    """

    def __init__(
        self,
        context: Context,
        on_fault: Callable[[str, Exception], None],
        *,
        whole_sync: bool = True,
    ) -> None:
        self.context = context
        self.syncer = Syncer(context.tree, whole=whole_sync)
        self._logs = Logs(self)
        self._upkeep = Upkeep(self._logs, on_fault)
        self._on_fault = on_fault
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fsmq-logs", daemon=True)
        self._thread.start()

    def complete(self, prepared: Prepared[T]) -> T:
        """Make a verb durable and return its result. Raises Unavailable."""
        return complete(self.context, self.syncer, prepared)

    def close(self) -> None:
        """End the thread, after its current step."""
        self._stopping.set()
        self._thread.join()
        self._logs.close()
        self.syncer.close()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stopping.wait(max(0.0, due - time.monotonic())):
            due = time.monotonic() + EVERY_S
            try:
                self._upkeep.step()
            except Exception as error:  # an error must not end the work for all logs
                self._on_fault("logs", error)
