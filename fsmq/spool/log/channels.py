"""One channel of a log as one process sees it: its folder, its lock, and its progress.

    channels/<channel>/
      channel.json    settings
      tally.json      what was lost and skipped
      .lock           locked to claim and to change; a counter of changes
      <generation>/   the highest counts; one more with each seek
        done/  claims/  retry/

A claim needs no sync: if all are lost, messages are handed out again. What is done is synced before
it is answered, and nothing can be done that is not durable in the log.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

from ..durability.sync import Work
from ..errors import ClaimVoid, NoSuchChannel, NotInFlight, Unavailable
from ..layout import documents
from ..layout.names import check_queue
from ..layout.tree import Tree
from ..layout.uuids import uuid7
from .finished import DONE, Finished, done_name
from .handing import Chooser, Chosen
from .hints import LockFile
from .holds import CLAIMS, RETRY, Hold, HoldFiles
from .log_settings import ChannelSettings
from .progress import Progress
from .ranges import Range, Ranges, ranges_of
from .record import LogMessage
from .store import Store

CHANNEL_FILE, TALLY_FILE, LOCK = "channel.json", "tally.json", ".lock"
_MAX_FILE_BYTES = 64 * 1024
_COUNTER_BYTES = 20
# Folders are listed at least this often, for the sake of who works on them by hand.
_DISTRUST_S = 1.0


def check_channel(name: str) -> str:
    """Return what may name a channel. Raises InvalidValue."""
    return check_queue(name, "channel")


@dataclass(slots=True)
class Tally:
    """What a channel did not get, over all its generations.

    lost: messages that retention took, or damage. first_lost: the offset of the first.
    lost_through: what has been counted. skipped, buried: by on_poison.
    """

    lost: int = 0
    first_lost: int | None = None
    lost_through: int = 0
    skipped: int = 0
    buried: int = 0


class Channels:
    """The channels of a log: made, listed, removed. Methods raise OSError."""

    def __init__(self, store: Store) -> None:
        self._disk = store.disk
        self._tree = store.disk.tree

    def create(self, name: str, start: int, settings: ChannelSettings) -> bool:
        """Create a channel at an offset, durably; False if it was there, and is as it was."""
        path = f"{self._disk.channels}/{name}"
        if self._tree.is_folder(path):
            self._disk.sync_folder(self._disk.channels)
            return False
        draft = f"{self._disk.channels}/.{uuid7()}"
        self._tree.make_entry(draft)
        try:
            make_generation(self._disk.tree, f"{draft}/1", start)
            self._tree.replace(f"{draft}/{CHANNEL_FILE}", encode(settings.as_dict()))
            self._tree.rename(draft, path)
        except FileExistsError:
            self._disk.trash(draft)
            self._disk.sync_folder(self._disk.channels)
            return False
        except OSError:
            with suppress(OSError):
                self._disk.trash(draft)
            raise
        self._disk.sync_folder(self._disk.channels)
        return True

    def delete(self, name: str) -> bool:
        """Delete a channel durably; False if there was none."""
        found = self._disk.trash(f"{self._disk.channels}/{name}")
        self._disk.sync_folder(self._disk.channels)
        return found


def make_generation(tree: Tree, folder: str, start: int) -> None:
    """The folders of a generation that begins at an offset, durably but for its name."""
    tree.make_entry(folder)
    for name in (DONE, CLAIMS, RETRY):
        tree.make_entry(f"{folder}/{name}")
    if start:
        os.close(tree.create(f"{folder}/{DONE}/{done_name(0, start)}"))
    tree.sync_folder(f"{folder}/{DONE}")
    tree.sync_folder(folder)


def encode(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()


class ChannelStore:
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
                known = ChannelSettings().as_dict()
                read = documents.read(self._tree, path, _MAX_FILE_BYTES)
                given = {name: value for name, value in read.items() if name in known}
                order = self._settings.order
                self._settings = ChannelSettings().changed(given)
                if order != self._settings.order:
                    self._counter = -1
            self._version = version
        return self._settings

    def replace_settings(self, settings: ChannelSettings) -> None:
        with self.locked():
            self._announce()
            self._tree.replace(f"{self.folder}/{CHANNEL_FILE}", encode(settings.as_dict()))

    def tally(self) -> Tally:
        """What the channel did not get."""
        try:
            found = documents.read(self._tree, f"{self.folder}/{TALLY_FILE}", _MAX_FILE_BYTES)
        except (FileNotFoundError, ValueError):
            return Tally()
        known = asdict(Tally())
        return Tally(**{n: v for n, v in found.items() if n in known and isinstance(v, int)})

    def _write_tally(self, tally: Tally) -> None:
        self._tree.replace(f"{self.folder}/{TALLY_FILE}", encode(asdict(tally)))

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

    # -- claim -----------------------------------------------------------------------------------

    def claim(
        self, count: int, visibility: float | None, bury: Callable[[list[LogMessage]], None]
    ) -> list[tuple[LogMessage, Hold]]:
        """Hand out messages, each with the claim that it is in. Raises as `locked`, and OSError.

        bury: stores messages in the dead-letter queue, durably.
        """
        settings = self.settings()
        if settings.paused:
            return []
        visibility_s = settings.visibility_timeout if visibility is None else visibility
        with self.locked() as progress:
            now_ns = int(self.store.disk.clock() * 1e9)
            known = self.store.known()
            self._lose_before(progress, known.first)
            progress.end_timers(now_ns)
            self._end_poison(progress, settings, bury)
            limit = min(known.end, progress.position + settings.max_window)
            chosen = Chooser(
                progress, settings.order, self.store.page, limit, settings.max_deliveries
            ).choose(count)
            if chosen.lost:
                self._lose(progress, chosen.lost)
            return self._hand_out(progress, chosen, now_ns + int(visibility_s * 1e9))

    def _hand_out(
        self, progress: Progress, chosen: Chosen, deadline_ns: int
    ) -> list[tuple[LogMessage, Hold]]:
        if chosen.offsets:
            self._announce()
        progress.note_keys(chosen.keys)
        handed: list[tuple[LogMessage, Hold]] = []
        for deliveries, offsets in chosen.offsets.items():
            offsets.sort()
            hold = progress.hand_out(offsets, deliveries + 1, CLAIMS, deadline_ns)
            handed += [(chosen.messages[offset], hold) for offset in offsets]
        if len(chosen.offsets) > 1:
            handed.sort(key=lambda one: one[0].offset)
        return handed

    def end_poison(self, bury: Callable[[list[LogMessage]], None]) -> None:
        """Bury or skip the messages whose deliveries are used up, though nobody claims."""
        settings = self.settings()
        if settings.max_deliveries is None or settings.poison == "block":
            return
        with self.locked() as progress:
            progress.end_timers(int(self.store.disk.clock() * 1e9))
            self._end_poison(progress, settings, bury)

    def _end_poison(
        self,
        progress: Progress,
        settings: ChannelSettings,
        bury: Callable[[list[LogMessage]], None],
    ) -> None:
        """Bury or skip the messages whose deliveries are used up."""
        most, how = settings.max_deliveries, settings.poison
        if most is None or how == "block":
            return
        for hold in progress.due_holds():
            if hold.deliveries >= most:
                self._end(progress, hold.ranges.copy(), how == "bury", bury)

    def _end(
        self,
        progress: Progress,
        ranges: Ranges,
        buries: bool,
        bury: Callable[[list[LogMessage]], None],
    ) -> None:
        tally = self.tally()
        if buries:
            messages = [m for a, b in ranges for m in self._messages(a, b)]
            bury(messages)
            tally.buried += ranges.count()
        else:
            tally.skipped += ranges.count()
        self._write_tally(tally)
        self._finish(progress, list(ranges))

    def _messages(self, start: int, end: int) -> Iterator[LogMessage]:
        while start < end:
            page = self.store.page(start, end - start)
            yield from (message for message in page.messages if message.offset < end)
            if page.next <= start:
                return
            start = page.next

    # -- what a channel does not get -------------------------------------------------------------

    def lose_before(self, first: int) -> int:
        """Count what retention has removed, or is about to, as lost; how many that are."""
        with self.locked() as progress:
            return self._lose_before(progress, first)

    def _lose_before(self, progress: Progress, first: int) -> int:
        if progress.position >= first:
            return 0
        return self._lose(progress, list(progress.done.gaps(progress.position, first)))

    def _lose(self, progress: Progress, ranges: list[Range]) -> int:
        tally = self.tally()
        # A crash between the two must not count them twice.
        new = Ranges(one for one in ranges)
        new.remove(0, tally.lost_through)
        lost = new.count()
        if lost:
            tally.lost += lost
            start = next(iter(new))[0]
            tally.first_lost = start if tally.first_lost is None else tally.first_lost
            tally.lost_through = max(tally.lost_through, new.end)
            self._write_tally(tally)
        self._finish(progress, ranges)
        return lost

    # -- done ------------------------------------------------------------------------------------

    def _finish(self, progress: Progress, ranges: list[Range]) -> None:
        """Write down what is done, durably, under the lock."""
        self._announce()
        work, old = progress.finished.add(ranges)
        for hold in progress.forget(ranges):
            old.append(progress.files.path(hold))
        self._sync(work)
        progress.finished.unlink(old)

    def done(self, ranges: list[Range], generation: int | None) -> int:
        """Finish messages that were handed out, durably; how many had not been done yet.

        generation: that of their claims; None: whatever it is now.

        Raises ClaimVoid, NotInFlight, Unavailable.
        """
        with self.locked() as progress:
            self._check(generation)
            new = self._unfinished(progress, ranges)
            if new:
                self._announce()
                work, old = progress.finished.add(new)
                old += [progress.files.path(hold) for hold in progress.forget(new)]
            else:
                # The process that did it may not have synced it yet.
                work, old = Work(folders={progress.finished.folder}), []
        self._sync(work)
        progress.finished.unlink(old)
        return sum(end - start for start, end in new)

    def _unfinished(self, progress: Progress, ranges: list[Range]) -> list[Range]:
        """What of some ranges is handed out and not done. Raises NotInFlight, ClaimVoid."""
        new: list[Range] = []
        for start, end in ranges:
            for gap_start, gap_end in progress.done.gaps(start, end):
                for offset in range(gap_start, gap_end):
                    if offset not in progress.owner:
                        if self._generation > 1:
                            raise ClaimVoid(self.store.disk.name, self.name)
                        raise NotInFlight(self.store.disk.name, self.name, offset)
                new.append((gap_start, gap_end))
        return new

    def done_through(self, last: int, generation: int | None) -> int:
        """Finish all that were handed out up to an offset, this one included; how many."""
        with self.locked() as progress:
            self._check(generation)
            new = ranges_of(sorted(offset for offset in progress.owner if offset <= last))
            self._announce()
            work, old = progress.finished.add(new)
            old += [progress.files.path(hold) for hold in progress.forget(new)]
        self._sync(work)
        progress.finished.unlink(old)
        return sum(end - start for start, end in new)

    def _check(self, generation: int | None) -> None:
        if generation is not None and generation != self._generation:
            raise ClaimVoid(self.store.disk.name, self.name)

    # -- claims in hand --------------------------------------------------------------------------

    def renew(self, offsets: list[int], visibility: float, generation: int | None) -> float:
        """Move the deadline of claimed messages; the new one in Unix seconds."""
        deadline = self.store.disk.clock() + visibility
        with self.locked() as progress:
            for group in self._claimed(progress, offsets, generation):
                self._announce()
                progress.renew(group, int(deadline * 1e9))
        return deadline

    def release(self, offsets: list[int], delay: float, generation: int | None) -> None:
        """Give messages up, until ``delay`` seconds are over; durably."""
        work = Work()
        with self.locked() as progress:
            until_ns = int((self.store.disk.clock() + delay) * 1e9)
            for group in self._claimed(progress, offsets, generation):
                self._announce()
                hold = progress.give_up(group, until_ns)
                path = progress.files.path(hold)
                with suppress(FileNotFoundError):
                    work.files.append(self._tree.open(path))
                work.folders.add(path.rpartition("/")[0])
        self._sync(work)

    def bury(
        self,
        offsets: list[int],
        generation: int | None,
        bury: Callable[[list[LogMessage]], None],
    ) -> None:
        """Store messages in the dead-letter queue, and finish them here; durably."""
        with self.locked() as progress:
            for group in self._claimed(progress, offsets, generation):
                self._end(progress, Ranges(ranges_of(group)), True, bury)

    def _claimed(
        self, progress: Progress, offsets: list[int], generation: int | None
    ) -> list[list[int]]:
        """Offsets that are handed out, by their holds. Raises NotInFlight, ClaimVoid."""
        self._check(generation)
        groups: dict[int, list[int]] = {}
        for offset in sorted(set(offsets)):
            hold = progress.owner.get(offset)
            if hold is None:
                raise NotInFlight(self.store.disk.name, self.name, offset)
            groups.setdefault(id(hold), []).append(offset)
        return list(groups.values())

    # -- seek ------------------------------------------------------------------------------------

    def seek(self, to: int) -> None:
        """Send the channel to an offset, durably; claims are void from now on."""
        with self.locked():
            self._announce()
            old = f"{self.folder}/{self._generation}"
            draft = f"{self.folder}/.{uuid7()}"
            make_generation(self._tree, draft, to)
            try:
                self._tree.rename(draft, f"{self.folder}/{self._generation + 1}")
            except FileExistsError:
                self.store.disk.trash(draft)
                raise Unavailable("another program sends the channel elsewhere") from None
            self.store.disk.sync_folder(self.folder)
            with suppress(OSError):
                self.store.disk.trash(old)
            self._progress = None

    def touch(self) -> None:
        """Note that the channel is in use."""
        self._tree.touch(f"{self.folder}/{LOCK}")

    def used_at(self) -> float:
        """When a message was claimed or finished last, Unix seconds."""
        found = self._tree.stat(f"{self.folder}/{LOCK}")
        if found is None:
            found = self._tree.stat(self.folder)
        return found.st_mtime if found is not None else 0.0

