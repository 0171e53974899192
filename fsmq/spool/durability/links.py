"""Links: ``ids/<queue>/<link>``, the second name of a message's file, by which its id finds it.

Who links first has the id, on any host: a link is made and never replaces one. A link that exists
is removed or replaced only by a process that has locked (flock) the file to which it leads. The
lock is the latch of that message, so nobody claims or releases it meanwhile. A link whose message
stands nowhere in its queue is stale, and may be replaced. So whatever a crash leaves, an id is
never lost, and never had by two puts.

Who takes an id from a message gives that a second link first, ``.<uuid>.old`` by the name of the
new one. Whoever shows the new one, after a crash too, removes that message before, durably.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable

from ..errors import Unavailable, is_full
from ..layout.given_ids import Given, link_path, read_given
from ..layout.names import UUID7, seal_of, split_entry, staged_entry
from ..layout.transitions import DELAY, IDS, NEW, QUEUES, REMOVE, State
from ..layout.tree import Tree
from ..layout.uuids import uuid7
from .locks import Lock, lock

# In the direction in which messages move, and again where they can move back.
_STATES = (State.NEW, State.READY, State.DELAY, State.READY, State.DELAY)
_PATIENCE_S = 2.0
_PAUSE_S = 0.0005
_CHUNK_BYTES = 1024 * 1024
_uuid = re.compile(UUID7)


def state_of(
    tree: Tree, queue: str, name: str, inode: int, states: tuple[State, ...] = _STATES
) -> State | None:
    """Where the file of an inode stands as this message; None if it does not."""
    for state in states:
        found = tree.look(tree.path(state, queue, name))
        if found is not None and found.st_ino == inode:
            return state
    return None


def make_link(tree: Tree, queue: str, given_id: str, path: str, inode: int) -> bool:
    """Link a file; False if a message that stands in the queue has the id. Stale ones are replaced.

    Raises:
        FileNotFoundError: the queue has no index (any more).
        Unavailable: another process acts on the message of this id for too long.
        OSError
    """
    at = link_path(tree, queue, given_id)
    while True:
        try:
            tree.link(path, at)
            return True
        except FileExistsError:
            found = tree.look(at)
        if found is not None and found.st_ino == inode:
            return True
        held = hold(tree, at)
        if held is None:
            continue  # it has just gone
        try:
            if stands(tree, queue, held):
                return False
            _replace(tree, path, at)
            return True
        finally:
            held.unlock()


class Refused(Exception):
    """The message that has an id may not be replaced."""


def take_link(
    tree: Tree,
    queue: str,
    given_id: str,
    name: str,
    path: str,
    inode: int,
    is_free: Callable[[Given, os.stat_result], bool] = lambda given, found: True,
) -> tuple[str, int] | None:
    """Link a file, whatever had the id; name and inode of the message that it takes it from.

    name: of the new message. is_free: told of the other one, which is latched; raises Refused if it
    says no.

    Raises as `make_link`.
    """
    at = link_path(tree, queue, given_id)
    while not make_link(tree, queue, given_id, path, inode):
        held = hold(tree, at)
        if held is None:
            continue
        try:
            given = read_given(held.fd)
            if given is not None and not is_free(given, os.fstat(held.fd)):
                raise Refused
            if given is not None and held.inode != inode and _note(tree, queue, at, name, held):
                # Another put has been quicker than ours: it is another message than we had noted.
                tree.sync_folder(tree.folder(IDS, queue))
            _replace(tree, path, at)
            return None if given is None or held.inode == inode else (given.name, held.inode)
        finally:
            held.unlock()
    return None


def link_of_replaced(tree: Tree, queue: str, name: str) -> str:
    """The path of the second link of a message that another one is to replace, by its name."""
    found = _uuid.search(name)
    return tree.folder(IDS, f"{queue}/.{'' if found is None else found[0]}.old")


def note_replaced(tree: Tree, queue: str, given_id: str, name: str) -> None:
    """Give the message that has an id its second link, as one that is to be replaced.

    name: of the new message. It is durable with the next sync of the folder. Raises as `make_link`.
    """
    at = link_path(tree, queue, given_id)
    held = hold(tree, at)
    if held is not None:
        try:
            _note(tree, queue, at, name, held)
        finally:
            held.unlock()


def _note(tree: Tree, queue: str, at: str, name: str, held: Lock) -> bool:
    """Link what ``at`` leads to, which is locked; False if it was linked already."""
    path = link_of_replaced(tree, queue, name)
    found = tree.look(path)
    if found is not None and found.st_ino == held.inode:
        return False
    if found is not None:
        tree.unlink(path)
    tree.link(at, path)
    return True


def remove_replaced(tree: Tree, queue: str, name: str, inode: int) -> None:
    """Remove a message whose id another one has taken, wherever it stands. Raises OSError."""
    while (state := state_of(tree, queue, name, inode)) is not None:
        path = tree.path(state, queue, name)
        try:
            tree.rename(path, tree.path(State.REMOVE, queue, name), replace=True)
        except OSError as error:
            if not is_full(error):
                raise
            tree.unlink(path)


def finish_replacing(tree: Tree, queue: str, name: str, inode: int) -> None:
    """Remove, durably, what a complete message replaces that has its id and is not shown yet.

    Who calls holds the lock on that message, which keeps its writer from taking it back. Costs a
    look where it replaces none. Raises OSError.
    """
    path = link_of_replaced(tree, queue, name)
    try:
        fd = tree.open(path)
    except FileNotFoundError:
        return
    try:
        given, other = read_given(fd), os.fstat(fd).st_ino
    finally:
        os.close(fd)
    if given is not None and other != inode:
        remove_replaced(tree, queue, given.name, other)
        for folder in (tree.folder(QUEUES, queue), *map(tree.folder, (NEW, DELAY, REMOVE))):
            tree.sync_folder(folder)
    tree.unlink(path)


def forget_link(tree: Tree, queue: str, given_id: str, inode: int) -> bool:
    """Unlink a link if it leads to this file; False if it does not. Raises Unavailable, OSError."""
    at = link_path(tree, queue, given_id)
    found = tree.look(at)
    if found is None or found.st_ino != inode:
        return False
    held = hold(tree, at)
    if held is None:
        return False
    try:
        return held.inode == inode and tree.unlink(at)
    finally:
        held.unlock()


def show_unfinished(tree: Tree, queue: str, given_id: str) -> bool:
    """Show the message of a link that is written and not shown yet; whether the link leads to one.

    Raises Unavailable, OSError.
    """
    held = hold(tree, link_path(tree, queue, given_id))
    if held is None:
        return False
    try:
        return stands(tree, queue, held)
    finally:
        held.unlock()


def forget_latched_link(tree: Tree, queue: str, fd: int) -> None:
    """Unlink the link of an open message that the caller has latched. Raises OSError."""
    given = read_given(fd)
    if given is not None:
        at = link_path(tree, queue, given.id)
        found = tree.look(at)
        if found is not None and found.st_ino == os.fstat(fd).st_ino:
            tree.unlink(at)


def stands(tree: Tree, queue: str, held: Lock) -> bool:
    """Whether a file that we have locked is a message of a queue; raises OSError.

    One that is complete and not shown yet is shown: its writer may be dead, and have been told
    that it is stored. One that is alive is content.
    """
    given = read_given(held.fd)
    if given is None:
        return False  # its writer died, or has failed: it unlocks what is written
    if state_of(tree, queue, given.name, held.inode) is not None:
        return True
    staged = staged_entry(queue, given.name, _seal(held.fd))
    found = tree.look(tree.folder(NEW, staged))
    if found is not None and found.st_ino == held.inode:
        os.fsync(held.fd)
        tree.sync_folder(tree.folder(NEW))
        tree.sync_folder(tree.folder(IDS, queue))
        finish_replacing(tree, queue, given.name, held.inode)
        try:
            tree.rename(tree.folder(NEW, staged), tree.path(State.NEW, queue, given.name))
        except FileExistsError:
            return True
    return state_of(tree, queue, given.name, held.inode) is not None


def link_recovered(tree: Tree, staged_path: str, queue: str, name: str) -> bool | None:
    """Link a complete file that its writer has left; whether it may be promoted.

    A put is acknowledged when its link is durable. So what has none may still have one; and where
    another message has the id by now, this one was never acknowledged, or has been replaced.
    None: another process acts on that message now.
    """
    if ".h" not in name:
        return True
    try:
        fd = tree.open(staged_path)
    except FileNotFoundError:
        return True
    try:
        given, inode = read_given(fd), os.fstat(fd).st_ino
    finally:
        os.close(fd)
    if given is None or given.name != name:
        return True
    try:
        is_linked = make_link(tree, queue, given.id, staged_path, inode)
        tree.sync_folder(tree.folder(IDS, queue))
        if is_linked:
            held = lock(tree, staged_path, 0)
            if held is None:
                return None
            try:
                finish_replacing(tree, queue, name, inode)
            finally:
                held.unlock()
    except FileNotFoundError:
        return True  # the queue is gone, or has no index
    except Unavailable:
        return None
    return is_linked


def is_had_by_another(tree: Tree, path: str, queue: str) -> bool:
    """Whether another message that stands has the id of a file: a put that was cut off before it
    took the id. Changes nothing. Raises OSError."""
    found: list[tuple[Given, int]] = []
    for one in (path, ""):
        try:
            fd = tree.open(one or link_path(tree, queue, found[0][0].id))
        except FileNotFoundError:
            return False
        try:
            given, inode = read_given(fd), os.fstat(fd).st_ino
        finally:
            os.close(fd)
        if given is None:
            return False
        found.append((given, inode))
    given, inode = found[1]
    return inode != found[0][1] and state_of(tree, queue, given.name, inode) is not None


def relink(tree: Tree, path: str, queue: str) -> bool:
    """Give a message that has lost its link another one, unless one that stands has its id."""
    fd = tree.open(path)
    try:
        given, inode = read_given(fd), os.fstat(fd).st_ino
    finally:
        os.close(fd)
    parts = split_entry(f"{queue}:{path.rpartition('/')[2].rpartition(':')[2]}")
    if given is None or parts is None or parts[1] != given.name:
        return False
    is_linked = make_link(tree, queue, given.id, path, inode)
    tree.sync_folder(tree.folder(IDS, queue))
    return is_linked


def _replace(tree: Tree, path: str, at: str) -> None:
    draft = f"{at.rpartition('/')[0]}/.{uuid7()}.tmp"
    tree.link(path, draft)
    try:
        tree.rename(draft, at, replace=True)
    finally:
        tree.unlink(draft)


def hold(tree: Tree, at: str) -> Lock | None:
    """Lock the file to which a link leads; None if the link is gone. Raises Unavailable."""
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            held = lock(tree, at, 0)
        except FileNotFoundError:
            return None
        if held is not None:
            return held
        if time.monotonic() >= end:
            raise Unavailable("another process is acting on the message of this id right now")
        time.sleep(_PAUSE_S)


def _seal(fd: int) -> int:
    seal = offset = 0
    while chunk := os.pread(fd, _CHUNK_BYTES, offset):
        seal = seal_of(chunk, seal)
        offset += len(chunk)
    return seal
