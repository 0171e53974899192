"""Reservations: they keep two puts of one own id apart, on whatever host.

A reservation is a name ``new/.<queue>:<id>:own`` of a file that its holder has locked (flock). The
lock ends with its holder, however that ends: a crash leaves a file, and never an id that no one can
put. All names that a batch holds are links of one file: one lock, and one open descriptor.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Iterable

from .names import reservation
from .transitions import NEW
from .tree import Tree

# A file has as many names as it may have, or the filesystem knows no links: take another file.
_NO_LINK = (errno.EMLINK, errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)
_name = re.compile(r"\..+:[^:]+:own")


def is_reservation(name: str) -> bool:
    """Whether a dot-name of ``new/`` is one."""
    return _name.fullmatch(name) is not None


class Reservation:
    """One that is held, until :meth:`free`."""

    def __init__(self, tree: Tree, path: str, fd: int) -> None:
        self._tree = tree
        self._path = path
        self._fd = fd

    def let_go(self) -> None:
        """End the lock and leave the file."""
        os.close(self._fd)

    def free(self) -> None:
        """Give the id free. Raises OSError."""
        try:
            # Before the lock ends: whoever gets it next must see that the name is gone.
            self._tree.unlink(self._path)
        finally:
            self.let_go()


class Reservations:
    """Many ids behind one lock. Methods raise OSError."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._locked: list[Reservation] = []
        self._names: set[str] = set()
        self._newest = ""  # a name of the file that was locked last

    def take(self, queue: str, message_id: str) -> bool:
        """Reserve one more id; False if someone else holds it."""
        name = self._tree.folder(NEW, reservation(queue, message_id))
        if name in self._names:
            return False
        while not self._link(name):
            try:
                stale = lock(self._tree, name, 0)
            except FileNotFoundError:
                continue  # its holder has just given it free
            if stale is None:
                return False
            stale.free()
        self._names.add(name)
        return True

    def free(self, queue: str, message_ids: Iterable[str]) -> None:
        """Give ids free that were taken."""
        first: OSError | None = None
        for message_id in message_ids:
            name = self._tree.folder(NEW, reservation(queue, message_id))
            self._names.discard(name)
            try:
                self._tree.unlink(name)
            except OSError as error:
                first = first or error
        if not self._names:
            for locked in self._locked:
                locked.let_go()
            self._locked = []
        if first is not None:
            raise first

    def _link(self, name: str) -> bool:
        """Make a name of a locked file; False if it stands there, for whomever."""
        if self._locked:
            try:
                self._tree.link(self._newest, name)
                return True
            except FileExistsError:
                # Over NFS an answer may have been lost, and the call made twice.
                return self._is_ours(name)
            except FileNotFoundError:
                pass  # someone removed it by hand
            except OSError as error:
                if error.errno not in _NO_LINK:
                    raise
        first = lock(self._tree, name, os.O_CREAT)
        if first is None:
            return False
        self._locked.append(first)
        self._newest = name
        return True

    def _is_ours(self, name: str) -> bool:
        here, ours = self._tree.stat(name), self._tree.stat(self._newest)
        return here is not None and ours is not None and here.st_ino == ours.st_ino


def reserve(tree: Tree, queue: str, message_id: str) -> Reservation | None:
    """Reserve an id; None if someone else holds it. Raises OSError."""
    return lock(tree, tree.folder(NEW, reservation(queue, message_id)), os.O_CREAT)


def is_stale(tree: Tree, name: str) -> bool:
    """Whether a reservation of ``new/`` stands there and its holder is gone. Raises OSError."""
    path = tree.folder(NEW, name)
    return tree.stat(path) is not None and not is_held(tree, path)


def clear_stale(tree: Tree, name: str) -> bool:
    """Remove a reservation of ``new/`` whose holder is gone; False if there is one. OSError."""
    return clear_lock(tree, tree.folder(NEW, name))


def is_held(tree: Tree, path: str) -> bool:
    """Whether a lock's file stands there and someone holds it. Raises OSError."""
    try:
        found = lock(tree, path, 0)
    except FileNotFoundError:
        return False
    if found is None:
        return True
    found.let_go()
    return False


def clear_lock(tree: Tree, path: str) -> bool:
    """Remove a lock's file that nobody holds; False if someone does. Raises OSError."""
    try:
        stale = lock(tree, path, 0)
    except FileNotFoundError:
        return False
    if stale is None:
        return False
    stale.free()
    return True


def lock(tree: Tree, path: str, create: int) -> Reservation | None:
    """Lock a file, made where ``create`` is O_CREAT; None if someone else holds it. OSError."""
    while True:
        fd = tree.create_with(path, os.O_RDWR | create)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            here = tree.stat(path)
            if here is not None and here.st_ino == os.fstat(fd).st_ino:
                return Reservation(tree, path, fd)
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # its holder unlinked it between our open and our lock
