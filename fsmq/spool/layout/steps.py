"""Verbs in steps, so that an event loop can hand the long ones to a thread.

Such a verb is a generator. It yields when it has run for about as long as others may have to wait,
or when its next step takes longer. A thread runs it to its end at once. An event loop runs it to
the first yield, which most verbs never reach, and a thread does the rest.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]

# To read, write or unpack more bytes than this takes longer than to hand it to a thread.
LARGE_BYTES = 256 * 1024
# The work for this many messages takes about as long as others may have to wait.
FEW = 32


def portions(things: Iterable[T], size: int = 10_000) -> Iterator[list[T]]:
    """Many things as lists of a few: what C does with a whole list nothing can interrupt."""
    some = iter(things)
    while portion := list(islice(some, size)):
        yield portion


def finish(steps: Steps[T]) -> T:
    """Run a verb to its end; what it gives. Raises what it raises."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
