"""The rules for one entry of ``new/``, of a queue's folder, or of ``delay/``.

Each rule takes a name and its lstat, and returns the fault or None. It is called twice, with a
pause in between, so it keeps no state; a file can be gone by the time the rule opens it.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache
from math import inf

from ..context import Context
from ..durability.dotnames import LATE_AFTER_S, is_being_written, recover_one
from ..durability.left_files import remove_scratch
from ..durability.locks import is_reservation, is_stale
from ..durability.send_lines import Recovery
from ..durability.settings_lock import settings_held
from ..durability.unfinished import is_complete
from ..errors import Unavailable
from ..index.ready import Ready
from ..layout.filesystem import user_name
from ..layout.messages.compression import ZSTD_MAGIC, decompress
from ..layout.messages.message import MAX_HEADER_BYTES, header
from ..layout.names import (
    MAX_FILE_NAME_BYTES,
    Facts,
    entry,
    facts,
    is_id,
    is_scratch,
    split_entry,
    split_staged,
    split_taken,
)
from ..layout.settings import MAX_DELAY_S
from ..layout.settings_store import SettingsStore
from ..layout.stamps import Stamps
from ..layout.topics.topics import Topics
from ..layout.transitions import DELAY, NEW, QUEUES, State
from ..layout.tree import Tree
from ..verbs.latch import PATIENCE_S, latch
from .report import Fault, Finding, Kind, Severity

_CLOCK_SLACK_S = 3600.0
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Inspection:
    """The input of the rules.

    offline: no other process uses the tree. user: whom all files must belong to; 0: anybody.
    """

    tree: Tree
    stamps: Stamps
    clock: Callable[[], float]
    offline: bool = False
    bodies: bool = False
    create_queues: bool = False
    user: int = 0

    def foreign(
        self, path: str, found: os.stat_result, kind: Kind = Kind.OTHER_OWNER
    ) -> Fault | None:
        """The fault of a file or folder whose owner is not the user of the programs."""
        if self.user in (0, found.st_uid):
            return None
        theirs, ours = user_name(found.st_uid), user_name(self.user)
        what = "cannot be claimed" if kind is Kind.UNCLAIMABLE else "cannot be used"
        reason = f"{what}: it belongs to {theirs}, and the spool to {ours}; chown it"
        finding = Finding(kind, Severity.ERROR, path, reason)
        return Fault(finding, group=path.rpartition("/")[0])

    def now(self) -> float:
        """The time from which ages are computed: offline everything is old enough."""
        return inf if self.offline else self.clock()

    def context(self) -> Context:
        """The context for verbs."""
        tree = self.tree
        return Context(tree, self.stamps, SettingsStore(tree), Ready(tree), Topics(tree))

    def make_queue(self, queue: str) -> bool:
        """Create a queue that is missing; False while another process creates or deletes it."""
        with suppress(Unavailable), settings_held(self.tree, queue):
            self.tree.make_folder(QUEUES, queue)
        return self.tree.has_queue(queue)

    def is_late(self, found: os.stat_result) -> bool:
        """Whether a mover would have removed or promoted this file by now."""
        return self.now() - found.st_ctime >= LATE_AFTER_S


def kind_of_file(mode: int) -> str:
    """The kind of a directory entry, in words."""
    kinds = [
        (stat.S_ISREG, "a file"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISSOCK, "a socket"),
    ]
    return next((words for test, words in kinds if test(mode)), "a device")


def hidden(inspection: Inspection, path: str, name: str, found: os.stat_result) -> Fault | None:
    """A dot-name of an unknown kind, or a file that a killed probe left."""
    if name.startswith(".nfs") or not inspection.is_late(found):
        return None
    if is_scratch(name):
        reason = "was left by a probe that was killed"
        found_here = Finding(Kind.LEFTOVER, Severity.WARNING, path, reason, "remove it")
        return Fault(found_here, lambda: remove_scratch(inspection.tree, path))
    reason = "is a hidden file that fsmq did not write: nobody will deliver it; move it away"
    return Fault(Finding(Kind.HIDDEN, Severity.WARNING, path, reason))


def stray(path: str, reason: str) -> Fault:
    """A file in a message folder that is not a message; repairs never touch it."""
    return Fault(Finding(Kind.STRAY, Severity.ERROR, path, reason))


class MessageRules:
    """The rules for messages in their three states."""

    def __init__(self, inspection: Inspection) -> None:
        self._inspection = inspection
        self._tree = inspection.tree
        store = SettingsStore(self._tree)
        self._is_fifo = cache(lambda queue: store.get(queue).fifo)

    def new(self, name: str, found: os.stat_result) -> Fault | None:
        """An entry of ``new/``."""
        path = self._tree.folder(NEW, name)
        if name[0] == ".":
            return self._staged(path, name, found)
        parts = split_entry(name)
        if parts is None or not stat.S_ISREG(found.st_mode):
            return self._no_entry(path, found)
        return self._unknown_queue(path, *parts) or self._message(path, parts[1], found)

    def delay(self, name: str, found: os.stat_result) -> Fault | None:
        """An entry of ``delay/``."""
        path = self._tree.folder(DELAY, name)
        if name[0] == ".":
            return hidden(self._inspection, path, name, found)
        parts = split_entry(name)
        if parts is None or not stat.S_ISREG(found.st_mode):
            return self._no_entry(path, found)
        return (
            self._unknown_queue(path, *parts)
            or self._far_timer(path, parts[1], found)
            or self._message(path, parts[1], found)
        )

    def ready(self, queue: str, name: str, found: os.stat_result) -> Fault | None:
        """An entry of a queue's folder."""
        path = self._tree.folder(QUEUES, f"{queue}/{name}")
        if name[0] == ".":
            return hidden(self._inspection, path, name, found)
        if not is_id(name):
            return stray(path, "has a colon in its name, which no id can have: rename it")
        if not stat.S_ISREG(found.st_mode):
            return stray(path, f"is {kind_of_file(found.st_mode)}, not a message: move it away")
        length = len(os.fsencode(entry(queue, name)))
        if length > MAX_FILE_NAME_BYTES:
            reason = f"cannot be claimed: with its queue its name has {length} bytes; rename it"
            return Fault(Finding(Kind.UNCLAIMABLE, Severity.ERROR, path, reason))
        return self._message(path, name, found) or self._out_of_order(path, queue, name)

    def _out_of_order(self, path: str, queue: str, name: str) -> Fault | None:
        if facts(name).created_ms is not None or not self._is_fifo(queue):
            return None
        reason = f"has no place in the order of the fifo queue {queue!r}: put it there instead"
        return Fault(Finding(Kind.NO_PLACE, Severity.WARNING, path, reason), group=queue)

    def _no_entry(self, path: str, found: os.stat_result) -> Fault:
        if stat.S_ISREG(found.st_mode):
            return stray(
                path, "is not named <queue>:<id>, so nobody will ever deliver it: rename it"
            )
        return stray(path, f"is {kind_of_file(found.st_mode)}, not a message: move it away")

    def _unknown_queue(self, path: str, queue: str, message_id: str) -> Fault | None:
        if self._tree.has_queue(queue):
            return None
        reason = f"belongs to queue {queue!r}, which does not exist: create it or move the file"
        creates = self._inspection.create_queues
        finding = Finding(
            Kind.UNKNOWN_QUEUE,
            Severity.ERROR,
            path,
            reason,
            "create the queue" if creates else None,
        )
        mend = (lambda: self._inspection.make_queue(queue)) if creates else None
        return Fault(finding, mend, group=queue)

    def _message(self, path: str, message_id: str, found: os.stat_result) -> Fault | None:
        known = facts(message_id)
        if self._inspection.bodies and (known.headed or known.packed):
            return self._body(path, known)
        return None

    def _far_timer(self, path: str, message_id: str, found: os.stat_result) -> Fault | None:
        stamps = self._inspection.stamps
        stamp = stamps.decode(message_id, found.st_mtime_ns)
        now = self._inspection.clock()
        if stamp is None or stamp.deadline_ms / 1000 <= now + MAX_DELAY_S + _CLOCK_SLACK_S:
            return None
        days = (stamp.deadline_ms / 1000 - now) / 86_400
        reason = f"is hidden for {days:,.0f} days: was a clock wrong?"
        finding = Finding(Kind.FAR_TIMER, Severity.ERROR, path, reason, "end its timer now")
        ends_now = stamps.encoded(message_id, stamp._replace(deadline_ms=int(now * 1000)))
        return Fault(finding, lambda: self._stamp(path, found, ends_now))

    def _stamp(self, path: str, seen: os.stat_result, mtime_ns: int) -> bool:
        """Set the stamp of a message, unless a process has acted on it since ``seen``."""
        context = self._inspection.context()
        latched = latch(context, path, PATIENCE_S)
        if latched is None:
            return False
        with closing(latched):
            now = latched.found
            is_it = (now.st_ino, now.st_mtime_ns) == (seen.st_ino, seen.st_mtime_ns)
            return is_it and latched.stamp(context, path, mtime_ns)

    # -- dot-names of new/ -----------------------------------------------------------------------

    def _staged(self, path: str, name: str, found: os.stat_result) -> Fault | None:
        inspection = self._inspection
        if is_reservation(name) and stat.S_ISREG(found.st_mode):
            if not inspection.is_late(found) or not is_stale(self._tree, name):
                return None
            reason = "was left by a put that died; it blocks nobody"
            return self._left(Kind.RESERVATION, Severity.WARNING, path, reason, "remove it")
        if not stat.S_ISREG(found.st_mode):
            return hidden(inspection, path, name, found)
        if (taken := split_taken(name)) is not None:
            return self._taken(path, name, *taken, found)
        parts = split_staged(name)
        if parts is None:
            return hidden(inspection, path, name, found)
        target, _ = parts
        if not inspection.is_late(found) or is_being_written(self._tree, name, inspection.now()):
            return None
        if not is_complete(self._tree, name):
            if self._tree.stat(path) is None:
                return None
            reason = f"was never finished: its {found.st_size} bytes have another checksum"
            return self._left(Kind.TORN, Severity.WARNING, path, reason, "remove it")
        return self._complete(path, target, found)

    def _taken(
        self, path: str, name: str, queue: str, message_id: str, found: os.stat_result
    ) -> Fault | None:
        """A message that a program took away to read it."""
        inspection = self._inspection
        if not inspection.is_late(found) or is_being_written(self._tree, name, inspection.now()):
            return None
        standing = self._standing(path, queue, message_id, found, "was taken away")
        if standing is not None or self._tree.stat(path) is None:
            return standing
        reason = "was taken away by a program that died: is mq-mover running?"
        return self._left(Kind.COMPLETE, Severity.ERROR, path, reason, "bring it back")

    def _complete(self, path: str, target: str, found: os.stat_result) -> Fault | None:
        queue, _, message_id = target.rpartition(":")
        standing = self._standing(path, queue, message_id, found, "is complete")
        if standing is not None or self._tree.stat(path) is None:
            return standing  # a fault, or promoted just now
        reason = "is a complete message that nobody promoted: is mq-mover running?"
        return self._left(Kind.COMPLETE, Severity.ERROR, path, reason, "promote it")

    def _standing(
        self, path: str, queue: str, message_id: str, found: os.stat_result, what: str
    ) -> Fault | None:
        """The fault if a dot-name's message is in its queue already, as this or another file."""
        for state in (State.NEW, State.READY, State.DELAY):
            other = self._tree.path(state, queue, message_id)
            standing = self._tree.stat(other)
            if standing is None:
                continue
            if self._tree.stat(path) is None:
                return None  # promoted just now
            reason = f"{what}, and {other} has the same id"
            if standing.st_ino == found.st_ino:
                finding = Finding(Kind.TWO_NAMES, Severity.ERROR, path, reason, "unlink it here")
                return Fault(finding, lambda: self._tree.unlink(path))
            reason += ": compare them and keep one"
            return Fault(Finding(Kind.DUPLICATE, Severity.ERROR, path, reason))
        return None

    def _left(self, kind: Kind, severity: Severity, path: str, reason: str, repair: str) -> Fault:
        name = path.rpartition("/")[2]

        def mend() -> bool:
            staged = split_staged(name)
            parts = None if staged is None else split_entry(staged[0])
            done = None if parts is None else _recover_fifo(self._inspection, parts[0])
            if done is not None:
                return done
            return any(recover_one(self._tree, name, self._inspection.now(), at_start=True))

        return Fault(Finding(kind, severity, path, reason, repair), mend)

    # -- bodies ----------------------------------------------------------------------------------

    def _body(self, path: str, known: Facts) -> Fault | None:
        try:
            fd = self._tree.open(path)
        except FileNotFoundError:
            return None
        try:
            problem = _problem_of_body(fd, known)
        finally:
            os.close(fd)
        if problem is None:
            return None
        reason = f"{problem}; clients get the file's bytes as they are"
        return Fault(Finding(Kind.BAD_BODY, Severity.WARNING, path, reason))


def _recover_fifo(inspection: Inspection, queue: str) -> bool | None:
    """Recover what dead producers of a fifo queue left; None for other queues. Raises OSError."""
    tree = inspection.tree
    if not tree.has_queue(queue) or not SettingsStore(tree).get(queue).fifo:
        return None
    return any(Recovery(tree, inspection.stamps, queue, inspection.clock()).try_it())


def _problem_of_body(fd: int, known: Facts) -> str | None:
    offset = 0
    if known.headed:
        start = os.pread(fd, MAX_HEADER_BYTES, 0)
        offset = header(start).end
        if not offset:
            return "is announced as having a header block (.h), but has no readable one"
    return _problem_of_packed(fd, offset) if known.packed else None


def _problem_of_packed(fd: int, offset: int) -> str | None:
    if os.pread(fd, len(ZSTD_MAGIC), offset) == ZSTD_MAGIC:
        packed = os.pread(fd, os.fstat(fd).st_size, offset)
        if decompress(packed) is None:
            return "is announced as compressed (.z), but is not, ends too early, or is too large"
        return None
    unpacker = zlib.decompressobj()
    try:
        while chunk := os.pread(fd, _CHUNK, offset):
            offset += len(chunk)
            unpacker.decompress(chunk, _CHUNK)
            while unpacker.unconsumed_tail:
                unpacker.decompress(unpacker.unconsumed_tail, _CHUNK)
    except zlib.error:
        return "is announced as compressed (.z), but is not"
    return None if unpacker.eof else "is announced as compressed (.z), but ends too early"
