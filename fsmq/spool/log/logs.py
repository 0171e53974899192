"""All logs of a spool, as one process has them open."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

from ..context import OpenSpool
from ..durability.settings_lock import LOG, settings_held
from ..errors import NoSuchLog, as_unavailable, understood
from ..layout.names import check_queue
from ..layout.topics.topics import subscriber_of
from ..layout.transitions import LOGS, REMOVE
from ..layout.uuids import uuid7
from ..records.peers import host_name
from .consuming.channels import ChannelStore
from .log_document import Document
from .log_settings import LogSettings
from .segment.blocks import Blocks
from .segment.disk import FOLDERS, LOG_FILE, Disk
from .store import Store

# The most logs kept open; one that was not used for a while is closed. Together they may take this
# share of the process's open files: each has its folder, .writer, .sync, the turn and a segment.
_MOST_OPEN = 256
_FILES, _SHARE = 5, 4
_IDLE_S = 60.0
# How many channels are known before deleted ones are looked for.
_LEAST_CHANNELS = 64


class Logs:
    """Safe in threads."""

    def __init__(self, spool: OpenSpool) -> None:
        self.spool = spool
        self.context = spool.context
        self.syncer = spool.syncer
        self.blocks = Blocks()
        # Makes a worker on a channel; set by a higher layer.
        self.worker: Callable[..., Any] | None = None
        self._lock = threading.Lock()
        # One store for each log, as long as it is referenced; and those used recently.
        self._stores: WeakValueDictionary[str, Store] = WeakValueDictionary()
        self._recent: set[Store] = set()
        self._swept_at = time.monotonic()
        self._channels: dict[tuple[str, str], ChannelStore] = {}
        self._most_channels = _LEAST_CHANNELS  # until deleted ones are looked for

    def close(self) -> None:
        with self._lock:
            for store in self._recent:
                store.close()
            self._recent.clear()
            self._stores.clear()
            self._channels.clear()

    def disk(self, name: str) -> Disk:
        """The folder of a log, whether it exists or not."""
        clock = self.context.clock
        return Disk(self.context.tree, check_queue(name, "log"), clock, self.syncer.mode != "none")

    def store(self, name: str) -> Store:
        """A log, opened. Raises NoSuchLog, Unavailable."""
        with as_unavailable(f"cannot open log {name!r}"), self._lock:
            found = self._stores.get(name)
            if found is not None and not found.is_current():
                self._close(found)
                found = None
            if found is None:
                found = self._stores[name] = Store(self.disk(name), self.blocks, self._opened)
            self._keep(found)
            return found

    def opened(self, name: str) -> Store:
        """A log as it was opened, which may have been deleted since; otherwise as `store`."""
        found = self._stores.get(name)
        return self.store(name) if found is None else found

    def _opened(self, store: Store) -> None:
        """Note that the files of a log were opened."""
        with self._lock:
            self._keep(store)

    def _keep(self, store: Store) -> None:
        store.tail.used_at = now = time.monotonic()
        self._recent.add(store)
        if now - self._swept_at > _IDLE_S:
            self._close_idle()
        if len(self._recent) > (most := _most_open()):
            for other in sorted(self._recent, key=lambda one: one.tail.used_at):
                if len(self._recent) <= most:
                    break
                self._close(other)

    def channel(self, log: str, name: str) -> ChannelStore:
        """A channel of a log, whether it exists or not. Raises NoSuchLog, Unavailable."""
        return self.channel_of(self.store(log), name)

    def channel_of(self, store: Store, name: str) -> ChannelStore:
        """The same of an opened log: its verbs never act on a later log of that name."""
        log = store.disk.name
        with self._lock:
            found = self._channels.get((log, name))
            if found is None or found.store is not store:
                self._forget_channels()
                note = self.context.journal.note_of_log
                found = self._channels[log, name] = ChannelStore(
                    store, name, self.syncer.sync, note
                )
                self._keep(store)  # they are forgotten together
            return found

    def _forget_channels(self) -> None:
        """Forget deleted channels, when twice as many are known as existed at the last check."""
        if len(self._channels) < self._most_channels:
            return
        self._channels = {key: one for key, one in self._channels.items() if one.is_there()}
        self._most_channels = max(_LEAST_CHANNELS, 2 * len(self._channels))

    def close_idle(self) -> None:
        """Close the files of logs that nobody uses."""
        with self._lock:
            self._close_idle()

    def _close_idle(self) -> None:
        self._swept_at = now = time.monotonic()
        for store in [one for one in self._recent if now - one.tail.used_at >= _IDLE_S]:
            self._close(store)

    def _close(self, store: Store) -> bool:
        """Close the files of a log, unless a thread uses them, and forget what it has read."""
        if not store.close_if_free():
            return False
        self._recent.discard(store)
        for key in [key for key, one in self._channels.items() if one.store is store]:
            del self._channels[key]
        return True

    def names(self) -> list[str]:
        """The names of all logs, sorted. Raises Unavailable."""
        tree = self.context.tree
        with as_unavailable("cannot list the logs"):
            return tree.folders(tree.folder(LOGS))

    def create(self, name: str, settings: Mapping[str, Any] | None = None) -> bool:
        """Create a log durably; False if it existed, unchanged.

        Raises InvalidValue, Unavailable.
        """
        disk = self.disk(name)
        given = dict(settings or {})
        given.setdefault("writers", "hosts" if disk.tree.network else "host")
        document = Document(uuid7(), LogSettings().changed(given), host_name(), disk.clock())

        def fill(draft: str) -> None:
            for folder in FOLDERS:
                disk.tree.make_entry(f"{draft}/{folder}")
            disk.tree.replace(f"{draft}/{LOG_FILE}", document.encode())

        with as_unavailable(f"cannot create log {name!r}"):
            if disk.has(disk.folder):
                return False  # a starting program must not wait for a lock
            with self.held(name):
                if not disk.has(disk.folder):
                    self._forget(name)
                return disk.make(disk.folder, fill)

    def _forget(self, name: str) -> None:
        """Remove, durably, the subscriptions of a deleted log, under its lock."""
        tree = self.context.tree
        # First sync the deletion, whose process may have died: the log must not come back.
        for folder in (LOGS, REMOVE):
            tree.sync_folder(tree.folder(folder))
        for path in self.context.topics.entries_of(subscriber_of(name)):
            tree.unlink(path)
            tree.sync_folder(path.rpartition("/")[0])

    def held(self, name: str, *, writes: bool = True) -> AbstractContextManager[None]:
        """Keep others from creating, changing or deleting a log, or a channel of it.

        writes: as for `settings_held`.
        """
        return settings_held(self.context.tree, LOG + name, writes=writes)

    def configure(
        self, name: str, change: Callable[[LogSettings], Mapping[str, Any]]
    ) -> LogSettings:
        """Change settings of a log durably; returns all of them.

        change: called with the current settings, returns the changes or raises.

        Raises InvalidValue, NoSuchLog, Unavailable, and what ``change`` raises.
        """
        check_queue(name, "log")
        with as_unavailable(f"cannot store the settings of log {name!r}"), self.held(name):
            store = self.store(name)
            with understood(f"{store.disk.folder}/{LOG_FILE}"):
                before = store.read_document().settings
            after = before.changed(change(before))
            if after.writers == before.writers:
                self._replace(store, after)
                store.about()
                return after
            # A process that still writes by the old setting writes to a segment that has ended.
            with store.writing() as tail:
                tail.roll()
                self._replace(store, after)
            store.about()
        return after

    def _replace(self, store: Store, settings: LogSettings) -> None:
        known = store.about()
        host = host_name() if settings.writers == "host" else known.host
        document = replace(known, settings=settings, host=host)
        try:
            self.context.tree.replace(f"{store.disk.folder}/{LOG_FILE}", document.encode())
        except FileNotFoundError:
            raise NoSuchLog(store.disk.name) from None

    def delete(self, name: str) -> None:
        """Delete a log with all its channels, durably. Raises NoSuchLog, Unavailable."""
        disk = self.disk(name)
        with as_unavailable(f"cannot delete log {name!r}"), self.held(name, writes=False):
            was_there = disk.trash(disk.folder)
            self._forget(name)  # also after a deletion that died
            if not was_there:
                raise NoSuchLog(name)
        with self._lock:
            gone = self._stores.pop(name, None)
            if gone is not None:
                self._close(gone)


def _most_open() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_OPEN if soft < 0 else max(1, min(_MOST_OPEN, soft // (_SHARE * _FILES)))
