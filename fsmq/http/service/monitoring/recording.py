"""The history, written: one line a minute, by the first mq of a host."""

from __future__ import annotations

import asyncio
import logging
import time

from fsmq.spool import Spool
from fsmq.spool.errors import FsmqError
from fsmq.spool.layout.duty_cycle import DutyCycle
from fsmq.spool.records.history import EVERY_S, Recorder
from fsmq.spool.records.metrics import Snapshot
from fsmq.spool.records.reports import Reports
from fsmq.spool.views.counts import Overview

from ...running.runner import Runner
from .surveys import Surveys

log = logging.getLogger(__name__)
# Where a survey takes long there is a line less often.
_THROTTLE = DutyCycle(0.02, least_s=EVERY_S)


class Recording:
    """Notes the figures of all queues as long as it runs."""

    def __init__(self, spool: Spool, runner: Runner, surveys: Surveys, reports: Reports) -> None:
        self._spool = spool
        self._runner = runner
        self._surveys = surveys
        self._reports = reports
        self._recorder = Recorder(spool.tree, reports.node)
        self._is_refused = False

    async def run(self, every_s: float = EVERY_S) -> None:
        """Note the figures at each full minute; what the disk refuses is missing."""
        await self.note()  # what counters have by now is no growth of the first minute
        pause = every_s
        while True:
            now = time.time()
            await asyncio.sleep((now + pause) // every_s * every_s - now)
            pause = max(every_s, await self.note())

    async def note(self) -> float:
        """Note the figures as they are now; seconds until they may be noted again."""
        try:
            started = time.monotonic()
            surveyed = await self._surveys.queues()
            pause = _THROTTLE.pause(time.monotonic() - started)
            await self._runner.in_thread(self._record, surveyed)
            self._is_refused = False
        except (OSError, FsmqError) as error:
            if not self._is_refused:  # once is enough: a full disk may stay full for long
                log.warning("cannot note the history: %s", error)
            self._is_refused = True
            return EVERY_S
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
        """Let another process write."""
        self._recorder.close()
