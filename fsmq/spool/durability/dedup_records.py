"""Which deduplication ids were put into a fifo queue lately, and which messages they became.

The holder of the lock on the queue's sends writes a record for each such message, and syncs it
together with the message. Before the messages are shown, the line of the sends (`send_lines`) is
updated with the place up to which all records hold. A record with a later place was left by a group
that ended early: recovery decides once whether it holds, which it does if its message exists
anywhere. A message that was left without a record gets one before it is shown.

The records of one minute, by the clock of the sender, share a file, so that old records are removed
a file at a time. No part of a file is read twice. As the clocks of hosts can differ, records are
decided or removed in all files of a queue, which has a folder for them.
"""

from __future__ import annotations

import errno
import os
import re
import zlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from ..layout.digests import sha256
from ..layout.messages.message import MAX_HEADER_BYTES, dedup_of, header
from ..layout.names import facts, sequence_of
from ..layout.settings_store import SettingsStore
from ..layout.transitions import CONFIG
from ..layout.tree import Tree
from ..layout.uuids import uuid7
from .locks import NO_LOCKS, lock
from .shared_names import dedup_name, queue_of_dedup, sends_name
from .sync import Dirty

# How long an id is known after its message was stored.
KEPT_MS = 300_000
WINDOW_MS = 60_000
_AROUND = KEPT_MS // WINDOW_MS
# A record this old is no longer found by any process, even if clocks differ.
_OVER_S = 2 * KEPT_MS / 1000
# A record: the decision about it, the key, the time, the message's id; a CRC-32 of the last three.
_BYTES = 112
_KEY_BYTES = 16
_BODY, _CRC = slice(1, 103), slice(103, 111)
_CHUNK = 4096 * _BYTES
_WINDOW = re.compile("0|[1-9][0-9]{0,11}")
_OPEN, _HOLDS, _VOID = b" ", b"+", b"-"


class Record(NamedTuple):
    """A message that was put with a deduplication id, at a time in Unix milliseconds.

    decided: whether it is known to hold or to be void; if neither, its place tells.
    """

    key: bytes
    moment_ms: int
    message_id: str
    decided: bytes = _OPEN


def key_of(dedup_id: str, group: str | None, letter_of: str | None) -> bytes:
    """The key of a deduplication id in a record.

    group: given if the id counts only within this group. letter_of: the subscription, if the id
    counts only among that subscription's dead letters.
    """
    scope = "queue" if group is None else f"group\0{group}"
    of = "" if letter_of is None else f"\0{letter_of}"
    text = f"{scope}\0{dedup_id}{of}".encode(errors="surrogatepass")
    return sha256(text)[:_KEY_BYTES]


class _Window:
    """What is known of a window's file. token: its first line; no other file has the same."""

    def __init__(self, token: bytes) -> None:
        self.token = token
        self.end = _BYTES
        self.at: dict[bytes, int] = {}  # where the record of a key stands


class DedupRecords:
    """The records of one queue as this process knows them. The caller has the lock. OSError."""

    def __init__(self, tree: Tree, queue: str) -> None:
        self._tree = tree
        self._queue = queue
        self._windows: dict[int, _Window] = {}

    def forget(self) -> None:
        """Forget what was read, so that the next `learn` reads everything again."""
        self._windows.clear()

    def learn(self, now_ms: int, most: int | None = None) -> bool:
        """Read what was written since; False, and nothing, if that is more than ``most`` bytes."""
        around = _around(now_ms)
        for window in self._windows.keys() - set(around):
            del self._windows[window]
        for window in around:
            found = self._tree.stat(self._path(window))
            if found is None:
                self._windows.pop(window, None)
                continue
            known = self._windows.get(window)
            if most is not None:
                most -= found.st_size - (0 if known is None else known.end)
                if most < 0:
                    return False
            self._read(window)
        return True

    def find(self, key: bytes, now_ms: int) -> str | None:
        """The message that was put with an id less than 300 seconds ago, if there is one."""
        for window, known in self._windows.items():
            at = known.at.get(key)
            if at is None:
                continue
            with suppress(FileNotFoundError), self._opened(window) as fd:
                record = _parsed(os.pread(fd, _BYTES, at))
                if record is not None and _counts(record, key, now_ms):
                    return record.message_id
        return None

    def append(self, records: Sequence[Record], now_ms: int, dirty: Dirty) -> None:
        """Write records. ``dirty`` gets the file, and its folders if it is new to this process.

        `find` returns them from now on: call `forget` if they do not become durable.
        """
        window = now_ms // WINDOW_MS
        fd = self._create(window)
        dirty.files.append(fd)
        size = os.fstat(fd).st_size
        if size < _BYTES:
            _write(fd, f"fsmq {uuid7()}".ljust(_BYTES - 1).encode() + b"\n", 0)
            size = _BYTES
        token = os.pread(fd, _BYTES, 0)
        known = self._windows.get(window)
        if known is None or known.token != token:
            dirty.folders |= {_folder(self._tree, self._queue), self._tree.folder(CONFIG)}
            known = self._windows[window] = _Window(token)
            self._read(window)
        # A power cut may have torn the last record: round up to a multiple of a record's size.
        start = -(-size // _BYTES) * _BYTES
        _write(fd, b"".join(map(_packed, records)), start)
        for at, record in enumerate(records):
            known.at[record.key] = start + at * _BYTES
        known.end = start + len(records) * _BYTES

    def _create(self, window: int) -> int:
        while True:
            try:
                return self._tree.create(self._path(window), os.O_RDWR | os.O_CREAT)
            except FileNotFoundError:
                # The folder is created with its first file and removed with its last.
                self._tree.make_entry(_folder(self._tree, self._queue))

    def _read(self, window: int) -> None:
        with suppress(FileNotFoundError), self._opened(window) as fd:
            token = os.pread(fd, _BYTES, 0)
            known = self._windows.get(window)
            if known is None or known.token != token:
                known = self._windows[window] = _Window(token)
            for at, record in _records(fd, known.end):
                known.end = at + _BYTES
                if record.decided != _VOID:
                    known.at[record.key] = at

    @contextmanager
    def _opened(self, window: int) -> Iterator[int]:
        fd = self._tree.open(self._path(window))
        try:
            yield fd
        finally:
            os.close(fd)

    def _path(self, window: int) -> str:
        return _path(self._tree, self._queue, window)


class Settled(NamedTuple):
    """Which of the messages in question have a void record, and which have one that holds."""

    void: set[str]
    known: set[str]


def settle(
    tree: Tree,
    queue: str,
    settled: int,
    left: Container[str],
    stands: Callable[[str], bool],
) -> Settled:
    """Decide, durably, which records with places after ``settled`` hold.

    left: messages that will be shown. A record holds if its message is one, or ``stands`` anywhere.

    The caller has the lock, no message of the queue is being shown, and the caller syncs
    ``config/``. Raises OSError.
    """
    done = Settled(set(), set())
    for window in _windows(tree, queue):
        try:
            fd = tree.open(_path(tree, queue, window), os.O_RDWR)
        except FileNotFoundError:
            continue
        try:
            is_sure = True
            for at, record in _records(fd, _BYTES):
                one, decided = record.message_id, record.decided
                if decided == _OPEN and (sequence_of(one) or 0) > settled:
                    decided = _HOLDS if one in left or stands(one) else _VOID
                    # Rewrite the whole record: after a failed sync the kernel no longer knows which
                    # of its bytes are not on disk.
                    _write(fd, _packed(record._replace(decided=decided)), at)
                is_sure &= decided == _OPEN
                if one in left:
                    (done.void if decided == _VOID else done.known).add(one)
            if not is_sure:  # the writer may have synced neither data nor names
                os.fsync(fd)
                tree.sync_folder(_folder(tree, queue))
        finally:
            os.close(fd)
    return done


def confirm(tree: Tree, queue: str) -> None:
    """Mark, durably, all records that are not void as holding, whatever their places."""
    settle(tree, queue, 0, (), lambda one: True)


def restore_records(tree: Tree, queue: str, paths: Mapping[str, str], now_ms: int) -> None:
    """Write, durably, the records of messages that have a deduplication id but no record.

    A sync that a crash interrupted may have stored a message but not its record.

    paths: those of the messages, by id. The caller has synced the names of the files. Raises
    OSError.
    """
    scope = SettingsStore(tree).get(queue).dedup_scope
    found = []
    for message_id, path in paths.items():
        raw = _beginning(tree, path)
        group, dedup_id, _ = header(raw).own
        created_ms = facts(message_id).created_ms
        if dedup_id is None or created_ms is None or now_ms - created_ms > KEPT_MS:
            continue
        key = key_of(dedup_id, (group or "") if scope == "group" else None, dedup_of(raw))
        found.append(Record(key, min(now_ms, created_ms), message_id))
    if found:
        dirty = Dirty()
        try:
            DedupRecords(tree, queue).append(found, now_ms, dirty)
            for fd in dirty.files:
                os.fsync(fd)
            for folder in dirty.folders:
                tree.sync_folder(folder)
        finally:
            dirty.close()


def _beginning(tree: Tree, path: str) -> bytes:
    """The first bytes of a message's file, header block included; b"" if it is gone. OSError."""
    try:
        fd = tree.open(path)
    except FileNotFoundError:
        return b""
    try:
        return os.pread(fd, MAX_HEADER_BYTES, 0)
    finally:
        os.close(fd)


def forget_records(tree: Tree, queue: str) -> None:
    """Remove all records of a queue, and their folder; the caller syncs ``config/``. OSError."""
    for window in _windows(tree, queue):
        tree.unlink(_path(tree, queue, window))
    tree.sync_folder(_folder(tree, queue))
    tree.remove_folder(_folder(tree, queue))


def remove_old_records(tree: Tree) -> int:
    """Remove expired records of all queues; returns the number of files. OSError."""
    names = tree.names(tree.folder(CONFIG))
    removed, first = 0, None
    for queue in filter(None, map(queue_of_dedup, names)):
        try:
            removed += remove_old(tree, queue)
        except OSError as error:
            first = first or error  # an error of one queue must not stop the others
    if first is not None:
        raise first
    return removed


def remove_old(tree: Tree, queue: str) -> int:
    """The same for one queue; removes nothing while someone sends. Raises OSError."""
    # Touch the folder to read the clock that sets the files' times: this host's can differ.
    folder = _folder(tree, queue)
    found = tree.stat(folder) if tree.touch(folder) else None
    if found is None or not (old := old_records(tree, queue, found.st_mtime)):
        return 0
    try:
        held = lock(tree, tree.folder(CONFIG, sends_name(queue)), 0)
    except OSError as error:
        if error.errno not in (errno.ENOENT, *NO_LOCKS):
            raise
        held = None  # nobody sends: the queue has gone
    else:
        if held is None:
            return 0
    try:
        removed = sum(map(tree.unlink, old))
        tree.remove_folder(folder)
    finally:
        if held is not None:
            held.unlock()
    return removed


def old_records(tree: Tree, queue: str, now: float) -> list[str]:
    """The files whose records have all expired; ``now`` is in Unix seconds. OSError."""
    paths = [_path(tree, queue, window) for window in _windows(tree, queue)]
    return [path for path in paths if (at := tree.stat(path)) and now - at.st_mtime > _OVER_S]


def _around(now_ms: int) -> range:
    """The windows that can contain unexpired records, going by a clock."""
    window = now_ms // WINDOW_MS
    return range(window - _AROUND, window + _AROUND + 1)


def _windows(tree: Tree, queue: str) -> list[int]:
    """All windows of a queue, the oldest first. Only the holder of the lock changes them."""
    return sorted(int(n) for n in tree.names(_folder(tree, queue)) if _WINDOW.fullmatch(n))


def _folder(tree: Tree, queue: str) -> str:
    return tree.folder(CONFIG, dedup_name(queue))


def _path(tree: Tree, queue: str, window: int) -> str:
    return f"{_folder(tree, queue)}/{window}"


def _counts(record: Record, key: bytes, now_ms: int) -> bool:
    if record.decided == _VOID or record.key != key:
        return False
    # If the clock is set back further than that, the id is forgotten: keeping it until the clock
    # catches up would drop new messages as duplicates.
    return abs(now_ms - record.moment_ms) <= KEPT_MS


def _packed(record: Record) -> bytes:
    text = f"{record.key.hex()} {record.moment_ms:013d} {record.message_id:<54} ".encode()
    return record.decided + text + f"{zlib.crc32(text):08x}\n".encode()


def _parsed(line: bytes) -> Record | None:
    """The record of a line; None where a crash has torn it."""
    try:
        if len(line) != _BYTES or int(line[_CRC], 16) != zlib.crc32(line[_BODY]):
            return None
        key, moment, message_id = line[_BODY].decode().split()
        return Record(bytes.fromhex(key), int(moment), message_id, line[:1])
    except ValueError:
        return None


def _records(fd: int, start: int) -> Iterator[tuple[int, Record]]:
    """The records of a file from an offset on, each with its own offset."""
    while chunk := os.pread(fd, _CHUNK, start):
        for at in range(0, len(chunk), _BYTES):
            record = _parsed(chunk[at : at + _BYTES])
            if record is not None:
                yield start + at, record
        start += _CHUNK


def _write(fd: int, content: bytes, at: int) -> None:
    while content:
        done = os.pwrite(fd, content, at)
        content, at = content[done:], at + done
