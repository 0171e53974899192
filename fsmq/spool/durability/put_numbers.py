"""Numbers of puts: a dot-name that ends in one is left alone while the number is locked.

A number is a byte of ``ids/.puts``. A process draws one and keeps it for its next put, so most puts
make no call for it. A put by a given id has the number of the id, in the index of the queue. The
lock ends with the process, or when nothing refers to the put any more. Then recovery takes the lock
and finishes what the put has left: docs/decisions/0018-one-lock-an-id.md.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from ..errors import is_full
from ..layout.transitions import IDS
from ..layout.tree import Tree
from .byte_locks import HAS_BYTES, ByteLocks
from .ids import LOCK

PUTS = ".puts"
_DRAWS = 8
# The file is another user's, or there are no such locks: recovery goes by age then.
CANNOT = (
    errno.EACCES,
    errno.EPERM,
    errno.EINVAL,
    errno.ENOLCK,
    errno.ENOSYS,
    errno.EOPNOTSUPP,
)


class PutNumber:
    """A locked number, for one put at a time. Its lock ends with this object, also when an
    exception (Ctrl-C) comes where nobody ends the put."""

    __slots__ = ("file", "value")

    def __init__(self, file: ByteLocks, value: int) -> None:
        self.file = file
        self.value = value

    def give(self) -> None:
        """Unlock it: recovery finishes what the put has left."""
        if self.file.is_open:
            self.file.give(self.value)

    def __del__(self) -> None:
        self.give()


class PutNumbers:
    """The numbers that this process has locked. Safe in threads, and on both sides of a fork.

    The locks are shared: if two processes draw the same number, recovery waits for both.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._forget()

    def take(self) -> PutNumber | None:
        """A number that no other put of this process has; None where numbers cannot be locked."""
        if self._pid != os.getpid():
            self._forget()
        try:
            return self._free.pop()
        except IndexError:
            return self._draw() if HAS_BYTES else None

    def end(self, number: PutNumber | None, *, is_over: bool) -> None:
        """End a put. is_over: none of its dot-names is left, so another put can have the number."""
        if number is None:
            return
        if not is_over:
            number.give()
        elif number.file is self._file:  # not our parent's
            self._free.append(number)

    def hold(self, byte: int) -> PutNumber | None:
        """Lock a byte beyond all numbers; None if it cannot be locked. Raises OSError."""
        if self._pid != os.getpid():
            self._forget()
        if not HAS_BYTES:
            return None
        with self._drawing:
            try:
                file = self._opened()
                return PutNumber(file, byte) if file.take(byte) else None
            except OSError as error:
                if error.errno not in CANNOT and not is_full(error):
                    raise
        return None

    def close(self) -> None:
        """End all locks."""
        if self._file is not None:
            self._file.close()
        self._forget()

    def _forget(self) -> None:
        self._free: list[PutNumber] = []
        self._file: ByteLocks | None = None
        self._drawn: set[int] = set()
        self._drawing = threading.Lock()
        self._pid = os.getpid()

    def _opened(self) -> ByteLocks:
        if self._file is None:
            self._file = ByteLocks(self._tree, self._tree.folder(IDS, PUTS), shared=True)
        return self._file

    def _draw(self) -> PutNumber | None:
        with self._drawing:
            try:
                file = self._opened()
                for _ in range(_DRAWS):
                    number = int.from_bytes(os.urandom(4))
                    if number not in self._drawn and file.take(number):
                        self._drawn.add(number)
                        return PutNumber(file, number)
            except OSError as error:
                if error.errno not in CANNOT:
                    raise
        return None


@contextmanager
def left_by_dead(tree: Tree, queue: str, number: int) -> Iterator[bool]:
    """Whether the put with a number has given up, or its process is dead.

    Within the context no other put gets the number. It can be that of a given id. OSError.
    """
    with ExitStack() as files:
        is_free = True
        for path in (tree.folder(IDS, PUTS), f"{tree.folder(IDS, queue)}/{LOCK}"):
            with suppress(FileNotFoundError):  # the queue has no index
                file = ByteLocks(tree, path)
                files.callback(file.close)
                is_free = is_free and file.take(number) and file.stands()
        yield is_free
