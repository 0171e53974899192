"""Suspects: entries that looked wrong once and are checked again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from .report import Fault, Finding, Kind

_MAX_ROUNDS = 30


class Suspect(NamedTuple):
    """A fault that was seen once, and how to check it again."""

    fault: Fault
    look: Callable[[], Fault | None]


def settle(suspects: list[Suspect], pause: float) -> list[Suspect]:
    """Check the suspects repeatedly, as long as some of them turn out to be right.

    So a check waits, for example, until the deletion of a queue has finished.
    """
    for _ in range(_MAX_ROUNDS):
        if not suspects:
            break
        time.sleep(pause)
        left = look_again(suspects)
        settled = len(left) == len(suspects)
        suspects = left
        if settled:
            break
    return suspects


def look_again(suspects: list[Suspect]) -> list[Suspect]:
    """The suspects that are still wrong."""
    faults = [(suspect.look(), suspect.look) for suspect in suspects]
    return [Suspect(fault, look) for fault, look in faults if fault is not None]


def grouped(faults: list[Fault]) -> list[Finding]:
    """The findings; faults of one kind and one group are one finding."""
    result: list[Finding] = []
    places: dict[tuple[Kind, str], int] = {}
    for fault in faults:
        key = (fault.finding.kind, fault.group)
        if fault.group and key in places:
            old = result[places[key]]
            result[places[key]] = replace(old, count=old.count + 1)
        else:
            places[key] = len(result)
            result.append(fault.finding)
    return result
