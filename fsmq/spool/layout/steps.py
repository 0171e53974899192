"""Verbs in steps: what may take long says so before, and goes on wherever it may take long.

Such a verb is a generator that yields when it has been at work for about as long as others may be
held up, or when what comes next takes longer. Whoever has time runs it to its end at once; an event
loop runs it to the first yield, which most never come to, and has a thread do the rest.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]

# To read, write or unpack more bytes than this takes longer than to hand it to a thread.
LARGE_BYTES = 256 * 1024
# So many messages, with all that is done for each, take about as long.
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
