"""Given ids: which message of a queue with an index has an id, and what a dead put has left of it.

``ids/<queue>/<link>`` is a second name of a message's file. A message has the id of a link that is
a name of its file, as long as it stands in its queue; any other link is stale. A put that is to
replace that message has ``.next-<link>`` as the second name of its file, never without ``<link>``.
Whoever changes one of the two has locked the id, from the look to the end:
docs/decisions/0018-one-lock-an-id.md.
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
# In the direction in which messages move, and again where they can move back.
_STATES = (State.NEW, State.READY, State.DELAY, State.READY, State.DELAY)
_LATCH_PATIENCE_S = 2.0
_CHUNK_BYTES = 1024 * 1024


class Standing(NamedTuple):
    """A message that an id leads to."""

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
        """Those of one queue, to be freed by themselves."""
        part = Held(self._tree)
        part._files[queue] = self._files.pop(queue)
        return part

    def stands(self, queue: str) -> bool:
        """Whether the queue still has the index whose ids are locked."""
        return queue in self._files and self._files[queue].stands()

    def take(self, queue: str, links: Iterable[str]) -> bool:
        """Lock ids of a queue; False if one is held, or the index has just gone."""
        file = self._file(queue)
        # From the last one: the kernel keeps them sorted, and puts each in front of all others.
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
    """The byte that is locked for an id, in which the dot-names of its puts end."""
    return zlib.crc32(link.encode())


def hold(tree: Tree, wanted: Mapping[str, Iterable[str]]) -> Held | None:
    """Lock ids: links of queues. All or none; None if one is held, or an index has just gone.

    Raises FileNotFoundError if a queue has no index (any more), and OSError.
    """
    held, is_all = Held(tree), False
    try:
        # Everywhere in the same order, and nobody waits while he has some: so none is shut out.
        is_all = all(held.take(queue, wanted[queue]) for queue in sorted(wanted))
    finally:
        if not is_all:
            held.free()
    return held if is_all else None


def hold_patiently(tree: Tree, wanted: Mapping[str, Iterable[str]]) -> Held:
    """The same; raises InUse if one is held for so long."""
    held = patiently(lambda: hold(tree, wanted), PATIENCE_S)
    if held is None:
        raise InUse(IS_HELD)
    return held


def link_path(tree: Tree, queue: str, link: str, *, coming: bool = False) -> str:
    """The path of a link; of that of the message that is to have the id next, if ``coming``."""
    return tree.folder(IDS, f"{queue}/{NEXT}{link}" if coming else f"{queue}/{link}")


def state_of(
    tree: Tree, queue: str, name: str, inode: int, states: tuple[State, ...] = _STATES
) -> State | None:
    """Where the file of an inode stands as this message; None if it does not."""
    for state in states:
        found = tree.look(tree.path(state, queue, name))
        if found is not None and found.st_ino == inode:
            return state
    return None


def _state_now(tree: Tree, queue: str, at: str, name: str, inode: int) -> State | None:
    """The same of what a link leads to, for sure.

    Raises OSError, BlockingIOError among them where another process acts on the message for long:
    for those who recover or reap that is a fault of one name among many.
    """
    state = state_of(tree, queue, name, inode, (*_STATES, State.REMOVE))
    if state is None:
        # It may be claimed and released in such a way that each look came too early or late.
        try:
            held = patiently(lambda: lock(tree, at, 0), _LATCH_PATIENCE_S)
        except FileNotFoundError:
            return None  # the link has gone, and with it the question
        if held is None:
            text = "another process is acting on the message of this id right now"
            raise BlockingIOError(errno.EAGAIN, text, at)
        try:
            state = state_of(tree, queue, name, inode)
        finally:
            held.unlock()
    return None if state is State.REMOVE else state


class Link:
    """What a link leads to: an open file, which keeps its inode number as long as it is open."""

    def __init__(self, tree: Tree, queue: str, path: str) -> None:
        self._path = path
        self._link = path.rpartition("/")[2].removeprefix(NEXT)
        self._tree, self._queue = tree, queue
        self._fd = tree.open(path)
        self.inode = os.fstat(self._fd).st_ino
        given = read_given(self._fd)
        # A file says what to look for, and no more: a name is ours if it is this file's.
        self.given = given if given is not None and is_id(given.name) else None

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._fd)

    def look(self, states: tuple[State, ...] = _STATES) -> Standing | None:
        """The message that has the id, if it is seen; others may move it meanwhile."""
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
        """The dot-name of a put that has written all of it, and has not shown it."""
        if self.given is None:
            return None
        name = staged_name(self._queue, self._link, self.given.name, self._fd)
        found = self._tree.look(self._tree.folder(NEW, name))
        return name if found is not None and found.st_ino == self.inode else None


def staged_name(queue: str, link: str, name: str, fd: int) -> str:
    """The dot-name in ``new/`` of an open message, as its put has written it. Raises OSError."""
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
    """The messages that have ids which the caller has locked; the other ids are free.

    What a put that died has left is finished, or removed: nobody is at work on it.
    only_looks: stale links are left.

    Raises Unavailable, OSError.
    """
    had: dict[str, Standing] = {}
    stale: list[str] = []
    folder = tree.folder(IDS, queue)
    tree.refresh(folder)
    for link in links:
        at, coming = f"{folder}/{link}", f"{folder}/{NEXT}{link}"
        if not has(tree, at):
            continue  # nor is there the other one: it is unlinked first
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
        # What has just left must not be back after a crash, and have no id, or a successor.
        for folder in _where(tree, queue):
            tree.sync_folder(folder)
        for path in stale:
            tree.unlink(path)
    return had


def _standing(tree: Tree, queue: str, path: str) -> Standing | None:
    """The message to which a link leads, shown if it is whole and its put has died."""
    opened = open_link(tree, queue, path)
    if opened is None:
        return None
    with opened:
        return opened.standing() or _show(tree, queue, opened)


def _where(tree: Tree, queue: str) -> set[str]:
    """The folders in which a message of a queue may be, and that to which it leaves."""
    return {tree.folder(QUEUES, queue), *map(tree.folder, (NEW, DELAY, REMOVE))}


def _show(tree: Tree, queue: str, opened: Link) -> Standing | None:
    """Show a message that is whole, and was not shown."""
    staged = opened.staged()
    if staged is None or not is_complete(tree, staged, durably=True):
        return None
    # What it replaces went before it, and must not be back after a crash.
    for folder in (*_where(tree, queue), tree.folder(IDS, queue)):
        tree.sync_folder(folder)
    promote(tree, staged)
    return opened.standing()


def _forget_coming(tree: Tree, queue: str, path: str) -> None:
    """Remove, durably, what was to have an id next and was never answered.

    After a crash it would be back, perhaps when the message that has the id is done.
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

    None if no id is known of it. Raises Unavailable, OSError.
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
    # It has no link, or another message was to make place for it: nobody was told of it.
    tree.unlink(path)
    return Recovered(removed=1)


def _forget_inode(tree: Tree, queue: str, path: str, number: int) -> None:
    """Unlink the links of a file that does not say its id: its bytes went when the power failed."""
    found = tree.stat(path)
    if found is None or found.st_nlink == 1:
        return
    for entry in tree.walk(tree.folder(IDS, queue)):
        is_ours = number_of_id(entry.name.removeprefix(NEXT)) == number
        if is_ours and entry.inode() == found.st_ino:
            tree.unlink(f"{tree.folder(IDS, queue)}/{entry.name}")


def remove_standing(tree: Tree, queue: str, at: str, old: Standing, taken_out: str | None) -> None:
    """Remove a message whose id another one is to have, wherever it stands by now.

    at: its link. taken_out: its dot-name, if it was brought there. Raises Unavailable, OSError.
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
    """Whether anything is there; where mostly nothing is, this costs less than `Tree.stat`."""
    return os.access(path, os.F_OK, dir_fd=tree.fd, follow_symlinks=False)


def leads_to(tree: Tree, path: str, inode: int) -> bool:
    """Whether a link exists and is a name of this file."""
    found = tree.look(path)
    return found is not None and found.st_ino == inode


def given_of(tree: Tree, path: str, name: str) -> tuple[Given, os.stat_result] | None:
    """The id that a message's file says it was given, and the file's stat.

    None if it says none, or another name than its own. Raises OSError.
    """
    fd = tree.open(path)
    try:
        given = read_given(fd)
        return (given, os.fstat(fd)) if given is not None and given.name == name else None
    finally:
        os.close(fd)
