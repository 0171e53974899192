"""What requests leave behind that ended badly, and how it goes.

An error that is kept leads to its traceback, that to the variables of all functions that were
called, and these to bodies. If one of them leads back to the error, only the collector of cycles
frees them, which comes late: see :func:`fsmq.daemons.process.start.settle_memory`.
"""

from __future__ import annotations

import ctypes
import gc

# When what ended badly has held so much, the collector is called, as there may be a cycle that
# nobody has thought of; and the C library is told to return what is free, however small its
# pieces are.
_MOST_BYTES = 16 * 1024 * 1024
# So much is worth it when there is nothing else to do.
_LEAST_BYTES = 1024 * 1024
# The collector looks at all objects of this generation, and of younger ones. What lives for long is
# in none of them, however much there is of it.
_GENERATION = 1
_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it


class Leftovers:
    """Counts what requests have held that ended badly."""

    def __init__(self) -> None:
        self._size = 0

    def add(self, size: int) -> None:
        """Take note of a request that has ended badly; it held so many bytes."""
        self._size += size
        if self._size >= _MOST_BYTES:
            self._collect()

    def look_after(self) -> None:
        """Called now and then: the last of what was held goes a moment after it was counted."""
        if self._size >= _LEAST_BYTES:
            self._collect()

    def _collect(self) -> None:
        self._size = 0
        gc.collect(_GENERATION)
        if _trim is not None:
            _trim(0)


def forget_frames(error: BaseException | None) -> None:
    """Let an error, and those that it came of, keep nothing but their words."""
    while error is not None:
        error.__traceback__ = None
        came_of = error.__cause__ or error.__context__
        error.__cause__ = error.__context__ = None
        error = came_of
