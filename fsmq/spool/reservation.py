"""Reservations: they keep two puts of one own id apart, on whatever host.

A reservation is a file ``new/.<queue>:<id>:own`` that its holder has locked (flock). The lock ends
with its holder, however that ends: a crash leaves a file, and never an id that no one can put.
"""

from __future__ import annotations

import fcntl
import os
import re

from .names import reservation
from .transitions import NEW
from .tree import Tree

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


def reserve(tree: Tree, queue: str, message_id: str) -> Reservation | None:
    """Reserve an id; None if someone else holds it. Raises OSError."""
    return lock(tree, tree.folder(NEW, reservation(queue, message_id)), os.O_CREAT)


def is_stale(tree: Tree, name: str) -> bool:
    """Whether a reservation of ``new/`` stands there and its holder is gone. Raises OSError."""
    try:
        stale = lock(tree, tree.folder(NEW, name), 0)
    except FileNotFoundError:
        return False
    if stale is None:
        return False
    stale.let_go()
    return True


def clear_stale(tree: Tree, name: str) -> bool:
    """Remove a reservation of ``new/`` whose holder is gone; False if there is one. OSError."""
    try:
        stale = lock(tree, tree.folder(NEW, name), 0)
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
