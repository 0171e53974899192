"""Locks on files, which end with their process; and reservations, the locks on own ids.

A reservation excludes two simultaneous puts of one own id, on any hosts. It is a name
``new/.<queue>:<id>:own`` of a file that a process has locked (flock). The lock ends with the
process: a crash leaves a file, but never an id that can no longer be put. All names of one batch
are links of one file: one lock, and one open descriptor.

If a crash left a reservation, a message of this id may be written but not shown. It is promoted or
removed before the id is free again. Otherwise it could be shown beside its retry, which has another
dot-name if it differs in a single byte.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import TypeVar

from ..errors import InUse, is_full
from ..layout.names import reservation
from ..layout.steps import giving_way
from ..layout.transitions import NEW
from ..layout.tree import Tree
from .owned import OwnedFile
from .unfinished import Recovered, finish, own_id

# Errors of a lock call where the filesystem has no locks.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
# The file has the maximum number of links, or the filesystem has no links: use another file.
_NO_LINK = (errno.EMLINK, errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)
T = TypeVar("T")
_name = re.compile(r"\..+:[^:]+:own")
_waits: ContextVar[bool] = ContextVar("waits", default=True)


def without_waiting(function: Callable[..., T], *arguments: object) -> T:
    """Call a function during which ``wait_for`` does not wait."""
    token = _waits.set(False)
    try:
        return function(*arguments)
    finally:
        _waits.reset(token)


def may_wait() -> bool:
    """False within `without_waiting`."""
    return _waits.get()


def is_reservation(name: str) -> bool:
    """Whether a dot-name of ``new/`` is a reservation."""
    return _name.fullmatch(name) is not None


class Lock(OwnedFile):
    """A file that this process has locked, until :meth:`free` or the end of this object."""

    def __init__(self, tree: Tree, path: str, fd: int) -> None:
        super().__init__(fd)
        self._tree = tree
        self._path = path

    @property
    def inode(self) -> int:
        """The number of the locked file. Raises OSError."""
        return os.fstat(self.fd).st_ino

    def stands(self) -> bool:
        """Whether the file is still the one at its path. Raises OSError."""
        here = self._tree.look(self._path)
        return here is not None and here.st_ino == self.inode

    def write(self, content: bytes) -> None:
        """Replace the file's content, which is only for people to read. Raises OSError."""
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, content, 0)

    def unlock(self) -> None:
        """End the lock and leave the file."""
        self.close()

    def free(self) -> None:
        """Remove the file, then end the lock. A file that stays locks nobody out."""
        if not self.is_open:
            return  # it is our parent's
        try:
            # Before unlocking: the next process that locks the file must see that it is gone.
            with suppress(OSError):
                self._tree.unlink(self._path)
        finally:
            self.unlock()


class Reservations:
    """Many ids reserved with one lock. Methods raise OSError."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._locked: list[Lock] = []
        self._names: set[str] = set()
        self._newest = ""  # a name of the file that was locked last

    def take(self, queue: str, message_id: str) -> bool:
        """Reserve one more id; False if another process has reserved it.

        A message that a dead process has written is promoted or removed first: afterwards check
        whether the id exists.
        """
        name = reservation(queue, message_id)
        path = self._tree.folder(NEW, name)
        if path in self._names:
            return False
        while not self._link(path):
            if settle(self._tree, [name]) is None:
                return False
        self._names.add(path)
        return True

    def free(self, queue: str, message_ids: Iterable[str], unfinished: Container[str] = ()) -> None:
        """Free ids that are reserved.

        unfinished: ids whose messages could not be removed. Their reservations stay, as after a
            crash: the next process that finds one removes the message.
        """
        first: OSError | None = None
        for message_id in giving_way(message_ids):
            name = self._tree.folder(NEW, reservation(queue, message_id))
            self._names.discard(name)
            if message_id in unfinished:
                continue
            try:
                self._tree.unlink(name)
            except OSError as error:
                first = first or error
        if not self._names:
            for locked in self._locked:
                locked.unlock()
            self._locked = []
        if first is not None:
            raise first

    def _link(self, name: str) -> bool:
        """Give a locked file this name too; False if the name exists."""
        if self._locked:
            try:
                self._tree.link(self._newest, name)
                return True
            except FileExistsError:
                # Over NFS an answer can get lost, and the client repeats the call.
                return self._is_ours(name)
            except FileNotFoundError:
                pass  # it was removed by hand
            except OSError as error:
                if error.errno not in _NO_LINK:
                    raise
        try:
            first = lock(self._tree, name, os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return False
        if first is None:
            return False
        self._locked.append(first)
        self._newest = name
        return True

    def _is_ours(self, name: str) -> bool:
        here, ours = self._tree.look(name), self._tree.stat(self._newest)
        return here is not None and ours is not None and here.st_ino == ours.st_ino


def reserve(tree: Tree, queue: str, message_id: str) -> Lock | None:
    """Reserve an id, as :meth:`Reservations.take` does; None if another process has it. OSError."""
    name = reservation(queue, message_id)
    while True:
        try:
            return lock(tree, tree.folder(NEW, name), os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            if settle(tree, [name]) is None:
                return None


def patiently(attempt: Callable[[], T], patience_s: float, pause_s: float = 0.002) -> T:
    """Try to get a lock for up to ``patience_s`` seconds; returns the last answer."""
    end = time.monotonic() + patience_s
    while not (found := attempt()) and time.monotonic() < end:
        time.sleep(pause_s)
    return found


def wait_for(attempt: Callable[[], T | None], patience_s: float, why: str) -> T:
    """Try to get a lock for up to ``patience_s`` seconds; then raise InUse(why)."""
    found = patiently(attempt, patience_s if may_wait() else 0.0)
    if not found:
        raise InUse(why)
    return found


def hold(tree: Tree, path: str, patience_s: float, *, even_if_full: bool = False) -> Lock | None:
    """Lock a file, created if it is missing; None where there are no locks.

    even_if_full: return None, too, if there is no room for the file.

    Raises InUse if another process keeps it locked for ``patience_s`` seconds, OSError.
    """
    why = f"another process holds {tree.root / path}: it may be stopped"
    try:
        return wait_for(lambda: lock(tree, path, os.O_CREAT), patience_s, why)
    except OSError as error:
        if error.errno in NO_LOCKS or (even_if_full and is_full(error)):
            return None
        raise


def is_stale(tree: Tree, name: str) -> bool:
    """Whether a reservation of ``new/`` exists and its process is gone. Raises OSError."""
    path = tree.folder(NEW, name)
    return tree.stat(path) is not None and not is_held(tree, path)


def settle(tree: Tree, names: Sequence[str]) -> Recovered | None:
    """Finish the messages of dead processes, then remove the reservations that they left.

    None if live processes have all of them; otherwise this lists ``new/`` once. Raises OSError.
    """
    dead: list[Lock] = []
    is_any_held = False
    first: OSError | None = None
    try:
        for name in names:
            try:
                found = lock(tree, tree.folder(NEW, name), 0)
            except FileNotFoundError:
                continue  # its process has just freed it
            except OSError as error:
                first = first or error
                continue
            if found is not None:
                dead.append(found)
            is_any_held |= found is None
        done = _finish_all(tree, {one.inode for one in dead}) if dead else Recovered()
    finally:
        for one in dead:
            one.unlock()
    if first is not None:
        raise first
    return None if is_any_held and not dead else done


def _finish_all(tree: Tree, inodes: Container[int]) -> Recovered:
    """Finish what the dead owners of these locks wrote; the locks are ours now. Raises OSError."""
    # Listed while we have the locks, so nobody adds a name.
    names = [name for name in tree.names(tree.folder(NEW)) if name[0] == "."]
    left = set()
    for name in names:
        if is_reservation(name):
            found = tree.stat(tree.folder(NEW, name))
            if found is not None and found.st_ino in inodes:
                left.add(name)
    promoted = removed = 0
    first: OSError | None = None
    for name in names:
        own = own_id(name)
        if own is None or (reserved := reservation(*own)) not in left:
            continue
        try:
            done = finish(tree, name)
        except OSError as error:
            first = first or error
            left.discard(reserved)  # the reservation stays for the next try
            continue
        promoted += done.promoted
        removed += done.removed
    # Before unlocking: the next process that locks a file must see that its name is gone.
    removed += sum(tree.unlink(tree.folder(NEW, name)) for name in left)
    if first is not None:
        raise first
    return Recovered(promoted, removed)


def is_held(tree: Tree, path: str) -> bool:
    """Whether a file exists and a process has locked it. Raises OSError."""
    try:
        found = lock(tree, path, 0)
    except FileNotFoundError:
        return False
    if found is None:
        return True
    found.unlock()
    return False


def free_lock(tree: Tree, path: str, may: Callable[[], bool] = lambda: True) -> bool:
    """Remove the file of a lock, unless a process has locked it; then False. Raises OSError.

    may: called under the lock; the file stays if it returns False.
    """
    try:
        stale = lock(tree, path, 0)
    except FileNotFoundError:
        return False
    if stale is None:
        return False
    try:
        return may() and tree.unlink(path)
    finally:
        stale.unlock()


def lock(tree: Tree, path: str, create: int) -> Lock | None:
    """Lock a file, which O_CREAT in ``create`` creates; None if another process has it. OSError.

    With O_EXCL as well it raises FileExistsError if the file exists, locked or not.
    """
    while True:
        held = Lock(tree, path, tree.create(path, os.O_RDWR | create))
        is_ours = False
        try:
            fcntl.flock(held.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = held.stands()
        except BlockingIOError:
            return None
        except BaseException as error:
            if isinstance(error, OSError) and error.errno == errno.ESTALE:
                continue  # a process of another host has unlinked it
            if create & os.O_EXCL:
                tree.unlink(path)  # where there are no locks it would stay forever
            raise
        finally:
            if not is_ours:
                held.close()  # or it was unlinked between our open and our lock
        if is_ours:
            return held
