"""The messages of a spool in use: each is copied once, wherever it is moved meanwhile.

All folders are watched and then listed once. What has moved since then is copied afterwards:
docs/decisions/0037-a-copy-of-a-spool-in-use.md says why nothing can slip through.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple

from ..durability.ids import leads_to, link_path
from ..durability.unfinished import timed_seal
from ..errors import Unavailable
from ..layout.messages import dead_letter
from ..layout.messages.given_ids import link_name, read_given
from ..layout.names import (
    entry,
    is_id,
    is_queue,
    seal_of,
    siblings,
    split_entry,
    split_staged,
    split_taken,
)
from ..layout.stamps import Stamps
from ..layout.transitions import DELAY, NEW, QUEUES, SCHEDULES
from .copies import CHUNK_BYTES, read
from .open_spool import Opened, Source
from .renames import Renames
from .small_files import SmallFiles

# How often all is listed: again if events were lost; without events until nothing new is found.
_LISTINGS, _LEAST, _MOST = 20, 2, 5
_TRIES = 100_000
# So many files are copied between two looks at the events: the kernel keeps 16,384 of them.
_TOGETHER = 16


class Message(NamedTuple):
    """Where a file goes in the copy. queue: empty for one that is in no queue yet."""

    path: str
    queue: str = ""
    id: str = ""
    staged: bool = False


class InUse:
    """Copies the messages. Methods raise OSError, Unavailable.

    seen: called now and then: how many messages are copied, and how many there are, or were.
    """

    def __init__(self, source: Source, small: SmallFiles, seen: Callable[[int, int], None]) -> None:
        self._source = source
        self._tree = source.tree
        self._copy = source.copy
        self._small = small
        self._seen = seen
        self._renames = Renames(self._tree)
        # By inode, the hash of the path in the copy.
        self._copied: dict[int, int] = {}
        # The inodes of files that gave their place in the copy to others, and are not copied anew
        # yet; and of those for which a further listing looks: None if it looks for all.
        self._displaced: set[int] = set()
        self._wanted: set[int] | None = None
        self._homeless: list[tuple[str, int]] = []
        self._steps = 0
        self._all = 0
        self._now_ms = int(time.time() * 1000)

    def take(self) -> None:
        """Copy all messages."""
        try:
            for folder in (NEW, DELAY, QUEUES, SCHEDULES):
                self._renames.watch(folder)
            for queue in self._tree.queues():
                self._take_queue(queue)
            self._small.take_jobs(self._renames.watch)
            queues = [f"{QUEUES}/{queue}" for queue in self._small.queues]
            self._all = sum(len(self._tree.names(folder)) for folder in (NEW, DELAY, *queues))
            self._copy.breathe = self._renames.read
            if not self._take_with_events():
                self._take_without_events()
        finally:
            self._copy.breathe = lambda: None
            self._renames.close()

    def _take_queue(self, queue: str) -> bool:
        if not is_queue(queue) or not self._small.take_queue(queue):
            return False
        self._renames.watch(f"{QUEUES}/{queue}")
        return True

    # -- all of them -----------------------------------------------------------------------------

    def _take_with_events(self) -> bool:
        """False if not all folders can be watched."""
        for _ in range(_LISTINGS):
            if not self._renames.is_watching:
                return False
            self._renames.begin()
            self._list_all()
            self._renames.end()
            self._follow()
            if self._renames.is_watching and not self._renames.lost:
                self._forget_homeless()
                # A file that was displaced may be where all was listed before. If the next listing
                # does not find it, it was removed.
                self._wanted, self._displaced = self._displaced, set()
                if not self._wanted:
                    return True
        raise Unavailable("the spool changes faster than it can be copied: try again later")

    def _take_without_events(self) -> None:
        self._wanted = None
        for listing in range(_MOST):
            before = len(self._copied)
            for queue in self._tree.queues():
                self._take_queue(queue)
            self._list_all()
            if listing >= _LEAST and len(self._copied) == before:
                break
        self._forget_homeless()

    def _list_all(self) -> None:
        self._list(NEW)
        self._list(SCHEDULES)
        for part in self._small.parts:
            self._list(part)
        for queue in sorted(self._small.queues):
            self._list(f"{QUEUES}/{queue}")
        self._list(DELAY)

    def _list(self, folder: str) -> None:
        for found in self._tree.walk(folder):
            if self._is_missing(found.inode()):
                self._look(f"{folder}/{found.name}")
            self._steps += 1
            if self._steps % _TOGETHER == 0:
                self._take_in()

    def _take_in(self) -> None:
        """Take in what has moved; list queues that were made just now."""
        self._seen(len(self._copied), max(self._all, len(self._copied)))
        self._renames.read()
        for queue in self._renames.new_queues():
            if self._take_queue(queue):
                self._list(f"{QUEUES}/{queue}")

    def _follow(self) -> None:
        """Copy what has moved, wherever it is by now."""
        moved = self._renames.moved
        for _ in range(_TRIES):
            missing = {}
            for path, arrival in list(moved.items()):
                if not self._look(path):
                    missing[path] = arrival
                elif moved.get(path) == arrival:
                    del moved[path]
            # A listing waits for renames in its folder, and so for their events.
            for folder in {path.rpartition("/")[0] for path in missing}:
                next(iter(self._tree.walk(folder)), None)
            self._take_in()
            for path, arrival in missing.items():
                if moved.get(path) == arrival:
                    del moved[path]  # no event says where it went: it was removed
            if not moved:
                return
        raise Unavailable("messages move faster than they can be copied: try again later")

    # -- one of them -----------------------------------------------------------------------------

    def _look(self, path: str) -> bool:
        """Copy the file at a path, if that is a message; False if it is gone."""
        message = self._message(path)
        if message is None:
            return True
        with self._source.opened(path) as opened:
            if opened is None:
                return path in self._copy.amounts.left_out
            if self._is_missing(opened.found.st_ino):
                self._take_opened(message, opened, path)
        return True

    def _is_missing(self, inode: int) -> bool:
        """Whether the copy lacks a file, as far as that is looked for."""
        if self._wanted is not None and inode not in self._wanted:
            return False
        return inode not in self._copied

    def _message(self, path: str) -> Message | None:
        """What a path is in the copy; None if it has no place there."""
        folder, _, name = path.rpartition("/")
        if name[0] == ".":
            return self._unfinished(folder, name)
        if folder.startswith(f"{QUEUES}/"):
            queue = folder.rpartition("/")[2]
            return Message(path, queue, name) if is_id(name) else Message(path)
        parts = split_entry(name) if folder in (NEW, DELAY) else None
        if folder == SCHEDULES:
            return None  # copied with the small files
        return Message(path) if parts is None else Message(path, *parts)

    def _unfinished(self, folder: str, name: str) -> Message | None:
        if folder == SCHEDULES:
            return Message(f"{folder}/{name}") if self._small.is_owed(name) else None
        if folder != NEW:
            return None
        taken = split_taken(name)
        if taken is not None:
            return Message(f"{DELAY}/{entry(*taken)}", *taken)
        staged = split_staged(name)
        parts = split_entry(staged[0]) if staged is not None else None
        return Message("", *parts, staged=True) if parts is not None else None

    def _take_opened(self, message: Message, opened: Opened, path: str) -> None:
        if message.staged:
            if not _is_whole(opened, path) or _has_no_link(opened, message):
                return
            message = self._shown(message, opened.found)
            if any(self._standing(message.queue, one) for one in siblings(message.id)):
                return
        if not message.queue:
            if self._copy.inode(message.path) is None:
                self._copy.add(opened.fd, opened.found, message.path)
            self._copied[opened.found.st_ino] = hash(message.path)
        else:
            if not self._take_queue(message.queue):
                self._homeless.append((path, opened.found.st_ino))
                if message.path.startswith(QUEUES):
                    message = message._replace(path=f"{NEW}/{entry(message.queue, message.id)}")
            self._place(message, opened)

    def _shown(self, message: Message, found: os.stat_result) -> Message:
        """Where recovery would bring a complete dot-name: order holds before any recovery."""
        queue, name = message.queue, message.id
        stamp = Stamps(False).decode(name, found.st_mtime_ns)
        if stamp is not None and stamp.deliveries == 0 and stamp.deadline_ms > self._now_ms:
            return message._replace(path=f"{DELAY}/{entry(queue, name)}")
        if self._take_queue(queue):
            return message._replace(path=f"{QUEUES}/{queue}/{name}")
        return message._replace(path=f"{NEW}/{entry(queue, name)}")

    # -- their places in the copy ----------------------------------------------------------------

    def _standing(self, queue: str, message_id: str) -> list[str]:
        """Where the copy has a message of an id."""
        return [path for path in _places(queue, message_id) if self._copy.inode(path) is not None]

    def _place(self, message: Message, opened: Opened) -> None:
        older = self._standing(message.queue, message.id)
        for path in older:
            self._displace(message.queue, path)
        if older:
            self._place_all(message)
        if not self._add(message, message.path, opened):
            self._displaced.add(opened.found.st_ino)  # it has just moved away

    def _place_all(self, message: Message) -> None:
        """Two files have one id: what is in the spool now is in the copy, in its place."""
        for path in _places(message.queue, message.id):
            with self._source.opened(path) as now:
                if now is not None:
                    self._add(message, path, now)

    def _add(self, message: Message, path: str, opened: Opened) -> bool:
        """Copy a file to a place, unless it is copied; False if another one has the place."""
        inode = opened.found.st_ino
        if inode in self._copied:
            return True
        if self._copy.inode(path) is not None:
            return False
        self._copy.add(opened.fd, opened.found, path)
        self._copied[inode] = hash(path)
        self._displaced.discard(inode)
        self._index(message, path, opened)
        return True

    def _displace(self, queue: str, path: str) -> None:
        """Take a message out of the copy, and look for its file again: it may have moved."""
        self._take_out(queue, path)
        for inode in [one for one, place in self._copied.items() if place == hash(path)]:
            del self._copied[inode]
            self._displaced.add(inode)

    def _take_out(self, queue: str, path: str) -> None:
        """Take a message out of the copy, with its link."""
        if queue in self._small.indexed:
            fd = self._copy.open(path)
            try:
                given = read_given(fd)
            finally:
                os.close(fd)
            link = None if given is None else link_path(self._tree, queue, link_name(given.id))
            if link is not None and self._copy.inode(link) == self._copy.inode(path):
                self._copy.remove(link)
        self._copy.remove(path)

    def _index(self, message: Message, path: str, opened: Opened) -> None:
        """Link a message with a given id. If another has the id, the spool says which keeps it."""
        queue = message.queue
        if queue not in self._small.indexed:
            return
        given, letter = read_given(opened.fd), dead_letter.read(opened.fd)
        if given is None or given.name != message.id:
            return
        link = link_path(self._tree, queue, link_name(given.id))
        is_from_elsewhere = letter is not None and letter.queue != queue
        if is_from_elsewhere and not leads_to(self._tree, link, opened.found.st_ino):
            return  # a dead letter, not one that was redriven to this queue
        try:
            self._copy.link(path, link)
        except FileExistsError:
            self._choose(message, path, link)

    def _choose(self, message: Message, path: str, link: str) -> None:
        fd = self._copy.open(link)
        try:
            older = read_given(fd)
        finally:
            os.close(fd)
        assert older is not None
        keeper = None
        with self._source.opened(link) as opened:
            given = None if opened is None else read_given(opened.fd)
            keeper = None if given is None else given.name
        if keeper == older.name:
            self._take_out(message.queue, path)
            return
        for place in self._standing(message.queue, older.name):
            self._displace(message.queue, place)
        self._copy.remove(link)
        self._copy.link(path, link)

    def _forget_homeless(self) -> None:
        """Take out messages of queues that were deleted, which removes their messages too."""
        homeless, self._homeless = self._homeless, []
        for path, inode in homeless:
            found = self._tree.stat(path)
            parts = split_entry(path.rpartition("/")[2])
            if parts is None:
                continue
            if found is not None and found.st_ino == inode:
                self._homeless.append((path, inode))
            elif parts[0] not in self._small.queues:
                for place in self._standing(*parts):
                    self._displace(parts[0], place)


def _places(queue: str, message_id: str) -> tuple[str, ...]:
    name = entry(queue, message_id)
    return f"{NEW}/{name}", f"{QUEUES}/{queue}/{message_id}", f"{DELAY}/{name}"


def _is_whole(opened: Opened, path: str) -> bool:
    """Whether a file has the checksum of its dot-name. Raises OSError, Unreadable."""
    staged = split_staged(path.rpartition("/")[2])
    seal = at = 0
    while data := read(opened.fd, CHUNK_BYTES, at):
        seal = seal_of(data, seal)
        at += len(data)
    return staged is not None and staged[1] in (seal, timed_seal(seal, opened.found.st_mtime_ns))


def _has_no_link(opened: Opened, message: Message) -> bool:
    """Whether a message with a given id is not linked yet: its timer may not be set, either."""
    given = read_given(opened.fd) if opened.found.st_nlink == 1 else None
    return given is not None and given.name == message.id
