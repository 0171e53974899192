"""Checks whether concurrent operations with their results are linearizable.

The search of Wing and Gong: the next operation is one that began before the end of every other that
is left. States that were visited before are skipped (Lowe).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True)
class Step(Generic[S]):
    """An operation that took effect at one moment from ``called`` to ``latest``.

    must: whether it was done for certain; otherwise it may not have happened.
    apply: returns the state after it; None if its result is impossible in a state.
    kind: the promise that it breaks if it is impossible. what: its text for a story.
    """

    called: float
    latest: float
    must: bool
    apply: Callable[[S], S | None]
    kind: str = ""
    what: str = ""


def first_unexplained(steps: Sequence[Step[S]], first: S) -> Step[S] | None:
    """The first step until whose end no order explains all steps; None if an order exists."""
    if _explains(steps, first):
        return None
    ends = sorted((step for step in steps if step.must), key=lambda step: step.latest)
    low, high = 0, len(ends) - 1
    while low < high:
        middle = (low + high) // 2
        if _explains(list(_until(steps, ends[middle].latest)), first):
            low = middle + 1
        else:
            high = middle
    return ends[low]


def _until(steps: Sequence[Step[S]], moment: float) -> Iterator[Step[S]]:
    """The steps that had begun by a moment; those that had not ended are uncertain."""
    for step in steps:
        if step.called <= moment:
            yield step if step.latest <= moment else replace(step, must=False)


def _explains(steps: Sequence[Step[S]], first: S) -> bool:
    ordered = sorted(steps, key=lambda step: step.called)
    musts = sum(1 << n for n, step in enumerate(ordered) if step.must)
    start = ((1 << len(ordered)) - 1, first)
    seen = {start}
    stack = [start]
    while stack:
        left, state = stack.pop()
        if not left & musts:
            return True
        for n in _next(ordered, left):
            after = ordered[n].apply(state)
            if after is None:
                continue
            then = (_without_missed(ordered, left & ~(1 << n), ordered[n].called), after)
            if then not in seen:
                seen.add(then)
                stack.append(then)
    return False


def _next(ordered: Sequence[Step[S]], left: int) -> list[int]:
    """The steps that may come next, the most likely last."""
    bound = float("inf")
    found = []
    for n in _bits(left):
        step = ordered[n]
        if step.called > bound:
            break
        found.append(n)
        if step.must:
            bound = min(bound, step.latest)
    found = [n for n in found if ordered[n].called <= bound]
    return sorted(found, key=lambda n: (ordered[n].must, -ordered[n].latest))


def _without_missed(ordered: Sequence[Step[S]], left: int, now: float) -> int:
    """Remove steps that can only have been done before ``now``, and so were not done."""
    for n in _bits(left):
        if ordered[n].called > now:
            break
        if ordered[n].latest < now:
            left &= ~(1 << n)
    return left


def _bits(number: int) -> Iterator[int]:
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest
