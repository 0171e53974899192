"""Frees the memory that failed requests leave behind.

An error refers to its traceback, the traceback to the local variables of all functions on the
stack, and these to bodies. If one of them refers back to the error, only the garbage collector
frees them, which runs rarely: see :func:`fsmq.daemons.process.start.settle_memory`.
"""

from __future__ import annotations

import ctypes
import gc

# When failed requests have held this much, the collector runs, in case they are part of a cycle,
# and the C library is told to return free memory, however small its pieces are.
_MOST_BYTES = 16 * 1024 * 1024
# This much is enough for the periodic call.
_LEAST_BYTES = 1024 * 1024
# The collector looks at this generation and younger ones, so long-lived objects, however many, cost
# it nothing.
_GENERATION = 1
_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it


class Leftovers:
    """Counts the bytes that failed requests have held."""

    def __init__(self) -> None:
        self._size = 0

    def add(self, size: int) -> None:
        """Count a failed request that held ``size`` bytes."""
        self._size += size
        if self._size >= _MOST_BYTES:
            self._collect()

    def collect_rest(self) -> None:
        """Called periodically: memory is released only a moment after it was counted."""
        if self._size >= _LEAST_BYTES:
            self._collect()

    def _collect(self) -> None:
        self._size = 0
        gc.collect(_GENERATION)
        if _trim is not None:
            _trim(0)


def forget_frames(error: BaseException | None) -> None:
    """Drop the tracebacks of an error and its causes, so that they keep nothing alive."""
    while error is not None:
        error.__traceback__ = None
        came_of = error.__cause__ or error.__context__
        error.__cause__ = error.__context__ = None
        error = came_of
