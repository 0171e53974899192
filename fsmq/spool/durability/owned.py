"""Locks that belong to an object and are released with it.

So if an exception (Ctrl-C) interrupts the caller, wherever it comes, the lock is released once
nothing refers to the object.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
import weakref
from typing import ClassVar

_PAUSE_S = 0.0001


class OwnedFile:
    """An open file of this process, until :meth:`close` or the end of this object.

    A child closes its copies: they would keep the locks of a parent that is killed.
    """

    # The open descriptors, by the `id` of their objects.
    _opened: ClassVar[dict[int, int]] = {}

    def __init__(self, fd: int) -> None:
        self.fd = self._opened[id(self)] = fd

    @property
    def is_open(self) -> bool:
        """Whether the file is open, and not our parent's."""
        return id(self) in self._opened

    def close(self) -> None:
        """Release the locks and close the file."""
        if id(self) in self._opened:
            # Unlock first: a child may have a copy of the descriptor until it runs another program.
            # It is still registered then: if this is interrupted, `__del__` does the rest.
            try:
                self._unlock()
            except OSError:
                pass  # there was no lock
            os.close(self._release())

    def __del__(self) -> None:
        # In as few steps as possible: an exception that is raised here is lost.
        fd = self._opened.pop(id(self), -1)
        if fd >= 0:
            os.close(fd)

    def _unlock(self) -> None:
        fcntl.flock(self.fd, fcntl.LOCK_UN)

    def _release(self) -> int:
        """The descriptor, which is the caller's from now on."""
        return self._opened.pop(id(self))

    @classmethod
    def _leave_to_parent(cls) -> None:
        for fd in cls._opened.values():
            os.close(fd)
        cls._opened.clear()


os.register_at_fork(after_in_child=OwnedFile._leave_to_parent)


class Turnstile:
    """Lets one thread in at a time."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._inside: weakref.ref[_Passage] | None = None

    def passed(self, patience_s: float) -> _Passage:
        """Keep other threads out; False if one stays in for ``patience_s`` seconds."""
        return _Passage(self, patience_s)

    def let_in(self, one: _Passage) -> bool:
        """Let one in, if no other is."""
        with self._guard:
            is_free = self._inside is None or self._inside() is None
            if is_free:
                self._inside = weakref.ref(one)
            return is_free

    def let_out(self, one: _Passage) -> None:
        """Let others in, if this one was in."""
        if self._inside is not None and self._inside() is one:
            self._inside = None


class _Passage:
    def __init__(self, turnstile: Turnstile, patience_s: float) -> None:
        self._turnstile = turnstile
        self._patience_s = patience_s

    def __enter__(self) -> bool:
        if self._turnstile.let_in(self):
            return True
        end = time.monotonic() + self._patience_s
        while time.monotonic() < end:
            time.sleep(_PAUSE_S)
            if self._turnstile.let_in(self):
                return True
        return False

    def __exit__(self, *exception: object) -> None:
        self._turnstile.let_out(self)
