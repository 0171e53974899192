"""An opened channel: its settings, and the progress read from its file.

The state in memory is a copy of the current file. Under the lock of that file a process compares
the first line, which is unique to a file, and takes in what others have added after the position up
to which it knows the file.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from ...durability.sync import Dirty
from ...errors import ClaimVoid, NoSuchChannel, NotInFlight, OffsetGone, Unavailable
from ...layout import documents
from ...layout.documents import version_of, version_to_keep
from ...layout.uuids import uuid7
from ..log_settings import ChannelSettings
from ..ranges import Range
from ..reader import PAGE_BYTES, Page
from ..segment.checkpoint import PATIENCE_S
from ..store import Store
from .channel_files import CHANNEL_FILE, MAX_FILE_BYTES
from .lines import MAX_HEAD_BYTES, NEXT, Line, parse, parse_head
from .lines import encode as encode_lines
from .progress import Progress
from .progress_file import PROGRESS, ProgressFile, newest, progress_name

# A file is replaced when it is this many times larger than its content needs, and than this.
_TIMES, _LEAST_BYTES = 4, 128 * 1024
# This many bytes before the known end of a file must be unchanged.
_COMPARED = 24
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
# How often in the time of `expires` a claim that gets nothing notes that the channel is used.
_NOTES = 16
# How long upkeep of all channels waits for the lock of one, as the others wait meanwhile.
TENDING_S = 1.0
# Keys are read with the messages around them, at least this many at a time.
_AT_A_TIME = 64


class OpenChannel:
    """One channel. Safe in threads. sync: makes a change durable. note: writes a step of ranges to
    the journal, with the names of step, log and channel."""

    def __init__(
        self, store: Store, name: str, sync: Callable[[Dirty], None], note: Callable[..., None]
    ) -> None:
        self.store = store
        self.name = name
        self.folder = store.disk.channel(name)
        self._tree = store.disk.tree
        self._sync = sync
        self._mutex = threading.RLock()
        self._file: ProgressFile | None = None  # while it is locked
        self._number = 0  # of the current file, as far as known
        self._head = b""  # the first line of the file that was read
        self._end = 0  # the position up to which it was read
        self._last = b""  # the bytes before that
        self._progress: Progress | None = None
        self._made_for: tuple[object, ...] = ()  # settings
        self._settings = ChannelSettings()  # those in force, while it is locked
        self._version: tuple[int, ...] = ()
        self._noted_at = float("-inf")  # when a use without a line was last noted
        self._journal = note

    def is_there(self) -> bool:
        """Whether there is a channel of this name; True if that cannot be seen."""
        try:
            return self._tree.stat(self.folder) is not None
        except OSError:
            return True

    # -- settings --------------------------------------------------------------------------------

    def settings(self) -> ChannelSettings:
        """The settings in force now. Raises NoSuchChannel, OSError."""
        path = f"{self.folder}/{CHANNEL_FILE}"
        found = self._tree.look(path)
        if found is None:
            if not self._tree.is_folder(self.folder):
                raise NoSuchChannel(self.store.disk.name, self.name)
            return self._settings
        if version_of(found) != self._version:
            version = version_to_keep(found)
            with suppress(ValueError, FileNotFoundError):
                self._settings = self.read_settings()
            self._version = version
        return self._settings

    def read_settings(self) -> ChannelSettings:
        """The settings in the file; the defaults if there is none. Raises ValueError, OSError."""
        return ChannelSettings.of(self._members())

    def _members(self) -> dict[str, Any]:
        try:
            return documents.read(self._tree, f"{self.folder}/{CHANNEL_FILE}", MAX_FILE_BYTES)
        except FileNotFoundError:
            return {}

    def replace_settings(self, settings: ChannelSettings) -> None:
        """Write the settings, and keep members that this version does not know."""
        with self.locked():
            members = {**self._members(), **settings.as_dict()}
            self._tree.replace(f"{self.folder}/{CHANNEL_FILE}", documents.encode(members))

    @property
    def path(self) -> str:
        """The current file, as far as known."""
        return f"{self.folder}/{progress_name(self._number)}"

    def changed_at_ns(self) -> int:
        """When it, or its settings, last changed. Raises NoSuchChannel, Unavailable."""
        return max(self._look().st_ctime_ns, self._configured_at_ns())

    def used_at_ns(self) -> int:
        """When somebody last claimed, finished, or changed a setting. Raises as above."""
        return max(self._look().st_mtime_ns, self._configured_at_ns())

    def _configured_at_ns(self) -> int:
        self.settings()
        return self._version[0] if self._version else 0

    def _look(self) -> os.stat_result:
        while True:
            self._number = self._number or self._newest()
            found = self._tree.look(self.path)
            if found is not None:
                return found
            self._number = 0

    def is_unused(self) -> bool:
        """Whether nobody has used it for longer than its settings allow. Raises as `settings`."""
        settings = self.settings()
        if settings.expires is None or settings.paused:
            return False
        now = self._now()  # before the look, so that later use is seen
        return now - self.used_at_ns() / 1e9 > settings.expires * (1 + 1 / _NOTES)

    def _now(self) -> float:
        """The time by the clock that sets the files' times, which can differ from this host's."""
        found = self._tree.stat(self.folder) if self._tree.touch(self.folder) else None
        if found is None:
            raise NoSuchChannel(self.store.disk.name, self.name)
        return found.st_mtime

    def _note_use(self) -> None:
        """Note in the file's time that the channel is used, under the lock, if nothing is
        written."""
        expires, now = self._settings.expires, time.monotonic()
        if expires is not None and now - self._noted_at >= expires / _NOTES:
            assert self._file is not None
            self._file.touch()
            self._noted_at = now

    # -- the lock --------------------------------------------------------------------------------

    @contextmanager
    def locked(self, patience_s: float = PATIENCE_S) -> Iterator[Progress]:
        """Keep others out; yields the progress, by the settings that are in force meanwhile.

        patience_s: how long to wait for the lock.

        Raises NoSuchChannel, Unavailable, OSError.
        """
        with self._mutex, self._current_file(patience_s) as file:
            known = self._end
            self._file = file
            try:
                progress = self._progress
                assert progress is not None
                yield progress
                if self._end > known and self._progress is progress:
                    self._shorten(file, progress)
            except (NotInFlight, ClaimVoid):
                raise  # nothing was changed
            except BaseException:
                self._progress = None  # it is changed in part: read it again
                raise
            finally:
                self._file = None

    @contextmanager
    def locked_unused(self) -> Iterator[Progress]:
        """The same for upkeep, which must not count as use of the channel."""
        with self.locked(TENDING_S) as progress:
            assert self._file is not None
            with self._file.with_its_time():
                yield progress

    @contextmanager
    def _current_file(self, patience_s: float) -> Iterator[ProgressFile]:
        """The current file, locked, once the memory is a copy of it."""
        while True:
            self._number = self._number or self._newest()
            try:
                file = ProgressFile(self.store.disk, self.folder, self._number)
            except OSError as error:
                if error.errno not in _GONE:
                    raise
                self._number = 0
                continue
            try:
                with file.locked(patience_s):
                    is_current = file.is_current()
                    self.store.about_ours()  # raises unless the file is of our log
                    if is_current and self._follow(file):
                        yield file
                        return
                    self._number = 0
            finally:
                file.close()

    def _newest(self) -> int:
        if found := newest(self._tree, self.folder):
            return found
        if self._tree.is_folder(self.folder):
            raise Unavailable(f"{self.folder} has no {PROGRESS}: delete the channel, and create it")
        raise NoSuchChannel(self.store.disk.name, self.name)

    def _follow(self, file: ProgressFile) -> bool:
        """Take in the content of the file; False if another file has replaced it."""
        settings = self.settings()
        made_for = settings.order, settings.max_deliveries
        progress, self._progress = self._progress, None
        added = b""
        if made_for == self._made_for and file.read_bytes(len(self._head)) == self._head:
            added = file.read_from(self._end - len(self._last))
        if progress is None or not added.startswith(self._last):
            progress = self._open(file, settings)
            added = file.read_from(self._end - len(self._last))
            self._made_for = made_for
        is_sealed = self._take_in(progress, added[len(self._last) :])
        if is_sealed:  # its writer may have died before it made another
            file.succeed(progress.encode(uuid7()), b"", 0)
            return False
        self._progress = progress
        return True

    def _open(self, file: ProgressFile, settings: ChannelSettings) -> Progress:
        found = parse_head(file.read_bytes(MAX_HEAD_BYTES))
        if found is None:
            raise Unavailable(f"the first line of {file.path} is damaged")
        # The process that named the file may have died before the name was durable.
        self.store.disk.sync_folder(self.folder)
        file.tidy()
        head, generation, tally = found
        self._know(head)
        return Progress(generation, tally, settings.max_deliveries)

    def _know(self, content: bytes) -> None:
        """Note the content of a file that was just made from memory."""
        self._head = content[: content.index(b"\n") + 1]
        self._end, self._last = len(content), content[-_COMPARED:]

    def _take_in(self, progress: Progress, added: bytes) -> bool:
        """Take in what was added to the file; whether it is sealed."""
        keys: dict[int, str] | None = None if self._settings.order == "key" else {}
        for line in parse(added):
            if line.kind == NEXT:
                return True
            progress.apply(line, keys)
        self._end += len(added)
        self._last = (self._last + added)[-_COMPARED:]
        return False

    def _write(
        self,
        progress: Progress,
        lines: Iterable[Line],
        keys: Mapping[int, str] | None = None,
        dirty: Dirty | None = None,
    ) -> None:
        """Add lines, and take them in. keys: of messages not held before. dirty: will sync them."""
        lines = [line for line in lines if line.ranges]
        if not lines:
            return
        file = self._file
        assert file is not None
        data = self._gap + encode_lines(lines)
        if dirty is not None:
            # Opened before it is written: so its sync reports every later failure.
            dirty.files.append(self._tree.open(file.path))
        try:
            file.write_bytes(data, self._end)
        except BaseException:
            if dirty is not None:
                dirty.close()
            raise
        self._end, self._last = self._end + len(data), data[-_COMPARED:]
        for line in lines:
            progress.apply(line, keys or {})

    @property
    def _gap(self) -> bytes:
        """What to write before the next line: a killed writer can leave a part of one."""
        return b"" if self._last.endswith(b"\n") else b"\n"

    def _shorten(self, file: ProgressFile, progress: Progress) -> None:
        """Replace a file that is much larger than its content needs."""
        if self._end <= max(_LEAST_BYTES, _TIMES * progress.size):
            return
        content, self._progress = progress.encode(uuid7()), None
        with suppress(OSError):  # the lines count all the same, and this is tried again
            is_ours = file.succeed(content, self._gap + encode_lines([Line(NEXT)]), self._end)
            self._number = file.number + 1
            if is_ours:
                self._know(content)
                self._progress = progress

    def remove_left(self) -> None:
        """Remove files that killed programs have left."""
        if sum(PROGRESS in name for name in self._tree.names(self.folder)) > 1:
            with self.locked(TENDING_S):  # a living one has the lock
                assert self._file is not None
                self._file.tidy()

    # -- messages --------------------------------------------------------------------------------

    def page(self, offset: int, count: int, max_bytes: int = PAGE_BYTES) -> Page:
        """Messages from an offset on; those that retention has removed are lost.

        The log can seem to end before a message that was handed out: the note of its end is not
        synced, and a stopped writer can set it back: then Unavailable, as those are not lost.
        """
        try:
            page = self.store.page(offset, count, max_bytes)
        except OffsetGone as error:
            return Page([], error.first, [(offset, error.first)])
        if page.next <= offset:
            raise Unavailable(f"log {self.store.disk.name!r} does not show its offset {offset} yet")
        return page

    def _pages(self, start: int, end: int) -> Iterator[Page]:
        """Messages from ``start`` to ``end``; the last page can reach beyond that."""
        while start < end:
            page = self.page(start, max(end - start, _AT_A_TIME))
            yield page
            start = page.next

    def _keys_of(self, ranges: Iterable[Range]) -> dict[int, str]:
        """The keys of messages that have one, and of others around them."""
        keys: dict[int, str] = {}
        offset = self.store.known().first
        for start, end in ranges:
            for page in self._pages(max(start, offset), end):
                keys.update((m.offset, m.key) for m in page.messages if m.key is not None)
                offset = page.next
        return keys
