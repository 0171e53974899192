"""Inspects each crash state of recorded steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from tests.replay.place import remove_tree
from tests.replay.recorder import Step
from tests.replay.states import Files, Reading, crash_states

P = TypeVar("P")


def inspect_states(
    place: Path,
    before: Files,
    steps: Sequence[Step],
    first: Callable[[], P],
    inspect: Callable[[P], None],
    readings: Iterable[Reading] = tuple(Reading),
    from_step: int = 0,
) -> int:
    """Write each crash state to a place and inspect it with its promises; the number of states.

    first: the promises before the steps. readings, from_step: as in `crash_states`.
    """
    seen: set[object] = set()
    for _, files, marks in crash_states(before, steps, readings, from_step):
        key = (files.key, len(marks))
        if key in seen:
            continue
        seen.add(key)
        promised = first()
        for mark in marks:
            mark.what(promised)
        files.write_to(place)
        inspect(promised)
        remove_tree(str(place))
    return len(seen)
