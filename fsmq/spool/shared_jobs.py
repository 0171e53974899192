"""For jobs of several processes: staged messages, consumers, exactly-once writes to logs."""

from __future__ import annotations

from .consumers.behind import Behind, behind, behind_by_consumer, total
from .consumers.consumer import Consumer
from .consumers.manifest import Batch
from .log.idempotent import publish_once
from .log.segment.record import Piece, entry
from .records.alive import find_alive
from .staging.commit import abort, commit, is_committed
from .staging.forward import last as last_forwarded
from .staging.part import Job, Part, Written, check_job
from .staging.staged_jobs import staged_jobs

__all__ = [
    "Batch",
    "Behind",
    "Consumer",
    "Job",
    "Part",
    "Piece",
    "Written",
    "abort",
    "behind",
    "behind_by_consumer",
    "check_job",
    "commit",
    "entry",
    "find_alive",
    "is_committed",
    "last_forwarded",
    "publish_once",
    "staged_jobs",
    "total",
]
