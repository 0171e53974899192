"""The queues of a stream: which exist, what waits in them, and whether they can bury messages."""

from __future__ import annotations

import logging
import time
from typing import Any

from fsmq.pipeline.read.listing import Queues
from fsmq.spool import InvalidValue, NoSuchQueue, Spool
from fsmq.spool.checks import DutyCycle
from fsmq.spool.errors import as_unavailable
from fsmq.spool.on_disk import Tree
from fsmq.spool.resources import SettingsStore
from fsmq.spool.shared_jobs import Behind, behind, total

# How often the waiting messages are counted.
_LOOKS = DutyCycle(0.02, least_s=1.0)

_log = logging.getLogger(__name__)


class QueueIsGone(NoSuchQueue):
    """A queue that the option queue names was deleted while the stream ran."""

    def __init__(self, queue: str) -> None:
        super().__init__(queue)
        self.args = (
            f"queue {queue!r} is gone: it was deleted while the stream ran; create it again, or let"
            ' the stream wait for it with .option("missingQueue", "wait")',
        )


class StreamQueues:
    """The queues of one stream, which can change from batch to batch.

    waits: whether to wait for a named queue that is missing; otherwise that is an error.
    """

    def __init__(self, queues: Queues, *, waits: bool) -> None:
        self.patterns = queues.patterns
        self._queues = queues
        self._waits = waits
        # The queues that existed at the last look, and those that were missing.
        self._known: set[str] = set()
        self._missing: set[str] = set()
        self._behind: dict[str, Any] = {}
        self._look_at = 0.0  # monotonic seconds

    def check(self, tree: Tree, *, buries: bool = False) -> None:
        """Check that the stream can begin. Raises InvalidValue, NoSuchQueue, OSError.

        buries: rows that fail alone are to be buried, for which a queue needs settings.
        """
        if not self._waits:
            self._queues.check(tree)
        if not buries:
            return
        store = SettingsStore(tree)
        for queue in filter(self._queues.holds, tree.queues()):
            settings = store.get(queue)
            if settings.dead_letter_queue is None or settings.max_deliveries is None:
                raise InvalidValue(
                    "option failedBatch",
                    f"'divide' buries a row that fails alone, and queue {queue!r} has nothing set"
                    f" for that: fsmq queue config {queue} max_deliveries=2 dead_letter_queue=NAME",
                )

    def now(self, spool: Spool) -> list[str]:
        """The queues that exist now. Logs which are gone, and which are back.

        Raises QueueIsGone, Unavailable.
        """
        queues = self._there(spool)
        missing = self._queues.missing(queues)
        if missing and not self._waits:
            raise QueueIsGone(missing[0])
        for queue in sorted(self._known.difference(queues)):
            _log.warning("queue %r is gone: it was deleted while the stream ran", queue)
        for queue in sorted(set(missing).difference(self._missing)):
            _log.warning("the stream waits for queue %r, which does not exist", queue)
        for queue in sorted(self._missing.intersection(queues)):
            _log.warning("queue %r is there again: the stream goes on with it", queue)
        self._known, self._missing = set(queues), set(missing)
        return queues

    def behind(self, spool: Spool) -> dict[str, Any]:
        """The messages that wait, for Spark's progress: in total, and by queue. Raises Unavailable.

        The longer counting takes, the older the counts can be.
        """
        started = time.monotonic()
        if started >= self._look_at:
            with as_unavailable("cannot look at what waits"):
                found = behind(spool.context, self._there(spool))
            now = spool.context.clock()
            self._behind = _for_progress(total(found.values()), now)
            self._behind["queues"] = {queue: _for_progress(of, now) for queue, of in found.items()}
            self._look_at = time.monotonic() + _LOOKS.pause(time.monotonic() - started)
        return self._behind

    def _there(self, spool: Spool) -> list[str]:
        return [queue for queue in spool.queues() if self._queues.holds(queue)]


def _for_progress(found: Behind, now: float) -> dict[str, Any]:
    age = None if found.oldest is None else round(max(0.0, now - found.oldest), 3)
    return {
        "messagesBehind": found.messages,
        "bytesBehind": found.bytes,
        "oldestBehindSeconds": age,
    }
