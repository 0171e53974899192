"""Verbs in steps, so that an event loop can hand the long ones to a thread.

Such a verb is a generator. It yields when it has run for about as long as others may have to wait,
or when its next step takes longer. A thread runs it to its end at once. An event loop runs it to
the first yield, which most verbs never reach, and a thread does the rest.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]

# To read, write or unpack more bytes than this takes longer than to hand it to a thread.
LARGE_BYTES = 256 * 1024
# The work for this many messages takes about as long as others may have to wait.
FEW = 32
# What comes together is done for so many at a time; nobody who waits notices that.
MOST_AT_ONCE = 2 * FEW
# What one call of C may do with so many things, others wait for.
_PORTION = 10_000
# How long a thread goes on that makes call after call, and how long it then leaves off.
_TURN_S, _GAP_S = 0.002, 0.00005


def portions(things: Iterable[T], size: int = _PORTION) -> Iterator[list[T]]:
    """Many things as lists of a few: what C does with a whole list nothing can interrupt."""
    iterator = iter(things)
    while portion := list(islice(iterator, size)):
        yield portion


def giving_way(things: Iterable[T]) -> Iterator[T]:
    """The same things, for a loop that makes calls of the kernel for each, if they may be many.

    Each call gives the interpreter away, and has it back before a thread that waits for it has
    woken up. Nor does that thread ask for it, as it would if nobody gave it away for some
    milliseconds. So it would wait for as long as the loop goes on. Few things are given as they
    are: an event loop, too, comes here with them, and must not sleep.
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
    """Many names, sorted as far as the caller takes them.

    To sort a million at once takes half a second, in which nothing else can run.
    """
    return merge(*map(sorted, portions(names)))


def free_all(things: list[Any]) -> None:
    """Empty a list that nobody needs any more: to free many objects at once takes long, too."""
    while things:
        del things[-_PORTION:]


def finish(steps: Steps[T]) -> T:
    """Run a verb to its end; what it gives. Raises what it raises."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
