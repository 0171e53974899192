"""A channel that is opened: its settings, and the file of its progress, which is also its lock.

The memory is a copy of the file. Under the lock a process compares the first line, which no two
files have in common, and takes in what others have added behind the place up to which it knows the
file. Where there is a new file, it reads that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from ..durability.sync import Work
from ..errors import ClaimVoid, NoSuchChannel, NotInFlight, Unavailable
from ..layout import documents
from ..layout.uuids import uuid7
from .channel_files import CHANNEL_FILE, MAX_FILE_BYTES, PROGRESS, encode, write_progress
from .hints import LockFile
from .lines import DONE, MAX_HEAD_BYTES, Line, Tally, parse, parse_head
from .lines import encode as encode_lines
from .log_settings import ChannelSettings
from .progress import Progress
from .ranges import Range
from .store import Store

# A file is replaced when it is so much larger than what it says, and than this.
_TIMES, _LEAST_BYTES = 4, 128 * 1024
_READ_BYTES = 4096
_DRAFT = f".{PROGRESS}."
# Keys are read with the messages around them: at least so many at a time.
_AT_A_TIME = 64


class OpenChannel:
    """One channel. Safe in threads. sync: makes a change durable."""

    def __init__(self, store: Store, name: str, sync: Callable[[Work], None]) -> None:
        self.store = store
        self.name = name
        self.folder = f"{store.disk.channels}/{name}"
        self._path = f"{self.folder}/{PROGRESS}"
        self._tree = store.disk.tree
        self._sync = sync
        self._mutex = threading.RLock()
        self._file: LockFile | None = None  # while it is locked
        self._head = b""  # the first line of the file that the memory is a copy of
        self._end = 0  # up to here
        self._gap = b""  # what must stand in front of the next line
        self._progress: Progress | None = None
        self._made_for: tuple[object, ...] = ()  # settings
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
                self._settings = self.read_settings()
            self._version = version
        return self._settings

    def read_settings(self) -> ChannelSettings:
        """What the file says. Raises ValueError, OSError."""
        known = ChannelSettings().as_dict()
        read = documents.read(self._tree, f"{self.folder}/{CHANNEL_FILE}", MAX_FILE_BYTES)
        return ChannelSettings().changed({n: value for n, value in read.items() if n in known})

    def replace_settings(self, settings: ChannelSettings) -> None:
        with self.locked():
            self._tree.replace(f"{self.folder}/{CHANNEL_FILE}", encode(settings.as_dict()))

    # -- the lock --------------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[Progress]:
        """Keep others out; how far the channel is. Raises NoSuchChannel, Unavailable, OSError."""
        with self._mutex, self._current_file() as file:
            known = self._end
            self._file = file
            try:
                progress = self._progress
                assert progress is not None
                yield progress
                if self._end > known and self._progress is progress:
                    self._shorten(progress)
            except (NotInFlight, ClaimVoid):
                raise  # nothing was changed
            except BaseException:
                self._progress = None  # what was changed in part is to be read anew
                raise
            finally:
                self._file = None

    @contextmanager
    def _current_file(self) -> Iterator[LockFile]:
        """The file, locked, when the memory is a copy of it."""
        while True:
            try:
                file = LockFile(self._tree, self._path)
            except (FileNotFoundError, NotADirectoryError):
                raise NoSuchChannel(self.store.disk.name, self.name) from None
            try:
                with file.locked():
                    if file.is_current() and self._follow(file):
                        yield file
                        return
            finally:
                file.close()

    def _follow(self, file: LockFile) -> bool:
        """Take in what the file says; False if it was replaced."""
        settings = self.settings()
        made_for = settings.order, settings.max_deliveries
        try:
            if (
                self._progress is None
                or made_for != self._made_for
                or file.read_bytes(len(self._head)) != self._head
            ):
                self._progress, self._made_for = None, made_for
                if not self._open(file, settings):
                    return False
            self._read(file)
        except BaseException:
            self._progress = None
            raise
        return True

    def _open(self, file: LockFile, settings: ChannelSettings) -> bool:
        data = file.read_bytes(MAX_HEAD_BYTES)
        if not data:
            # Someone has removed it by hand, and to open it made it.
            begun = Progress(1, Tally(), None)
            begun.apply(Line(DONE, [(0, first)] if (first := self.store.first()) else []))
            self._replace(begun)
            self._progress = None  # it does not know the settings
            return False
        found = parse_head(data)
        if found is None:
            raise Unavailable(f"the first line of {self._path} is damaged")
        # Who gave the file its name may have died before that was durable.
        self.store.disk.sync_folder(self.folder)
        self._head, generation, tally = found
        self._end, self._gap = len(self._head), b""
        self._progress = Progress(generation, tally, settings.max_deliveries)
        return True

    def _read(self, file: LockFile) -> None:
        """Take in what was added behind the place up to which the file is known."""
        assert self._progress is not None
        data, size = b"", _READ_BYTES
        while part := file.read_bytes(size, self._end + len(data)):
            data += part
            if len(part) < size:
                break
            size *= 2
        if not data:
            return
        keys: dict[int, str] | None = None if self._settings.order == "key" else {}
        for line in parse(data):
            self._progress.apply(line, keys)
        self._end += len(data)
        self._gap = b"" if data.endswith(b"\n") else b"\n"  # its writer was killed

    def _write(
        self,
        progress: Progress,
        lines: Iterable[Line],
        keys: Mapping[int, str] | None = None,
        work: Work | None = None,
    ) -> None:
        """Add lines, and take them in. keys: of what was not held. work: will make them durable."""
        lines = [line for line in lines if line.ranges]
        if not lines:
            return
        assert self._file is not None
        data = self._gap + encode_lines(lines)
        if work is not None:
            # Opened before it is written: it is told of every failure from here on.
            work.files.append(self._tree.open(self._path))
        try:
            self._file.write_bytes(data, self._end)
        except BaseException:
            if work is not None:
                work.close()
            raise
        self._end, self._gap = self._end + len(data), b""
        for line in lines:
            progress.apply(line, keys or {})

    def _shorten(self, progress: Progress) -> None:
        """Replace a file that is much larger than what it says."""
        if self._end > max(_LEAST_BYTES, _TIMES * progress.size):
            with suppress(OSError):  # what was written counts all the same
                self._replace(progress)

    def _replace(self, progress: Progress) -> None:
        """Give the channel a file that says what another progress is: the last step under a lock.

        It has a lock of its own, so nothing may be written after this.
        """
        disk, uuid = self.store.disk, uuid7()
        data = progress.encode(uuid)
        draft = f"{self.folder}/{_DRAFT}{uuid}"
        self._progress = None
        try:
            write_progress(disk, draft, data)
            if not self._tree.rename(draft, self._path, replace=True):
                raise NoSuchChannel(disk.name, self.name)
        except OSError:
            with suppress(OSError):
                self._tree.unlink(draft)
            raise
        disk.sync_folder(self.folder)
        self._head, self._end, self._gap = data[: data.index(b"\n") + 1], len(data), b""
        self._progress = progress

    def remove_left(self) -> None:
        """Remove what a killed writer of a new file has left."""
        if not self._drafts():
            return
        with self.locked():  # a living one has the lock
            for name in self._drafts():
                self._tree.unlink(f"{self.folder}/{name}")

    def _drafts(self) -> list[str]:
        return [name for name in self._tree.names(self.folder) if name.startswith(_DRAFT)]

    # -- keys ------------------------------------------------------------------------------------

    def _keys_of(self, ranges: Iterable[Range]) -> dict[int, str]:
        """The keys of messages, of those that have one; and of others beside them."""
        keys: dict[int, str] = {}
        offset, end = self.store.known().first, self.store.end()
        for start, stop in ranges:
            offset = max(start, offset)
            while offset < min(stop, end):
                page = self.store.page(offset, max(stop - offset, _AT_A_TIME))
                keys.update((m.offset, m.key) for m in page.messages if m.key is not None)
                if page.next <= offset:
                    break
                offset = page.next
        return keys
