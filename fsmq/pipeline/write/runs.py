"""Whether rows of a numbered batch are dropped because they are written, or would be lost.

A job drops batches whose numbers are not above its last one. After another query, or with an older
copy of a checkpoint, such a number means other rows.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pyspark import TaskContext

from fsmq.spool import InvalidValue

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"

_log = logging.getLogger(__name__)


class WriteRun(NamedTuple):
    """A write, or a task of it. query, batch: the stream's id and Spark's number of its batch, also
    within ``foreachBatch``; None outside of streams. rows: all that it was given."""

    query: str | None
    batch: int | None
    rows: int = 0

    @classmethod
    def of_task(cls, rows: int) -> WriteRun:
        """The task in which it is called."""
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY) if context is not None else None
        batch = context.getLocalProperty(_BATCH) if context is not None else None
        return cls(query, int(batch) if query and batch else None, rows)

    @classmethod
    def of(cls, tasks: Sequence[WriteRun]) -> WriteRun:
        """The write to which tasks belong."""
        query, batch, _ = tasks[0] if tasks else cls(None, None)
        return cls(query, batch, sum(task.rows for task in tasks))

    def check(self, job: str, number: int, last: int, noted: Mapping[str, Any] | None) -> None:
        """Check a batch against the last one of its job, whose run was noted with ``_asdict``.

        Warns of rows that are dropped. Raises InvalidValue if they are not those that were written.
        """
        problem = None if noted is None else self._problem(number, last, noted)
        if problem is not None:
            instead = 'or write under another name: .option("job", …)'
            raise InvalidValue(f"job {job!r}", f"{problem}, {instead}")
        if number <= last and self.rows:
            told = "%d rows of batch %d of job %r were written before, and are dropped"
            _log.warning(told, self.rows, number, job)

    def _problem(self, number: int, last: int, noted: Mapping[str, Any]) -> str | None:
        query, batch, rows = (noted.get(name) for name in self._fields)
        if query != self.query:
            return f"batch {last} was written by another query: bring its checkpoint back"
        if number < last and query is not None:
            older = "the checkpoint is an older copy: bring the newer one back"
            return f"batch {number} comes after batch {last}, so {older}"
        if number == last and batch != self.batch:
            return f"batch {number} was written in batch {batch} of the query: let its number rise"
        if number == last and rows != self.rows:
            return f"batch {number} was written with {rows} rows, and has {self.rows} now"
        return None
