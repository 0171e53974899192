"""Writes the history: one line a minute, by the first mq of a host."""

from __future__ import annotations

import asyncio
import logging
import time

from fsmq.spool import Spool
from fsmq.spool.checks import DutyCycle
from fsmq.spool.errors import FsmqError
from fsmq.spool.inspection import HISTORY_EVERY_S, Overview, Recorder, Reports, Snapshot

from ...running.runner import Runner
from .surveys import Surveys

log = logging.getLogger(__name__)
# If a survey takes long, lines are written less often.
_THROTTLE = DutyCycle(0.02, least_s=HISTORY_EVERY_S)


class Recording:
    """Records the figures of all queues while it runs."""

    def __init__(self, spool: Spool, runner: Runner, surveys: Surveys, reports: Reports) -> None:
        self._spool = spool
        self._runner = runner
        self._surveys = surveys
        self._reports = reports
        self._recorder = Recorder(spool.tree, reports.node)
        self._is_refused = False

    async def run(self, every_s: float = HISTORY_EVERY_S) -> None:
        """Record the figures at each full minute; those that cannot be written are missing."""
        await self.note()  # so that the first minute does not include older counts
        pause = every_s
        while True:
            now = time.time()
            await asyncio.sleep((now + pause) // every_s * every_s - now)
            pause = max(every_s, await self.note())

    async def note(self) -> float:
        """Record the figures as they are now; returns the seconds until the next record."""
        try:
            started = time.monotonic()
            surveyed = await self._surveys.queues()
            pause = _THROTTLE.pause(time.monotonic() - started)
            await self._runner.in_thread(self._record, surveyed)
            self._is_refused = False
        except (OSError, FsmqError) as error:
            if not self._is_refused:  # logged once: a full disk can stay full for long
                log.warning("cannot write the history: %s", error)
            self._is_refused = True
            return HISTORY_EVERY_S
        return pause

    def _record(self, surveyed: dict[str, Overview]) -> None:
        here = {
            report.process: report.snapshot
            for report in self._reports.read()
            if report.node == self._reports.node
        }
        own: Snapshot = self._spool.context.metrics.snapshot_quietly()
        waiting = {name: (found.counts, found.oldest) for name, found in surveyed.items()}
        self._recorder.record(
            self._spool.context.clock(), waiting, {**here, self._reports.process: own}
        )

    def close(self) -> None:
        """Let another process write the history."""
        self._recorder.close()
