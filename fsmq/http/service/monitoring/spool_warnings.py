"""Warnings about a spool, shown on its pages: one sentence each."""

from __future__ import annotations

import time
from collections.abc import Iterator

from fsmq.spool import Spool
from fsmq.spool.inspection import Left, Reports, Snapshot, left, limits_reached, peers, try_to_store

_FEW = 0.1  # of the capacity of a filesystem
_CLOCK_S = 1.0
# How long after the last dropped line of the journal there is a warning.
_DROPPED_S = 600.0
_LONG_PAUSE_S = 86_400.0
# The work of movers, by its name in their metrics.
_WORKS = {"new": "delivers messages", "timers": "ends claims and delays"}


class SpoolWarnings:
    """Looks for warnings. It writes to the disk, so callers have to cache the result briefly."""

    def __init__(self, spool: Spool, reports: Reports) -> None:
        self._spool = spool
        self._reports = reports
        self._dropped = 0
        self._dropped_at = -_DROPPED_S

    def look(self) -> list[str]:
        """The warnings; a disk that fails is one of them, and raises nothing."""
        try:
            return list(self._all())
        except OSError as error:
            return [f"The disk fails: {error.strerror}."]

    def _all(self) -> Iterator[str]:
        yield from _of_room(left(self._spool.tree.fd))
        yield from self._of_programs([one.snapshot for one in self._reports.read()])
        for beat in peers.beats(self._spool.tree):
            if beat.is_alive and beat.clock is not None and abs(beat.clock) > _CLOCK_S:
                apart = f"{abs(beat.clock):.1f} s"
                yield f"The clock of {beat.node} differs by {apart} from the filesystem's."
        try_to_store(self._spool.tree)

    def _of_programs(self, others: list[Snapshot]) -> Iterator[str]:
        seen = {key[1] for one in others for key in one.gauges if key[0] == "lag"}
        for work, done in _WORKS.items():
            if work not in seen:
                yield f"No mq-mover {done}: start one."
        own = self._spool.context.metrics.snapshot_quietly()
        for limit in limits_reached((own, *others)):
            yield f"Folders are listed instead of watched: raise {limit}."
        dropped = sum(one.counts.get(("journal_dropped",), 0) for one in (own, *others))
        if dropped > self._dropped:
            self._dropped_at = time.monotonic()
        self._dropped = dropped
        if time.monotonic() - self._dropped_at < _DROPPED_S:
            yield "The journal had no room for all steps: some histories will have gaps."


def _of_room(there: Left) -> Iterator[str]:
    for what, all_of, free in (
        ("space", there.bytes, there.free_bytes),
        ("inodes", there.inodes, there.free_inodes),
    ):
        if free < _FEW * all_of:
            yield f"Only {100 * free / all_of:.1f} % of the {what} on the disk is free."


def long_paused(spool: Spool) -> list[str]:
    """The queues that have been paused without an end for more than a day. Raises OSError."""
    settings = spool.context.settings
    before, found = spool.context.clock() - _LONG_PAUSE_S, []
    for queue in spool.queues():
        try:
            paused = settings.get(queue).paused
        except PermissionError:
            continue  # it must not hide the others; a report of health tells of it
        if paused is True:
            file = spool.tree.look(settings.path(queue))
            # The file has not changed since, so the pause is at least as old as the file.
            if file is not None and file.st_mtime < before:
                found.append(queue)
    return found
