"""The rule that a message is in exactly one of new, queues and delay.

To find one name in two places among millions, a first walk keeps eight bytes for each name: the
hash of queue and id. If a hash came twice, a second walk finds the names that have it, and each is
looked up in all places. While daemons run, most have merely moved during the walk.
"""

from __future__ import annotations

import os
from array import array
from collections import defaultdict
from itertools import pairwise

from ..layout.names import entry
from ..layout.transitions import State
from ..layout.tree import Tree
from .report import Fault, Finding, Kind, Severity

_PARTS = 256
# In the order of a message's life. Of two names of one file the later is kept: a removed message
# stays removed, and one in delay is redelivered when its timer ends.
_LIFE = (State.NEW, State.READY, State.DELAY, State.REMOVE)


class Seen:
    """The names that a walk has seen, in eight bytes each."""

    def __init__(self) -> None:
        self._parts: defaultdict[int, array[int]] = defaultdict(lambda: array("q"))

    def add(self, queue: str, message_id: str) -> None:
        code = hash((queue, message_id))
        self._parts[code % _PARTS].append(code)

    def repeated(self) -> set[int]:
        """The hashes that came more than once. Sorts part by part, to save memory."""
        result: set[int] = set()
        while self._parts:
            _, part = self._parts.popitem()
            result.update(one for one, other in pairwise(sorted(part)) if one == other)
        return result


def is_among(codes: set[int], queue: str, message_id: str) -> bool:
    return hash((queue, message_id)) in codes


def look_twice(tree: Tree, queue: str, message_id: str) -> Fault | None:
    """The fault of a message that is in several places at the same time; else None."""
    standing = _standing(tree, queue, message_id)
    if len(standing) < 2:
        return None
    states = sorted(standing, key=_LIFE.index)
    paths = [tree.path(state, queue, message_id) for state in states]
    if len({found.st_ino for found in standing.values()}) > 1:
        reason = f"is in {' and '.join(paths[1:])} too, as another file: compare and keep one"
        return Fault(Finding(Kind.DUPLICATE, Severity.ERROR, paths[0], reason))
    reason = f"is one file with several names: {' and '.join(paths[1:])} too"
    finding = Finding(
        Kind.TWO_NAMES, Severity.ERROR, paths[0], reason, f"keep {paths[-1]}, unlink the others"
    )
    return Fault(finding, lambda: _keep_last(tree, paths))


def _standing(tree: Tree, queue: str, message_id: str) -> dict[State, os.stat_result]:
    """The states in which a message is at the same time.

    Looks in all places twice. A file that is unchanged the second time (a rename sets the ctime)
    was in its place while the other places were looked at.
    """
    first = _look(tree, queue, message_id)
    second = _look(tree, queue, message_id)
    stable = {
        state: found
        for state, found in first.items()
        if state in second and _version(found) == _version(second[state])
    }
    removed = stable.get(State.REMOVE)
    if removed is not None and all(
        found.st_ino != removed.st_ino
        for state, found in stable.items()
        if state is not State.REMOVE
    ):
        del stable[State.REMOVE]
    return stable


def _look(tree: Tree, queue: str, message_id: str) -> dict[State, os.stat_result]:
    stats = ((state, tree.stat(tree.path(state, queue, message_id))) for state in _LIFE)
    return {state: found for state, found in stats if found is not None}


def _version(found: os.stat_result) -> tuple[int, int]:
    return found.st_ino, found.st_ctime_ns


def _keep_last(tree: Tree, paths: list[str]) -> bool:
    last = tree.stat(paths[-1])
    for path in paths[:-1]:
        found = tree.stat(path)
        if last is not None and found is not None and found.st_ino == last.st_ino:
            tree.unlink(path)
    return all(tree.stat(path) is None for path in paths[:-1])


class Links:
    """Files of the tree that have several names."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._names: dict[int, dict[str, tuple[str, str]]] = {}  # inode: path: (queue, id)

    def add(self, inode: int, path: str, queue: str, message_id: str) -> None:
        if inode in self._names or len(self._names) < self._limit:
            self._names.setdefault(inode, {})[path] = (queue, message_id)

    def inodes(self) -> list[int]:
        return list(self._names)

    def messages(self) -> set[tuple[str, str]]:
        """The queue and id of each name of these files."""
        return {message for names in self._names.values() for message in names.values()}

    def look(self, tree: Tree, inode: int) -> Fault | None:
        """The fault of a file that has names of several messages, or a name outside the tree."""
        names = {}
        links = 0
        for path, (queue, message_id) in self._names[inode].items():
            found = tree.stat(path)
            if found is not None and found.st_ino == inode and found.st_nlink > 1:
                names[path] = entry(queue, message_id)
                links = found.st_nlink
        if not names or (len(names) == links and len(set(names.values())) == 1):
            return None  # gone, or one message in two states, which look_twice reports
        paths = sorted(names)
        if len(set(names.values())) > 1:
            reason = f"shares its file, and so its timer, with {' and '.join(paths[1:])}; copy it"
            return Fault(Finding(Kind.LINKED, Severity.ERROR, paths[0], reason))
        reason = "has another name outside the tree: a write to that changes the message"
        return Fault(Finding(Kind.LINKED, Severity.WARNING, paths[0], reason))
