"""Verbs in steps, so that an event loop can hand the long ones to a thread.

Such a verb is a generator. It yields when it has run for about as long as others can be kept
waiting, or before a step that takes longer. A thread runs it straight to its end. An event loop
runs it to the first yield, which most verbs never reach, and a thread does the rest.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]

# Reading, writing or unpacking more bytes than this takes longer than handing it to a thread.
LARGE_BYTES = 256 * 1024
# The work for this many messages takes about as long as others can be kept waiting.
FEW = 32
# Work that arrives together is done for this many at a time, which delays others unnoticeably.
MOST_AT_ONCE = 2 * FEW
# The most things that one call of C handles, as other threads wait for it.
_PORTION = 10_000
# How long a thread makes call after call, and how long it then pauses.
_TURN_S, _GAP_S = 0.002, 0.00005


def portions(things: Iterable[T], size: int = _PORTION) -> Iterator[list[T]]:
    """Split many things into short lists: nothing can interrupt C while it handles a list."""
    iterator = iter(things)
    while portion := list(islice(iterator, size)):
        yield portion


def giving_way(things: Iterable[T]) -> Iterator[T]:
    """Iterate over things, possibly many, in a loop that makes system calls for each.

    Each system call releases the GIL, but takes it back before a waiting thread has woken up. Nor
    does that thread demand it, as it would if it were held for some milliseconds. So the thread
    would wait as long as the loop runs. A few things are returned as they are: event loops iterate
    over those, too, and must not sleep.
    """
    if isinstance(things, (list, tuple)) and len(things) <= MOST_AT_ONCE:
        return iter(things)
    return _giving_way(things)


def _giving_way(things: Iterable[T]) -> Iterator[T]:
    until = time.monotonic() + _TURN_S
    for thing in things:
        if time.monotonic() >= until:
            time.sleep(_GAP_S)
            until = time.monotonic() + _TURN_S
        yield thing


def in_order(names: Iterable[str]) -> Iterator[str]:
    """Many names, sorted lazily as the caller takes them.

    Sorting a million at once takes half a second, in which nothing else can run.
    """
    return merge(*map(sorted, portions(names)))


def free_all(things: list[Any]) -> None:
    """Empty a list that is no longer needed: freeing many objects at once takes long, too."""
    while things:
        del things[-_PORTION:]


def finish(steps: Steps[T]) -> T:
    """Run a verb to its end and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
