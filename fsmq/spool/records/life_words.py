"""The life of a message in words, for the command line and for pages."""

from __future__ import annotations

from fsmq.words import size

from ..layout.transitions import (
    ACCEPTED,
    BURIED,
    CLAIMED,
    DEFERRED,
    MOVED,
    REDELIVERED,
    RELEASED,
)
from .life import LifeStep

_BEGINNINGS = (ACCEPTED.event, MOVED.event)
_PROGRAMS = ("mover", "reaper")


def label(step: LifeStep, max_deliveries: int | None = None) -> str:
    """What happened: ``claimed, 2 of 5``."""
    if step.event != CLAIMED.event or step.deliveries is None:
        return step.event
    most = "" if max_deliveries is None else f" of {max_deliveries}"
    return f"{step.event}, {step.deliveries}{most}"


def details(step: LifeStep, before: LifeStep | None = None) -> str:
    """How it happened: ``for 30 s, by native, host b``. before: the step before it."""
    parts = []
    if step.event == MOVED.event:
        renamed = f" as {step.id}" if step.was is not None else ""
        parts.append(f"from {step.source or '?'} to {step.queue}{renamed}")
    if step.event == BURIED.event and step.target is not None:
        parts.append(f"to {step.target}{f' as {step.was}' if step.was is not None else ''}")
    if step.reason is not None:
        parts.append(f"“{step.reason}”")
    if step.event == REDELIVERED.event or (step.event == DEFERRED.event and step.deliveries):
        has_waited = before is not None and before.event in (RELEASED.event, DEFERRED.event)
        parts.append("its wait for a retry is over" if has_waited else "its claim ran out")
    if step.claim is not None:
        parts.append(f"for {span(step.claim)}")
    if step.via is not None:
        parts.append(f"by the {step.via}" if step.via in _PROGRAMS else f"by {step.via}")
    if step.host is not None:
        parts.append(f"host {step.host}")
    if step.event == ACCEPTED.event and step.size is not None:
        parts.append(size(step.size))
    return ", ".join(parts)


def gap(steps: list[LifeStep]) -> str | None:
    """Why a life may be incomplete; None if its beginning is there."""
    # Not just the first one: of two steps within milliseconds the later can have the earlier time.
    if any(step.event in _BEGINNINGS for step in steps):
        return None
    what = "its first steps are" if steps else "it is"
    return (
        f"{what} not in the journal: that was off, or its segments have expired, or it had no room"
        " for the lines, or who acted keeps none: mv, or a command on the folder"
    )


def span(seconds: float) -> str:
    """A span of time to two digits or more: ``65 ms``, ``30.0 s``, ``12 min``, ``3.5 h``."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"
