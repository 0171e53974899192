"""A channel that is opened: its settings, its lock, and the progress that the lock guards."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from ..durability.sync import Work
from ..errors import ClaimVoid, NoSuchChannel, NotInFlight
from ..layout import documents
from ..layout.uuids import uuid7
from .channel_files import (
    CHANNEL_FILE,
    LOCK,
    MAX_FILE_BYTES,
    Tally,
    encode,
    make_generation,
    read_tally,
)
from .finished import Finished
from .hints import LockFile
from .holds import HoldFiles
from .log_settings import ChannelSettings
from .progress import Progress
from .ranges import Range
from .store import Store

_COUNTER_BYTES = 20
# Folders are listed at least this often, for the sake of who works on them by hand.
_DISTRUST_S = 1.0


class OpenChannel:
    """One channel. Safe in threads. sync: makes a change durable."""

    def __init__(self, store: Store, name: str, sync: Callable[[Work], None]) -> None:
        self.store = store
        self.name = name
        self.folder = f"{store.disk.channels}/{name}"
        self._tree = store.disk.tree
        self._sync = sync
        self._mutex = threading.RLock()
        self._lock: LockFile | None = None  # held, and nothing was announced
        self._counter = -1
        self._listed_at = float("-inf")
        self._generation = 0
        self._progress: Progress | None = None
        self._settings = ChannelSettings()
        self._version: tuple[int, ...] = ()
        self.note: Callable[..., None] | None = None  # notes a step in the journal, if there is one

    # -- settings --------------------------------------------------------------------------------

    def settings(self) -> ChannelSettings:
        """The settings in force now. Raises NoSuchChannel, OSError."""
        path = f"{self.folder}/{CHANNEL_FILE}"
        found = self._tree.look(path)
        if found is None:
            if not self._tree.is_folder(self.folder):
                raise NoSuchChannel(self.store.disk.name, self.name)
            return self._settings
        version = (found.st_mtime_ns, found.st_ino, found.st_size)
        if version != self._version:
            with suppress(ValueError, FileNotFoundError):
                order = self._settings.order
                self._settings = self.read_settings()
                if order != self._settings.order:
                    self._counter = -1
            self._version = version
        return self._settings

    def read_settings(self) -> ChannelSettings:
        """What the file says. Raises ValueError, OSError."""
        known = ChannelSettings().as_dict()
        read = documents.read(self._tree, f"{self.folder}/{CHANNEL_FILE}", MAX_FILE_BYTES)
        return ChannelSettings().changed({n: value for n, value in read.items() if n in known})

    def replace_settings(self, settings: ChannelSettings) -> None:
        with self.locked():
            self._announce()
            self._tree.replace(f"{self.folder}/{CHANNEL_FILE}", encode(settings.as_dict()))

    def tally(self) -> Tally:
        """What the channel did not get."""
        return read_tally(self._tree, self.folder)

    # -- the lock --------------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[Progress]:
        """Keep others out; how far the channel is. Raises NoSuchChannel, Unavailable, OSError.

        Call `_announce` before the first change: other processes read all anew then.
        """
        with self._mutex:
            try:
                lock = LockFile(self._tree, f"{self.folder}/{LOCK}")
            except (FileNotFoundError, NotADirectoryError):
                raise NoSuchChannel(self.store.disk.name, self.name) from None
            try:
                with lock.locked():
                    if not lock.is_current():
                        raise NoSuchChannel(self.store.disk.name, self.name)
                    progress = self._current(lock)
                    self._lock = lock
                    yield progress
            except (NotInFlight, ClaimVoid):
                raise  # nothing was changed
            except BaseException:
                self._progress = None  # what was changed in part is to be read anew
                raise
            finally:
                self._lock = None
                lock.close()

    def _announce(self) -> None:
        """Let other processes know that holds, or what is done, are about to change."""
        lock, self._lock = self._lock, None
        if lock is not None:
            self._counter += 1
            lock.write_bytes(b"%0*d" % (_COUNTER_BYTES, self._counter))

    def _current(self, lock: LockFile) -> Progress:
        settings = self.settings()
        try:
            counter = int(lock.read_bytes(_COUNTER_BYTES) or b"0")
        except ValueError:
            counter = 0
        now = time.monotonic()
        if (
            self._progress is None
            or counter != self._counter
            or now - self._listed_at > _DISTRUST_S
        ):
            self._load(settings)
            self._counter, self._listed_at = counter, now
        assert self._progress is not None
        return self._progress

    def _load(self, settings: ChannelSettings) -> None:
        self._tree.refresh(self.folder)
        numbers = [int(name) for name in self._tree.names(self.folder) if name.isdecimal()]
        generation = max(numbers, default=0)
        if not generation:
            if not self._tree.is_folder(self.folder):
                raise NoSuchChannel(self.store.disk.name, self.name)
            generation = self._begin(self.store.first())
        if self._progress is None or generation != self._generation:
            folder = f"{self.folder}/{generation}"
            self._progress = Progress(Finished(self._tree, folder), HoldFiles(self._tree, folder))
            self._generation = generation
        self._progress.load(self._keys_of if settings.order == "key" else None)

    def _begin(self, start: int) -> int:
        """A first generation, where someone has removed all by hand."""
        draft = f"{self.folder}/.{uuid7()}"
        make_generation(self._tree, draft, start)
        self._tree.rename(draft, f"{self.folder}/1")
        self._tree.sync_folder(self.folder)
        return 1

    def _keys_of(self, ranges: Iterable[Range]) -> dict[int, str]:
        """The keys of messages, of those that have one."""
        keys: dict[int, str] = {}
        first, end = self.store.known().first, self.store.end()
        for start, stop in ranges:
            offset = max(start, first)
            while offset < min(stop, end):
                page = self.store.page(offset, stop - offset)
                keys.update((m.offset, m.key) for m in page.messages if m.key is not None)
                if page.next <= offset:
                    break
                offset = page.next
        return keys

    @property
    def generation(self) -> int:
        return self._generation
