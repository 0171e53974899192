"""Whether what overlapped can have been done one after the other, with what was told of it.

The search of Wing and Gong: next may come whatever began before all that is left is over. What was
seen once is not looked at again (Lowe).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True)
class Step(Generic[S]):
    """Something that was done at one moment from ``called`` to ``latest``.

    must: whether it was done for certain; otherwise it may have been left out.
    apply: gives the state after it; None where it cannot have gone as it was told.
    kind: of promise that is broken if it cannot. what: in words, for a story.
    """

    called: float
    latest: float
    must: bool
    apply: Callable[[S], S | None]
    kind: str = ""
    what: str = ""


def first_unexplained(steps: Sequence[Step[S]], first: S) -> Step[S] | None:
    """The step whose end leaves no order that explains all until then; None: all is explained."""
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
    """What had begun by a moment; of what was not over then no one knows if it was done."""
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
    """What may come next of those that are left, the most likely last."""
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
    """Leave out what can only have been done before ``now``, and so was not done at all."""
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
