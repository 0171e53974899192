"""Lists the messages of a spool by ranges of their names, while programs work on it.

A message travels: new → ready → delay → ready …, and from anywhere into remove. A range covers all
folders, so a message stays in its range wherever it goes. The folders are listed in the direction
of travel, and again as long as they keep changing and older messages turn up: a message that has
returned to a queue after that was listed is found by the next listing. A message counts once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import islice, pairwise
from typing import NamedTuple

from fsmq.spool import NoSuchQueue, State
from fsmq.spool.checks import check_queue, is_id
from fsmq.spool.on_disk import QUEUES, Tree, facts, split_entry

Key = tuple[str, str]  # queue and id

_SAMPLE = 4096
_MAX_PASSES = 5
# A change within the same tick of the kernel's clock leaves a folder's mtime as it is.
_TICK_NS = 50_000_000
_GLOB = frozenset("*?[")
# Sorts after every possible file name.
_END = "\U0010ffff" * 256


class Range(NamedTuple):
    """Keys from ``low`` on and before ``high``."""

    low: Key = ("", "")
    high: Key = (_END, "")

    def may_hold(self, queue: str) -> bool:
        """Whether keys of a queue can be within."""
        return self.low[0] <= queue <= self.high[0]

    def of(self, queue: str) -> tuple[str, str]:
        """The bounds of a queue's ids that are within: from the first on, before the second."""
        return (
            self.low[1] if queue == self.low[0] else "",
            self.high[1] if queue == self.high[0] else _END,
        )


class Queues:
    """The wanted queues: names and globs, separated by commas.

    Raises:
        InvalidValue: a part is neither a queue's name nor a glob.
    """

    def __init__(self, text: str) -> None:
        parts = [part.strip() for part in text.split(",")]
        self.patterns = parts
        self._globs = [part for part in parts if _GLOB.intersection(part)]
        self._named = [check_queue(p, "option queue") for p in parts if p not in self._globs]

    def check(self, tree: Tree) -> None:
        """Check that every named queue exists. Raises NoSuchQueue, OSError."""
        for name in self._named:
            if not tree.has_queue(name):
                raise NoSuchQueue(name)

    def missing(self, queues: Collection[str]) -> list[str]:
        """The named queues that are not among ``queues``."""
        return [name for name in self._named if name not in queues]

    def holds(self, queue: str) -> bool:
        """Whether a queue is wanted."""
        return queue in self._named or any(fnmatchcase(queue, glob) for glob in self._globs)


class Group(NamedTuple):
    """Ids of one queue that were seen in one folder, sorted."""

    queue: str
    place: State
    ids: list[str]


class _Folder(NamedTuple):
    """A folder of messages: of one queue, or of all queues, which the names tell then."""

    path: str
    place: State
    queue: str = ""

    def key(self, entry: os.DirEntry[str]) -> Key | None:
        """The queue and id of an entry; None if it is not a message."""
        if not self.queue:
            key = split_entry(entry.name)
        else:
            key = (self.queue, entry.name) if is_id(entry.name) else None
        return key if key is not None and entry.is_file(follow_symlinks=False) else None


class Listing:
    """The messages of some queues, in some folders.

    wanted: whether a queue's messages are wanted. places: the states to look for, in the direction
    of travel. named: whether an id can be wanted; None: all. sample: how many keys are held at most
    to find ranges. All methods raise OSError.
    """

    def __init__(
        self,
        tree: Tree,
        wanted: Callable[[str], bool],
        places: Sequence[State],
        named: Callable[[str], bool] | None = None,
        *,
        sample: int = _SAMPLE,
    ) -> None:
        self._tree = tree
        self._wanted = lru_cache(4096)(wanted)
        self._places = places
        self._named = named
        self._sample = sample

    def split(self, into: Callable[[int], int]) -> list[Range]:
        """Ranges of about the same number of messages.

        into: how many ranges to make for a number of messages. The memory needed does not depend on
        that number.
        """
        keys: list[Key] = []
        step = 1
        for folder in self._folders(Range()):
            entries = self._tree.walk(folder.path)
            more = True
            while more:
                more = False
                for entry in islice(entries, step - 1, None, step):
                    key = folder.key(entry)
                    if key is not None and self._means(*key):
                        keys.append(key)
                        if len(keys) == self._sample:
                            keys, step, more = keys[::2], step * 2, True
                            break
        keys.sort()
        count = max(1, min(len(keys), into(len(keys) * step)))
        cuts = sorted({keys[len(keys) * part // count] for part in range(1, count)})
        edges = [Range().low, *cuts, Range().high]
        return [Range(low, high) for low, high in pairwise(edges)]

    def groups(self, within: Range) -> Iterator[Group]:
        """The messages of a range, by queue; keeps their names in memory."""
        began_ms = time.time() * 1000
        seen: dict[str, dict[State, list[str]]] = {}
        twice: list[Group] = []
        for done in range(_MAX_PASSES):
            settled_ns = time.time_ns() - _TICK_NS
            before = self._changes(within)
            late = False  # whether this listing is the first to see a message that is older
            for folder in self._folders(within):
                for queue, ids in self._ids(folder, within).items():
                    places = seen.setdefault(queue, {})
                    first: Collection[str] = ids
                    if places:
                        first = set(ids)
                        first.difference_update(*places.values())
                    late = late or (done > 0 and any(_is_older(i, began_ms) for i in first))
                    if len(first) < len(ids) and folder.place is State.REMOVE and not done:
                        twice.append(self._twice(queue, ids, places, folder))
                    places.setdefault(folder.place, []).extend(first)
            if len(self._places) == 1 or (done and not late):
                break
            if max(before, default=0) < settled_ns and before == self._changes(within):
                break
        for queue in sorted(seen):
            for place in self._places:
                yield Group(queue, place, sorted(seen[queue].pop(place, ())))
        yield from twice

    def _twice(
        self, queue: str, ids: list[str], places: dict[State, list[str]], folder: _Folder
    ) -> Group:
        """Removed messages whose id another message, in another folder, has now.

        Most ids that were seen twice are those of messages that were removed in between.
        """
        others = []
        known = {i: place for place, seen in places.items() for i in set(ids).intersection(seen)}
        for message_id, place in known.items():
            if place is State.REMOVE:
                continue
            still = self._tree.stat(self._tree.path(place, queue, message_id))
            name = message_id if folder.queue else f"{queue}:{message_id}"
            removed = self._tree.stat(f"{folder.path}/{name}")
            if still is not None and removed is not None and still.st_ino != removed.st_ino:
                others.append(message_id)
        return Group(queue, State.REMOVE, sorted(others))

    def _folders(self, within: Range) -> Iterator[_Folder]:
        for place in self._places:
            if place is State.READY:
                for queue in self._queues(within):
                    yield _Folder(self._tree.folder(QUEUES, queue), place, queue)
                continue
            yield _Folder(self._tree.folder(place.value), place)
            if place is State.REMOVE:
                for queue, path in removed_queues(self._tree):
                    if within.may_hold(queue) and self._wanted(queue):
                        yield _Folder(path, place, queue)

    def _queues(self, within: Range) -> list[str]:
        return [q for q in self._tree.queues() if within.may_hold(q) and self._wanted(q)]

    def _changes(self, within: Range) -> list[int]:
        """When the folders between which messages move back and forth last changed."""
        paths = [self._tree.folder(place.value) for place in (State.NEW, State.DELAY)]
        paths += [self._tree.folder(QUEUES, queue) for queue in self._queues(within)]
        stats = (self._tree.stat(path) for path in paths)
        return [found.st_mtime_ns for found in stats if found is not None]

    def _ids(self, folder: _Folder, within: Range) -> dict[str, list[str]]:
        """The ids of a range in a folder, by queue."""
        entries = self._tree.walk(folder.path)
        if not folder.queue:
            found: dict[str, list[str]] = {}
            low, high = within
            for key in map(folder.key, entries):
                if key is not None and low <= key < high and self._means(*key):
                    found.setdefault(key[0], []).append(key[1])
            return found
        # This folder may have millions of entries, which every task of a read has to scan.
        first, end = within.of(folder.queue)
        ids = [
            name
            for entry in entries
            if first <= (name := entry.name) < end
            and name[0] != "."
            and ":" not in name
            and entry.is_file(follow_symlinks=False)
        ]
        if self._named is not None:
            ids = [i for i in ids if self._named(i)]
        return {folder.queue: ids}

    def _means(self, queue: str, message_id: str) -> bool:
        return self._wanted(queue) and (self._named is None or self._named(message_id))


def _is_older(message_id: str, than_ms: float) -> bool:
    return (facts(message_id).created_ms or 0) < than_ms


def removed_queues(tree: Tree) -> Iterator[tuple[str, str]]:
    """Queues that were deleted or purged as a whole and wait for the reaper, with their paths."""
    for entry in tree.walk(tree.folder(State.REMOVE.value)):
        parts = split_entry(entry.name)
        if parts is not None and entry.is_dir(follow_symlinks=False):
            yield parts[0], tree.folder(State.REMOVE.value, entry.name)
