"""Which deduplication ids were put into a fifo queue lately, and which messages they became.

Who has the lock of the queue's sends writes a record for each such message, and syncs it with the
message. The line of the sends (`send_lines`) then says up to which place all records hold, before
the messages are shown. A record behind that was left by a group that ended early: recovery decides,
once, whether it holds: if its message is somewhere. And a message that was left without a record
gets one before it is shown.

The records of one minute share a file, so that old ones go as a whole. No file is read twice.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from ..layout.digests import sha256
from ..layout.message import MAX_HEADER_BYTES, NO_LINES, OwnLines, header
from ..layout.names import dedup_name, facts, sequence_of, split_dedup
from ..layout.settings_store import SettingsStore
from ..layout.transitions import CONFIG
from ..layout.tree import Tree
from ..layout.uuids import uuid7
from .sync import Work

# How long an id is known after its message was stored.
KEPT_MS = 300_000
WINDOW_MS = 60_000
_AROUND = KEPT_MS // WINDOW_MS
# A record: what was decided of it, the key, the time, the message's id, a CRC-32 of all that.
_BYTES = 112
_KEY_BYTES = 16
_BODY, _CRC = slice(1, 103), slice(103, 111)
_CHUNK = 4096 * _BYTES
_OPEN, _HOLDS, _VOID = b" ", b"+", b"-"


class Record(NamedTuple):
    """A message that was put with a deduplication id, at a time in Unix milliseconds.

    decided: whether it is known to hold, or to be void; else the place says so.
    """

    key: bytes
    moment_ms: int
    message_id: str
    decided: bytes = _OPEN


def key_of(dedup_id: str, group: str | None) -> bytes:
    """What a record has for a deduplication id; group: where it counts within its group alone."""
    scope = "queue" if group is None else f"group\0{group}"
    text = f"{scope}\0{dedup_id}".encode(errors="surrogatepass")
    return sha256(text)[:_KEY_BYTES]


class _Window:
    """What is known of a window's file. token: its first line; no other file has the same."""

    def __init__(self, token: bytes) -> None:
        self.token = token
        self.end = _BYTES
        self.at: dict[bytes, int] = {}  # where the record of a key stands


class DedupRecords:
    """The records of one queue as this process knows them. For who has the lock. Raises OSError."""

    def __init__(self, tree: Tree, queue: str) -> None:
        self._tree = tree
        self._queue = queue
        self._windows: dict[int, _Window] = {}

    def forget(self) -> None:
        """Read all that there is once more, when it is asked for."""
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

    def append(self, records: Sequence[Record], now_ms: int, work: Work) -> None:
        """Write records. ``work`` gets the file, and its folder if the file is new to this process.

        They are found from now on: `forget` them if they do not become durable.
        """
        window = now_ms // WINDOW_MS
        fd = self._tree.create_with(self._path(window), os.O_RDWR | os.O_CREAT)
        work.files.append(fd)
        size = os.fstat(fd).st_size
        if size < _BYTES:
            _write(fd, f"fsmq {uuid7()}".ljust(_BYTES - 1).encode() + b"\n", 0)
            size = _BYTES
        token = os.pread(fd, _BYTES, 0)
        known = self._windows.get(window)
        if known is None or known.token != token:
            work.folders.add(self._tree.folder(CONFIG))
            known = self._windows[window] = _Window(token)
            self._read(window)
        # A power cut may have torn the last one.
        start = -(-size // _BYTES) * _BYTES
        _write(fd, b"".join(map(_packed, records)), start)
        for at, record in enumerate(records):
            known.at[record.key] = start + at * _BYTES
        known.end = start + len(records) * _BYTES

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
    """Of some messages: those whose records are void, and those that have one that holds."""

    void: set[str]
    known: set[str]


def settle(
    tree: Tree,
    queue: str,
    now_ms: int,
    settled: int,
    left: Container[str],
    stands: Callable[[str], bool],
) -> Settled:
    """Decide, durably, which records behind a place hold.

    left: messages that will be shown; a record holds, too, if its message ``stands`` anywhere.

    For who has the lock, while no message of the queue is being shown. Raises OSError.
    """
    done = Settled(set(), set())
    for window in _around(now_ms):
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
                    # All of it: of what a failed sync has left unwritten the kernel knows no more.
                    _write(fd, _packed(record._replace(decided=decided)), at)
                is_sure &= decided == _OPEN
                if one in left:
                    (done.void if decided == _VOID else done.known).add(one)
            if not is_sure:  # who decided may not have synced it
                os.fsync(fd)
        finally:
            os.close(fd)
    return done


def confirm(tree: Tree, queue: str, now_ms: int) -> None:
    """Note, durably, that all records hold whatever the places say that are not void."""
    settle(tree, queue, now_ms, 0, (), lambda one: True)


def restore_records(tree: Tree, queue: str, paths: Mapping[str, str], now_ms: int) -> None:
    """Write down durably what some messages have for deduplication ids, where they lack a record.

    A sync that a crash cut off may have been over for a message, and not for its record.

    paths: of the messages, by their ids. The names of the files are to be synced. Raises OSError.
    """
    scope = SettingsStore(tree).get(queue).dedup_scope
    found = []
    for message_id, path in paths.items():
        group, dedup_id, _ = _own_lines(tree, path)
        created_ms = facts(message_id).created_ms
        if dedup_id is None or created_ms is None or now_ms - created_ms > KEPT_MS:
            continue
        key = key_of(dedup_id, (group or "") if scope == "group" else None)
        found.append(Record(key, min(now_ms, created_ms), message_id))
    if found:
        work = Work()
        try:
            DedupRecords(tree, queue).append(found, now_ms, work)
            for fd in work.files:
                os.fsync(fd)
        finally:
            work.close()


def _own_lines(tree: Tree, path: str) -> OwnLines:
    try:
        fd = tree.open(path)
    except FileNotFoundError:
        return NO_LINES
    try:
        return header(os.pread(fd, MAX_HEADER_BYTES, 0)).own
    finally:
        os.close(fd)


def forget_records(tree: Tree, queue: str, now_ms: int) -> None:
    """Remove all records of a queue that may still count. Raises OSError."""
    for window in _around(now_ms):
        tree.unlink(_path(tree, queue, window))


def remove_old_records(tree: Tree, now_ms: int) -> int:
    """Remove the records of all queues that do not count any more; how many files. OSError."""
    old = [
        name
        for name in tree.names(tree.folder(CONFIG))
        if (parts := split_dedup(name)) is not None and is_over(parts[1], now_ms)
    ]
    return sum(tree.unlink(tree.folder(CONFIG, name)) for name in old)


def is_over(window: int, now_ms: int) -> bool:
    """Whether no record of a window counts any more, with room for clocks that differ."""
    return window not in range(*_limits(now_ms, 2 * _AROUND))


def _around(now_ms: int) -> range:
    return range(*_limits(now_ms, _AROUND))


def _limits(now_ms: int, around: int) -> tuple[int, int]:
    window = now_ms // WINDOW_MS
    return window - around, window + around + 1


def _path(tree: Tree, queue: str, window: int) -> str:
    return tree.folder(CONFIG, dedup_name(queue, window))


def _counts(record: Record, key: bytes, now_ms: int) -> bool:
    if record.decided == _VOID or record.key != key:
        return False
    # A clock that is set by more forgets: to keep an id until the clock is there again would lose
    # messages that only look alike.
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
    """The records of a file from one on, with where they stand."""
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
