"""Given ids: which message of a queue with an index has an id, and what a dead put has left of it.

``ids/<queue>/<link>`` is a second name of a message's file. A message has the id of a link that is
a name of its file, as long as the message is in its queue; any other link is stale. While a put
replaces that message, ``.next-<link>`` is the second name of the new file; it never exists without
``<link>``. Whoever changes one of the two links holds the lock of the id from the first look to the
last change: docs/decisions/0018-one-lock-an-id.md.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..errors import InUse, is_full
from ..layout.messages.given_ids import Given, link_name, read_given
from ..layout.names import is_id, seal_of, staged_entry
from ..layout.transitions import DELAY, IDS, NEW, QUEUES, REMOVE, State
from ..layout.tree import STRAY, Tree
from .byte_locks import ByteLocks
from .locks import lock, patiently
from .unfinished import Recovered, is_complete, message_of, promote

LOCK = ".lock"
NEXT = ".next-"
PATIENCE_S = 5.0
IS_HELD = "another process is changing which message has this id right now"
# In the direction in which messages move; the last two again, as a message can move back.
_STATES = (State.NEW, State.READY, State.DELAY, State.READY, State.DELAY)
_LATCH_PATIENCE_S = 2.0
_CHUNK_BYTES = 1024 * 1024


class Standing(NamedTuple):
    """A message that has an id."""

    name: str
    inode: int
    state: State


class Held:
    """Ids that this process has locked until :meth:`free`, or the end of a ``with``."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._files: dict[str, ByteLocks] = {}

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *exception: object) -> None:
        self.free()

    def free(self) -> None:
        """End the locks."""
        while self._files:
            self._files.popitem()[1].close()

    def part(self, queue: str) -> Held:
        """The ids of one queue, to be freed separately."""
        part = Held(self._tree)
        part._files[queue] = self._files.pop(queue)
        return part

    def stands(self, queue: str) -> bool:
        """Whether the queue still has the index whose ids are locked."""
        return queue in self._files and self._files[queue].stands()

    def take(self, queue: str, links: Iterable[str]) -> bool:
        """Lock ids of a queue; False if one is held, or the index has just gone."""
        file = self._file(queue)
        # The highest first: the kernel keeps locks sorted, and finds the front at once.
        numbers = sorted({number_of_id(link) for link in links}, reverse=True)
        return all(map(file.take, numbers)) and file.stands()

    def take_all(self, queue: str) -> bool:
        """Lock all ids of a queue; False if one is held. FileNotFoundError if it has no index."""
        return self._file(queue).take(0, size=0)

    def give(self, queue: str, link: str) -> None:
        """Unlock an id."""
        self._files[queue].give(number_of_id(link))

    def _file(self, queue: str) -> ByteLocks:
        file = self._files.get(queue)
        if file is None:
            file = self._files[queue] = ByteLocks(
                self._tree, f"{self._tree.folder(IDS, queue)}/{LOCK}"
            )
        return file


def number_of_id(link: str) -> int:
    """The byte that is locked for an id; the dot-names of its puts end in this number."""
    return zlib.crc32(link.encode())


def hold(tree: Tree, wanted: Mapping[str, Iterable[str]]) -> Held | None:
    """Lock all links of ``wanted``, or none: None if one is held, or an index has just gone.

    Raises FileNotFoundError if a queue has no index (any more), and OSError.
    """
    held, is_all = Held(tree), False
    try:
        # Everywhere in the same order, and no process waits while it holds any: no deadlock.
        is_all = all(held.take(queue, wanted[queue]) for queue in sorted(wanted))
    finally:
        if not is_all:
            held.free()
    return held if is_all else None


def hold_patiently(tree: Tree, wanted: Mapping[str, Iterable[str]]) -> Held:
    """The same; raises InUse if one stays locked for PATIENCE_S."""
    held = patiently(lambda: hold(tree, wanted), PATIENCE_S)
    if held is None:
        raise InUse(IS_HELD)
    return held


def link_path(tree: Tree, queue: str, link: str, *, coming: bool = False) -> str:
    """The path of an id's link; ``coming``: that of the message which will have the id next."""
    return tree.folder(IDS, f"{queue}/{NEXT}{link}" if coming else f"{queue}/{link}")


def state_of(
    tree: Tree, queue: str, name: str, inode: int, states: tuple[State, ...] = _STATES
) -> State | None:
    """The state in which this message has this inode; None if it has it in none."""
    for state in states:
        found = tree.look(tree.path(state, queue, name))
        if found is not None and found.st_ino == inode:
            return state
    return None


def _state_now(tree: Tree, queue: str, at: str, name: str, inode: int) -> State | None:
    """The same for the file that a link leads to, with certainty.

    Raises OSError: BlockingIOError if another process keeps the message locked for long, which
    recovery and the reaper treat as an error of this one name.
    """
    state = state_of(tree, queue, name, inode, (*_STATES, State.REMOVE))
    if state is None:
        # It may have been claimed and released so that every look came too early or too late.
        try:
            held = patiently(lambda: lock(tree, at, 0), _LATCH_PATIENCE_S)
        except FileNotFoundError:
            return None  # the link is gone, so it leads to nothing
        if held is None:
            text = "another process is acting on the message of this id right now"
            raise BlockingIOError(errno.EAGAIN, text, at)
        try:
            state = state_of(tree, queue, name, inode)
        finally:
            held.unlock()
    return None if state is State.REMOVE else state


class Link:
    """The file that a link leads to, kept open so that its inode number is not used again."""

    def __init__(self, tree: Tree, queue: str, path: str) -> None:
        self._path = path
        self._link = path.rpartition("/")[2].removeprefix(NEXT)
        self._tree, self._queue = tree, queue
        self._fd = tree.open(path)
        self.inode = os.fstat(self._fd).st_ino
        given = read_given(self._fd)
        # The header only says which name to look for: the name counts if it is one of this file.
        self.given = given if given is not None and is_id(given.name) else None

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._fd)

    def look(self, states: tuple[State, ...] = _STATES) -> Standing | None:
        """The message that has the id, if this look finds it: others can move it."""
        if self.given is None:
            return None
        state = state_of(self._tree, self._queue, self.given.name, self.inode, states)
        return None if state is None else Standing(self.given.name, self.inode, state)

    def standing(self) -> Standing | None:
        """The message that has the id; None if the link is stale. Raises Unavailable, OSError."""
        if self.given is None:
            return None
        name, inode = self.given.name, self.inode
        state = _state_now(self._tree, self._queue, self._path, name, inode)
        return None if state is None else Standing(name, inode, state)

    def staged(self) -> str | None:
        """The dot-name under which its put has written it completely, but not shown it yet."""
        if self.given is None:
            return None
        name = staged_name(self._queue, self._link, self.given.name, self._fd)
        found = self._tree.look(self._tree.folder(NEW, name))
        return name if found is not None and found.st_ino == self.inode else None


def staged_name(queue: str, link: str, name: str, fd: int) -> str:
    """The dot-name in ``new/`` that an open message got from its put. Raises OSError."""
    seal = offset = 0
    while chunk := os.pread(fd, _CHUNK_BYTES, offset):
        seal = seal_of(chunk, seal)
        offset += len(chunk)
    return staged_entry(queue, name, seal, number_of_id(link))


def open_link(tree: Tree, queue: str, path: str) -> Link | None:
    """Open what a link leads to; None if there is no such link. Raises OSError."""
    try:
        return Link(tree, queue, path)
    except OSError as error:
        if error.errno in STRAY:
            return None
        raise


def settle(
    tree: Tree, queue: str, links: Iterable[str], *, only_looks: bool = False
) -> dict[str, Standing]:
    """The messages that have some ids, which the caller has locked; the other ids are free.

    What a dead put has left is finished or removed: the lock proves that nobody is working on it.
    only_looks: leave stale links.

    Raises Unavailable, OSError.
    """
    had: dict[str, Standing] = {}
    stale: list[str] = []
    folder = tree.folder(IDS, queue)
    tree.refresh(folder)
    for link in links:
        at, coming = f"{folder}/{link}", f"{folder}/{NEXT}{link}"
        if not has(tree, at):
            continue  # then the other does not exist either: it is unlinked first
        found = _standing(tree, queue, at)
        if found is not None:
            if has(tree, coming):
                _forget_coming(tree, queue, coming)
        elif (found := _standing(tree, queue, coming)) is not None:
            tree.rename(coming, at, replace=True)
        else:
            stale += [path for path in (coming, at) if has(tree, path)]
        if found is not None:
            had[link] = found
    if stale and not only_looks:
        # A message that has just left must not come back after a crash, as one without an id.
        for folder in _where(tree, queue):
            tree.sync_folder(folder)
        for path in stale:
            tree.unlink(path)
    return had


def _standing(tree: Tree, queue: str, path: str) -> Standing | None:
    """The message that a link leads to; shown first if it is complete and its put has died."""
    opened = open_link(tree, queue, path)
    if opened is None:
        return None
    with opened:
        return opened.standing() or _show(tree, queue, opened)


def _where(tree: Tree, queue: str) -> set[str]:
    """The folders in which a message of a queue can be, ``remove/`` included."""
    return {tree.folder(QUEUES, queue), *map(tree.folder, (NEW, DELAY, REMOVE))}


def _show(tree: Tree, queue: str, opened: Link) -> Standing | None:
    """Show a message that is complete and was not shown."""
    staged = opened.staged()
    if staged is None or not is_complete(tree, staged, durably=True):
        return None
    # The message that it replaces has left before, and must not come back after a crash.
    for folder in (*_where(tree, queue), tree.folder(IDS, queue)):
        tree.sync_folder(folder)
    promote(tree, staged)
    return opened.standing()


def _forget_coming(tree: Tree, queue: str, path: str) -> None:
    """Remove, durably, a message that was to have an id next and was never acknowledged.

    Otherwise it could come back after a crash, perhaps once the message that has the id is done.
    """
    opened = open_link(tree, queue, path)
    if opened is None:
        return
    with opened:
        staged = opened.staged()
        tree.unlink(path)
        if staged is not None:
            tree.unlink(tree.folder(NEW, staged))
    tree.sync_folder(tree.folder(IDS, queue))
    tree.sync_folder(tree.folder(NEW))


def finish_given(tree: Tree, staged: str, queue: str, number: int) -> Recovered | None:
    """Finish or remove the dot-name of a message with a given id; the caller has locked the number.

    None if the file names no id. Raises Unavailable, OSError.
    """
    path = tree.folder(NEW, staged)
    try:
        found = given_of(tree, path, message_of(staged))
    except FileNotFoundError:
        return Recovered()
    if found is None or number_of_id(link_name(found[0].id)) != number:
        _forget_inode(tree, queue, path, number)
        return None
    link = link_name(found[0].id)
    had = settle(tree, queue, [link]).get(link)
    if had is not None and had.inode == found[1].st_ino:
        return Recovered(promoted=1)
    # It has no link, or did not replace another message yet: its put was not acknowledged.
    tree.unlink(path)
    return Recovered(removed=1)


def _forget_inode(tree: Tree, queue: str, path: str, number: int) -> None:
    """Unlink the links of a file that names no id because a power cut has lost its content."""
    found = tree.stat(path)
    if found is None or found.st_nlink == 1:
        return
    for entry in tree.walk(tree.folder(IDS, queue)):
        is_ours = number_of_id(entry.name.removeprefix(NEXT)) == number
        if is_ours and entry.inode() == found.st_ino:
            tree.unlink(f"{tree.folder(IDS, queue)}/{entry.name}")


def remove_standing(tree: Tree, queue: str, at: str, old: Standing, taken_out: str | None) -> None:
    """Remove a message whose id goes to another one, wherever the message is now.

    at: its link. taken_out: the dot-name to which it was renamed, if any. Raises Unavailable,
    OSError.
    """
    path = taken_out
    while True:
        if path is None:
            state = _state_now(tree, queue, at, old.name, old.inode)
            if state is None:
                return
            path = tree.path(state, queue, old.name)
        try:
            tree.rename(path, tree.path(State.REMOVE, queue, old.name), replace=True)
        except OSError as error:
            if not is_full(error):
                raise
            tree.unlink(path)
        path = None


def has(tree: Tree, path: str) -> bool:
    """Whether a path exists; cheaper than `Tree.stat` where it mostly does not."""
    return os.access(path, os.F_OK, dir_fd=tree.fd, follow_symlinks=False)


def leads_to(tree: Tree, path: str, inode: int) -> bool:
    """Whether a link exists and is a name of this file."""
    found = tree.look(path)
    return found is not None and found.st_ino == inode


def given_of(tree: Tree, path: str, name: str) -> tuple[Given, os.stat_result] | None:
    """The id that a message was given, according to its file, and the file's stat.

    None if the file names no id, or another message name than its own. Raises OSError.
    """
    fd = tree.open(path)
    try:
        given = read_given(fd)
        return (given, os.fstat(fd)) if given is not None and given.name == name else None
    finally:
        os.close(fd)
