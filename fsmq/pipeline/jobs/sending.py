"""What jobs that put messages share: their names, and the write of a job, done once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame

from fsmq.spool import InvalidValue, Spool, Unavailable
from fsmq.spool.shared_jobs import Job, check_job, is_committed, last_forwarded

_DIGITS = 16


class Plan(NamedTuple):
    """Where a job puts messages.

    queue: the queue of rows that do not name one. job: its name; a job that is done is not done
    again. rejected_rows: the folder for rows that cannot become messages; None: they fail the job.
    ids: what a row's id is, one of `rows.IDS`. journal: whether the messages are recorded as
    accepted; None: if other programs on the spool record their steps.
    """

    root: str
    job: str
    queue: str | None = None
    create_queues: bool = False
    rejected_rows: str | None = None
    ids: str = "own"
    journal: bool | None = None


def name_of(kind: str, sources: str, *more: Any) -> str:
    """A job's name, the same for the same input and options.

    sources: a path, of whose files the names, sizes and times count; or a URL, which itself counts.
    """
    digest = hashlib.sha256(json.dumps([sources, *more], default=str).encode())
    if "://" not in sources:
        for path, size, mtime_ns in _files(Path(sources)):
            digest.update(f"{path} {size} {mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return f"{kind}-{digest.hexdigest()[:_DIGITS]}"


def _files(path: Path) -> Iterator[tuple[str, int, int]]:
    if not path.exists():
        raise InvalidValue("source", f"{path} does not exist")
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            found = file.stat()
            yield str(file), found.st_size, found.st_mtime_ns


def is_done(plan: Plan) -> bool:
    """Whether the job is done already. Raises InvalidValue, UnusableSpool, Unavailable."""
    check_job(plan.job)
    with _open(plan.root) as spool:
        return is_committed(spool, Job(plan.job))


def send(frame: DataFrame, plan: Plan) -> dict[str, Any]:
    """Put all rows as one job, and return the result. A job that is done adds nothing.

    Raises:
        Exception: Spark's, with the text of the spool's error.
    """
    if is_done(plan):
        return {"job": plan.job, "messages": 0, "done_before": True}
    writing = frame.write.format("fsmq").mode("append").options(root=plan.root, job=plan.job)
    writing = writing.options(createQueues=plan.create_queues, ids=plan.ids)
    if plan.queue is not None:
        writing = writing.option("queue", plan.queue)
    if plan.journal is not None:
        writing = writing.option("journal", plan.journal)
    if plan.rejected_rows is not None:
        writing = writing.option("rejectedRows", plan.rejected_rows)
    writing.save()
    with _open(plan.root) as spool:
        try:
            noted = last_forwarded(spool.tree, plan.job)
        except OSError as error:
            raise Unavailable(f"cannot read what the job {plan.job!r} did: {error}") from error
    found: dict[str, Any] = {
        "job": plan.job,
        "messages": noted.messages - noted.repeated if noted is not None else 0,
        "repeated": noted.repeated if noted is not None else 0,
        "done_before": False,
    }
    if plan.rejected_rows is not None:
        found["rejected_rows"] = _lines(Path(plan.rejected_rows) / f"{plan.job}-0.jsonl")
    return found


def _lines(path: Path) -> int:
    if not path.exists():
        return 0
    with path.open("rb") as file:
        return sum(1 for _ in file)


def _open(root: str) -> Spool:
    if not (Path(root) / "queues").is_dir():
        raise InvalidValue("root", f"{root} is not a spool: mq makes one when it starts there")
    return Spool(root, delivers=False, watch="poll")
